//! One round: every load on every library, and the medians of all rounds.

use std::time::Duration;

use serde::Serialize;
use tidelock_benches::lock::{
    Drained, Failed, HandOffs, HashMap, Mutexes, Ours, Pool, Spent, Zipf, alone, crowd, drain, hand_offs,
};
use tidelock_console::bench::statistics::median;
use tidelock_console::progress::Progress;

use super::Plan;

/// Measurements in one round.
pub(super) const STEPS: u64 = 15;
/// The timeout of a waiter in the long queue.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The cost of locking and unlocking.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Turns {
    /// CPU nanoseconds of one lock and unlock.
    pub(super) cpu_ns: f64,
    /// Locks per second of wall-clock time.
    pub(super) per_s: f64,
}

/// The latency of a hand-off.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Latency {
    /// The number of hand-offs.
    pub(super) count: f64,
    /// The median latency.
    pub(super) p50_ns: f64,
    /// The 99th percentile.
    pub(super) p99_ns: f64,
}

/// The service of a long queue.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Queue {
    /// The number of hand-offs to waiters.
    pub(super) hand_offs: u32,
    /// Milliseconds until the queue was empty.
    pub(super) drain_ms: f64,
    /// CPU nanoseconds of one hand-off.
    pub(super) cpu_ns: f64,
}

/// One task on one key.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Uncontended {
    pub(super) tidelock: Turns,
    pub(super) tokio: Turns,
    pub(super) lockable_pool: Turns,
    pub(super) lockable_map: Turns,
}

/// One measurement of each library.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Three<T> {
    pub(super) tidelock: T,
    pub(super) tokio: T,
    pub(super) lockable: T,
}

/// The same without `lockable`.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Two<T> {
    pub(super) tidelock: T,
    pub(super) tokio: T,
}

/// The measurements of one round, or the medians of all rounds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Round {
    pub(super) uncontended: Uncontended,
    /// Many tasks on one key.
    pub(super) one_key: Three<Turns>,
    /// Many tasks on many keys, with a Zipf distribution.
    pub(super) zipf: Three<Turns>,
    pub(super) hand_off: Two<Latency>,
    /// A long queue for one key.
    pub(super) waiters: Three<Queue>,
}

/// Measures everything once.
pub(super) async fn measure(plan: &Plan, progress: &Progress) -> Result<Round, Failed> {
    let (slice, tasks, waiters) = (plan.pace.slice(), plan.tasks, plan.waiters);
    let (one, many) = (Zipf::new(1), Zipf::new(plan.zipf_keys));
    let done = |what: Turns| {
        progress.done(1);
        what
    };
    progress.say("one task, one key");
    let uncontended = Uncontended {
        tidelock: done(alone::<Ours>(slice).await?.into()),
        tokio: done(alone::<Mutexes>(slice).await?.into()),
        lockable_pool: done(alone::<Pool>(slice).await?.into()),
        lockable_map: done(alone::<HashMap>(slice).await?.into()),
    };
    progress.say("many tasks, one key");
    let one_key = Three {
        tidelock: done(crowd::<Ours>(&one, tasks, slice).await?.into()),
        tokio: done(crowd::<Mutexes>(&one, tasks, slice).await?.into()),
        lockable: done(crowd::<Pool>(&one, tasks, slice).await?.into()),
    };
    progress.say("many tasks, many keys");
    let zipf = Three {
        tidelock: done(crowd::<Ours>(&many, tasks, slice).await?.into()),
        tokio: done(crowd::<Mutexes>(&many, tasks, slice).await?.into()),
        lockable: done(crowd::<Pool>(&many, tasks, slice).await?.into()),
    };
    progress.say("handing on");
    let hand_off = Two {
        tidelock: hand_offs::<Ours>(slice).await?.into(),
        tokio: hand_offs::<Mutexes>(slice).await?.into(),
    };
    progress.done(2);
    progress.say("a long queue");
    let waiters = Three {
        tidelock: drain::<Ours>(waiters, TIMEOUT).await?.into(),
        tokio: drain::<Mutexes>(waiters, TIMEOUT).await?.into(),
        lockable: drain::<Pool>(waiters, TIMEOUT).await?.into(),
    };
    progress.done(3);
    Ok(Round { uncontended, one_key, zipf, hand_off, waiters })
}

impl From<Spent> for Turns {
    fn from(spent: Spent) -> Self {
        Self { cpu_ns: spent.cpu_ns(), per_s: spent.per_second() }
    }
}

impl From<HandOffs> for Latency {
    fn from(all: HandOffs) -> Self {
        Self { count: all.count() as f64, p50_ns: all.percentile(0.5), p99_ns: all.percentile(0.99) }
    }
}

impl From<Drained> for Queue {
    fn from(drained: Drained) -> Self {
        let Drained { hand_offs, spent } = drained;
        Self { hand_offs, drain_ms: spent.wall.as_secs_f64() * 1e3, cpu_ns: spent.cpu_ns() }
    }
}

impl Round {
    /// The median of each number.
    pub(super) fn median(rounds: &[Self], waiters: u32) -> Self {
        let turns = |pick: fn(&Self) -> Turns| Turns {
            cpu_ns: median(rounds, |r| pick(r).cpu_ns),
            per_s: median(rounds, |r| pick(r).per_s),
        };
        let latency = |pick: fn(&Self) -> Latency| Latency {
            count: median(rounds, |r| pick(r).count),
            p50_ns: median(rounds, |r| pick(r).p50_ns),
            p99_ns: median(rounds, |r| pick(r).p99_ns),
        };
        // A round with a wrong count must show in the result.
        let queue = |pick: fn(&Self) -> Queue| Queue {
            hand_offs: rounds.iter().map(|r| pick(r).hand_offs).find(|n| *n != waiters).unwrap_or(waiters),
            drain_ms: median(rounds, |r| pick(r).drain_ms),
            cpu_ns: median(rounds, |r| pick(r).cpu_ns),
        };
        Self {
            uncontended: Uncontended {
                tidelock: turns(|r| r.uncontended.tidelock),
                tokio: turns(|r| r.uncontended.tokio),
                lockable_pool: turns(|r| r.uncontended.lockable_pool),
                lockable_map: turns(|r| r.uncontended.lockable_map),
            },
            one_key: Three {
                tidelock: turns(|r| r.one_key.tidelock),
                tokio: turns(|r| r.one_key.tokio),
                lockable: turns(|r| r.one_key.lockable),
            },
            zipf: Three {
                tidelock: turns(|r| r.zipf.tidelock),
                tokio: turns(|r| r.zipf.tokio),
                lockable: turns(|r| r.zipf.lockable),
            },
            hand_off: Two {
                tidelock: latency(|r| r.hand_off.tidelock),
                tokio: latency(|r| r.hand_off.tokio),
            },
            waiters: Three {
                tidelock: queue(|r| r.waiters.tidelock),
                tokio: queue(|r| r.waiters.tokio),
                lockable: queue(|r| r.waiters.lockable),
            },
        }
    }
}
