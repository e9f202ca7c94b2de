//! The pace of a suite: how long it measures, and in how many rounds.

use std::time::Duration;

use serde::Serialize;

/// The number of rounds of a quick run.
const QUICK_ROUNDS: u32 = 3;

/// The time and the number of rounds of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Pace {
    /// Seconds of each phase, over all rounds.
    pub(crate) seconds: f64,
    /// The number of rounds, so that a noisy moment affects all phases or is outvoted by the median.
    pub(crate) rounds: u32,
    /// Whether this is a quick run.
    pub(crate) quick: bool,
}

impl Pace {
    /// The pace of a full run, with milliseconds of each phase.
    pub(crate) const fn full(rounds: u32, millis: u64) -> Self {
        Self { seconds: Duration::from_millis(millis).as_secs_f64(), rounds, quick: false }
    }

    /// The pace of a quick run, with milliseconds of each phase.
    pub(crate) const fn quick(millis: u64) -> Self {
        Self { quick: true, ..Self::full(QUICK_ROUNDS, millis) }
    }

    /// The same pace, with another time for each phase if one is given.
    pub(crate) fn within(self, seconds: Option<Duration>) -> Self {
        Self { seconds: seconds.map_or(self.seconds, |seconds| seconds.as_secs_f64()), ..self }
    }

    /// The time of one phase in one round.
    pub(crate) fn slice(&self) -> Duration {
        Duration::from_secs_f64(self.seconds / f64::from(self.rounds.max(1)))
    }
}

/// The phases in their order, or in reverse in every other round, so that no phase always follows the same one.
pub(crate) fn alternating<P, const N: usize>(mut phases: [P; N], round: u32) -> [P; N] {
    if !round.is_multiple_of(2) {
        phases.reverse();
    }
    phases
}
