//! Timetables: the next fire of a task after an instant, and its due time.
//!
//! A zone is a sequence of stretches with one offset each. Inside a stretch the expression follows the wall clock. Skipped
//! wall times therefore do not fire, and repeated wall times fire twice, unless the policy says otherwise.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Expression, Trigger, Zone};
use crate::clock::Timestamp;

/// The policy for fires at wall times that are skipped when clocks go forward (DST gap).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DstGap {
    /// Like Vixie's cron: [`After`](Self::After) when the expression names hours and minutes, else [`Skip`](Self::Skip).
    #[default]
    Vixie,
    /// Merges them into one fire at the first instant after the gap.
    After,
    /// Skips them.
    Skip,
}

/// The policy for fires at wall times that occur twice when clocks go back (DST overlap).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DstOverlap {
    /// Like Vixie's cron: [`First`](Self::First) when the expression names hours and minutes, else [`Both`](Self::Both).
    #[default]
    Vixie,
    /// Fires the first time only.
    First,
    /// Fires both times.
    Both,
}

/// The times, the zone and the policies of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recurrence {
    /// The times.
    pub when: Trigger,
    /// The zone of cron expressions.
    pub zone: Zone,
    /// The policy for skipped wall times.
    pub gap: DstGap,
    /// The policy for repeated wall times.
    pub repeat: DstOverlap,
    /// The start of intervals.
    pub anchor: Timestamp,
    /// The name of the task, which is hashed for spread and jitter.
    pub name: String,
    /// All fires of the task are due later, by a share of this that the name hashes to.
    pub spread: Duration,
    /// Each fire is due later, by a share of this that the name and the fire hash to.
    pub jitter: Duration,
}

/// The number of stretches of a zone that are searched before a timetable counts as exhausted.
const STRETCHES: usize = 1_000;

impl Recurrence {
    /// Creates a timetable in a zone, with the default policies.
    #[must_use]
    pub fn new(name: &str, when: Trigger, zone: Zone) -> Self {
        Self {
            when,
            zone,
            gap: DstGap::default(),
            repeat: DstOverlap::default(),
            anchor: Timestamp::EPOCH,
            name: name.to_owned(),
            spread: Duration::ZERO,
            jitter: Duration::ZERO,
        }
    }

    /// Returns the first fire after an instant.
    #[must_use]
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.when {
            Trigger::Cron(expression) => {
                let second = after.as_micros().div_euclid(1_000_000);
                self.next_second(expression, second.checked_add(1)?).map(of_seconds)
            }
            Trigger::Every(interval) => {
                let interval = i64::try_from(interval.as_micros()).ok()?.max(1);
                let anchor = self.anchor.as_micros();
                let passed = after.as_micros().checked_sub(anchor)?.div_euclid(interval);
                let fire = interval.checked_mul(passed.checked_add(1)?)?.checked_add(anchor)?;
                Some(Timestamp::from_micros(fire))
            }
            Trigger::At(at) => Some(*at).filter(|at| *at > after),
        }
    }

    /// Returns the due time of a fire: its time plus its shares of spread and jitter. The shares are the same in every
    /// process.
    #[must_use]
    pub fn due(&self, fire: Timestamp) -> Timestamp {
        let spread = share(self.spread, hash(self.name.as_bytes(), 0));
        let seed = fire.as_micros().cast_unsigned().wrapping_add(1);
        fire.after(spread).after(share(self.jitter, hash(self.name.as_bytes(), seed)))
    }

    /// Returns the start of a new task. A cron expression fires at once if the current minute matches. An interval passes once
    /// before the first fire. A past instant is a missed fire.
    #[must_use]
    pub fn beginning(&self, now: Timestamp) -> Timestamp {
        const MINUTE: i64 = 60_000_000;
        match self.when {
            Trigger::Cron(_) => Timestamp::from_micros(now.as_micros().div_euclid(MINUTE) * MINUTE - 1),
            Trigger::Every(_) => now,
            Trigger::At(at) => Timestamp::from_micros(at.as_micros().saturating_sub(1)).min(now),
        }
    }

    fn next_second(&self, expression: &Expression, from: i64) -> Option<i64> {
        let fixed = expression.is_fixed();
        let after = matches!((self.gap, fixed), (DstGap::After, _) | (DstGap::Vixie, true));
        let first = matches!((self.repeat, fixed), (DstOverlap::First, _) | (DstOverlap::Vixie, true));
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
                    // The wall clock shows these times for the second time. It showed them first before the stretch began.
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

/// Returns a share of a duration.
fn share(whole: Duration, hash: u64) -> Duration {
    let micros = u64::try_from(whole.as_micros()).unwrap_or(u64::MAX);
    let part = (u128::from(micros) * u128::from(hash)) >> 64;
    Duration::from_micros(u64::try_from(part).unwrap_or(0))
}

/// Hashes with FNV-1a and the finaliser of splitmix64, so that short names differ in all bits. The hash must never change,
/// because fires would move.
fn hash(name: &[u8], seed: u64) -> u64 {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let z = name.iter().fold(0xcbf2_9ce4_8422_2325 ^ seed, fnv);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
