//! The fires of a task: which comes after an instant, and when it is due.
//!
//! A zone is a row of stretches with one offset each. Inside a stretch the expression is followed by the clock on the wall. So
//! wall times that are left out do not fire, and wall times that happen twice fire twice, unless the policy says otherwise.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Expression, When, Zone};
use crate::clock::Timestamp;

/// What becomes of fires at wall times that are left out when clocks go forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gap {
    /// Like Vixie's cron: [`After`](Self::After) when the expression names hours and minutes, else [`Skip`](Self::Skip).
    #[default]
    Vixie,
    /// They are one fire, at the first instant after the gap.
    After,
    /// They are no fires.
    Skip,
}

/// What becomes of fires at wall times that happen twice when clocks go back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repeat {
    /// Like Vixie's cron: [`First`](Self::First) when the expression names hours and minutes, else [`Both`](Self::Both).
    #[default]
    Vixie,
    /// They fire the first time only.
    First,
    /// They fire both times.
    Both,
}

/// When a task fires, where, and by which policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timetable {
    /// When.
    pub when: When,
    /// Where: for cron expressions.
    pub zone: Zone,
    /// Wall times that are left out.
    pub gap: Gap,
    /// Wall times that happen twice.
    pub repeat: Repeat,
    /// What intervals are counted from.
    pub anchor: Timestamp,
    /// What is hashed for spread and jitter: the name of the task.
    pub name: String,
    /// All fires of the task are due later, by a share of this that the name hashes to.
    pub spread: Duration,
    /// Each fire is due later, by a share of this that the name and the fire hash to.
    pub jitter: Duration,
}

/// How many stretches of a zone are looked at before a timetable is taken to have no more fires.
const STRETCHES: usize = 1_000;

impl Timetable {
    /// A timetable in a zone, with the default policies.
    #[must_use]
    pub fn new(name: &str, when: When, zone: Zone) -> Self {
        Self {
            when,
            zone,
            gap: Gap::default(),
            repeat: Repeat::default(),
            anchor: Timestamp::EPOCH,
            name: name.to_owned(),
            spread: Duration::ZERO,
            jitter: Duration::ZERO,
        }
    }

    /// The first fire after an instant.
    #[must_use]
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.when {
            When::Cron(expression) => {
                let second = after.as_micros().div_euclid(1_000_000);
                self.next_second(expression, second.checked_add(1)?).map(of_seconds)
            }
            When::Every(interval) => {
                let interval = i64::try_from(interval.as_micros()).ok()?.max(1);
                let anchor = self.anchor.as_micros();
                let passed = after.as_micros().checked_sub(anchor)?.div_euclid(interval);
                let fire = interval.checked_mul(passed.checked_add(1)?)?.checked_add(anchor)?;
                Some(Timestamp::from_micros(fire))
            }
            When::At(at) => Some(*at).filter(|at| *at > after),
        }
    }

    /// When a fire is due: later than its time by the shares of spread and jitter, which are the same whoever asks.
    #[must_use]
    pub fn due(&self, fire: Timestamp) -> Timestamp {
        let spread = share(self.spread, hash(self.name.as_bytes(), 0));
        let seed = fire.as_micros().cast_unsigned().wrapping_add(1);
        fire.after(spread).after(share(self.jitter, hash(self.name.as_bytes(), seed)))
    }

    /// Where a task begins that is new: a cron expression fires at once if the present minute matches, an interval passes
    /// once before the first fire, and an instant that has passed is a fire that was missed.
    #[must_use]
    pub fn beginning(&self, now: Timestamp) -> Timestamp {
        const MINUTE: i64 = 60_000_000;
        match self.when {
            When::Cron(_) => Timestamp::from_micros(now.as_micros().div_euclid(MINUTE) * MINUTE - 1),
            When::Every(_) => now,
            When::At(at) => Timestamp::from_micros(at.as_micros().saturating_sub(1)).min(now),
        }
    }

    fn next_second(&self, expression: &Expression, from: i64) -> Option<i64> {
        let fixed = expression.is_fixed();
        let after = matches!((self.gap, fixed), (Gap::After, _) | (Gap::Vixie, true));
        let first = matches!((self.repeat, fixed), (Repeat::First, _) | (Repeat::Vixie, true));
        let mut from = from;
        for _ in 0..STRETCHES {
            let stretch = self.zone.stretch(from)?;
            let mut lowest = from;
            if let Some((begin, before)) = stretch.begin {
                let left_out = (begin + before)..(begin + stretch.offset);
                if after && begin == from && expression.at_or_after(left_out.start)? < left_out.end {
                    return Some(begin);
                }
                if first {
                    // The wall shows for the second time what it has shown before the stretch began.
                    lowest = lowest.max(begin + (before - stretch.offset).max(0));
                }
            }
            let found = expression.at_or_after(lowest + stretch.offset)? - stretch.offset;
            match stretch.end {
                Some(end) if found >= end => from = end,
                _ => return Some(found),
            }
        }
        None
    }
}

fn of_seconds(second: i64) -> Timestamp {
    Timestamp::from_micros(second.saturating_mul(1_000_000))
}

/// A share of a length of time.
fn share(whole: Duration, hash: u64) -> Duration {
    let micros = u64::try_from(whole.as_micros()).unwrap_or(u64::MAX);
    let part = (u128::from(micros) * u128::from(hash)) >> 64;
    Duration::from_micros(u64::try_from(part).unwrap_or(0))
}

/// FNV-1a, with the finaliser of splitmix64 so that short names differ in all bits. It must never change: fires would move.
fn hash(name: &[u8], seed: u64) -> u64 {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let z = name.iter().fold(0xcbf2_9ce4_8422_2325 ^ seed, fnv);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
