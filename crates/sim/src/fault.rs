//! Faults, and the plan that a seed draws.

use std::fmt;
use std::time::Duration;

use crate::rng::Rng;

/// A fault of a simulation. Each is independent of the others, so that a failing plan can be reduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process crashes instead of running its task the given number of times in all. It restarts later.
    Crash {
        /// The process.
        process: usize,
        /// The turn at which it crashes, counted over its restarts.
        turn: u64,
        /// The time until it restarts.
        down: Duration,
    },
    /// A process crashes at a write to the store.
    CrashAtWrite {
        /// The process.
        process: usize,
        /// The number of the write, counted over restarts of the process.
        write: u64,
        /// Whether the write is applied.
        applied: bool,
        /// The time until the process restarts.
        down: Duration,
    },
    /// The reply to a write is lost.
    LostReply {
        /// The process.
        process: usize,
        /// The number of the write.
        write: u64,
        /// Whether the write is applied.
        applied: bool,
    },
    /// The store rejects a write as unreachable, and reports that nothing was applied.
    Rejected {
        /// The process.
        process: usize,
        /// The number of the write.
        write: u64,
    },
    /// A write is applied late, even if its process crashes before that.
    Late {
        /// The process.
        process: usize,
        /// The number of the write.
        write: u64,
        /// The delay.
        by: Duration,
    },
    /// A process cannot reach the store.
    Partition {
        /// The process.
        process: usize,
        /// The start.
        at: Duration,
        /// The length.
        lasts: Duration,
    },
    /// A process is stopped and continued later, like by SIGSTOP.
    Pause {
        /// The process.
        process: usize,
        /// The start.
        at: Duration,
        /// The length.
        lasts: Duration,
    },
    /// A process shuts down gracefully and starts again, as in a deployment.
    Restart {
        /// The process.
        process: usize,
        /// The start of the shutdown.
        at: Duration,
    },
    /// The clock of the store jumps.
    ClockJump {
        /// The instant.
        at: Duration,
        /// The distance. A negative one holds the clock for that long.
        millis: i64,
    },
    /// The history of the store is declared cut, as after a failover: a new epoch begins.
    HistoryCut {
        /// The instant.
        at: Duration,
    },
}

impl Fault {
    /// Returns the instant of a fault that happens at a time.
    pub(crate) fn at(&self) -> Option<Duration> {
        match self {
            Self::Partition { at, .. }
            | Self::Pause { at, .. }
            | Self::Restart { at, .. }
            | Self::ClockJump { at, .. }
            | Self::HistoryCut { at } => Some(*at),
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let applied = |applied: &bool| if *applied { "applied" } else { "not applied" };
        match self {
            Self::Crash { process, turn, down } => {
                write!(f, "p{process} crashes at turn {turn}, down {down:?}")
            }
            Self::CrashAtWrite { process, write, applied: is, down } => {
                write!(f, "p{process} crashes at write {write} ({}), down {down:?}", applied(is))
            }
            Self::LostReply { process, write, applied: is } => {
                write!(f, "p{process} loses the reply to write {write} ({})", applied(is))
            }
            Self::Rejected { process, write } => write!(f, "write {write} of p{process} is rejected"),
            Self::Late { process, write, by } => {
                write!(f, "write {write} of p{process} is applied {by:?} late")
            }
            Self::Partition { process, at, lasts } => {
                write!(f, "p{process} cannot reach the store from {at:?} for {lasts:?}")
            }
            Self::Pause { process, at, lasts } => write!(f, "p{process} is stopped at {at:?} for {lasts:?}"),
            Self::Restart { process, at } => write!(f, "p{process} restarts gracefully at {at:?}"),
            Self::ClockJump { at, millis } => write!(f, "the store's clock jumps by {millis} ms at {at:?}"),
            Self::HistoryCut { at } => write!(f, "the history is cut at {at:?}"),
        }
    }
}

/// The kinds of faults, as bits of a mask. A seed uses a random subset, so that rare combinations occur.
const KINDS: u64 = 10;

/// Draws the faults of a seed.
pub(crate) fn plan(rng: &mut Rng, processes: usize, during: Duration, most: u64) -> Vec<Fault> {
    let kinds: Vec<u64> = (0..KINDS).filter(|_| rng.one_in(2)).collect();
    let count = if kinds.is_empty() { 0 } else { rng.below(most + 1) };
    let one = |_| {
        let kind = *kinds.get(rng.index(kinds.len()))?;
        Some(draw(rng, kind, processes, during))
    };
    (0..count).filter_map(one).collect()
}

fn draw(rng: &mut Rng, kind: u64, processes: usize, during: Duration) -> Fault {
    let process = rng.index(processes);
    let millis = |rng: &mut Rng, most: u64| Duration::from_millis(1 + skewed(rng, most));
    let at = Duration::from_millis(rng.below(u64::try_from(during.as_millis()).unwrap_or(u64::MAX)));
    let write = skewed(rng, 200);
    match kind {
        0 => Fault::Crash { process, turn: skewed(rng, 4_000), down: millis(rng, 20_000) },
        1 => Fault::CrashAtWrite { process, write, applied: rng.one_in(2), down: millis(rng, 20_000) },
        2 => Fault::LostReply { process, write, applied: rng.one_in(2) },
        3 => Fault::Rejected { process, write },
        4 => Fault::Late { process, write, by: millis(rng, 20_000) },
        5 => Fault::Partition { process, at, lasts: millis(rng, 20_000) },
        6 => Fault::Pause { process, at, lasts: millis(rng, 20_000) },
        7 => Fault::Restart { process, at },
        8 => {
            let far = i64::try_from(skewed(rng, 60_000)).unwrap_or(0);
            Fault::ClockJump { at, millis: if rng.one_in(3) { -far / 6 } else { far } }
        }
        _ => Fault::HistoryCut { at },
    }
}

/// Draws a number below `end` whose magnitude is uniform: small numbers are as frequent as large ones.
fn skewed(rng: &mut Rng, end: u64) -> u64 {
    let bits = u64::from(u64::BITS - end.leading_zeros());
    let scale = 1_u64 << rng.below(bits + 1);
    rng.below(scale.min(end).max(1))
}
