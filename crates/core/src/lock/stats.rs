//! Lock statistics by functor: counts, wait times and hold times. They are counted inside the shards, which are locked
//! anyway.

use std::time::Duration;

/// Number of steps of a histogram, each twice the one before.
const STEPS: usize = 24;

/// The counters of one functor in one shard.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    acquired: u64,
    waited: u64,
    refused: u64,
    wait: Histogram,
    hold: Histogram,
}

impl Tally {
    pub(super) fn acquired(&mut self) {
        self.acquired += 1;
    }

    pub(super) fn waited(&mut self, time: Duration) {
        self.waited += 1;
        self.acquired += 1;
        self.wait.add(time);
    }

    pub(super) fn refused(&mut self) {
        self.refused += 1;
    }

    pub(super) fn held(&mut self, time: Duration) {
        self.hold.add(time);
    }
}

/// Acquisition counts, wait times and hold times of one functor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockClassStats {
    /// The functor's name; empty for terms that were built from keys.
    pub functor: String,
    /// Number of grants.
    pub acquired: u64,
    /// Number of grants that followed a wait.
    pub waited: u64,
    /// Number of attempts without a grant: busy, re-entrant, deadlocked, timed out or cancelled. Attempts that fail the
    /// check of mode or rank are not counted.
    pub refused: u64,
    /// The wait times of the grants that followed a wait.
    pub wait: Histogram,
    /// The hold times, with a resolution of ten milliseconds.
    pub hold: Histogram,
}

impl LockClassStats {
    pub(super) fn add(&mut self, tally: &Tally) {
        self.acquired += tally.acquired;
        self.waited += tally.waited;
        self.refused += tally.refused;
        self.wait.merge(&tally.wait);
        self.hold.merge(&tally.hold);
    }
}

/// A histogram of durations with buckets of powers of two microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; STEPS],
    sum: Duration,
    longest: Duration,
}

impl Histogram {
    #[inline]
    fn add(&mut self, time: Duration) {
        if time.is_zero() {
            self.counts.iter_mut().take(1).for_each(|count| *count += 1);
        } else {
            self.add_some(time);
        }
    }

    fn add_some(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let step = ((u64::BITS - micros.leading_zeros()) as usize).min(STEPS - 1);
        if let Some(count) = self.counts.get_mut(step) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(time);
        self.longest = self.longest.max(time);
    }

    fn merge(&mut self, other: &Self) {
        for (mine, others) in self.counts.iter_mut().zip(&other.counts) {
            *mine += others;
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.longest = self.longest.max(other.longest);
    }

    /// Returns the number of recorded durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all durations.
    #[must_use]
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns the longest duration.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// Returns the upper bound of each step with the number of durations below it, but not below the previous bound.
    pub fn steps(&self) -> impl Iterator<Item = (Duration, u64)> {
        self.counts.iter().enumerate().map(|(step, count)| (Duration::from_micros(1 << step), *count))
    }
}
