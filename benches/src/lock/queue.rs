//! Wait queue benchmarks: the hand-off latency after a release, and the time to drain a long queue.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use super::{Failed, Keyed, Spent, Stopwatch};

/// The latencies from a release until the next waiter ran, in nanoseconds, sorted.
#[derive(Clone, Debug, Default)]
pub struct HandOffs(Vec<u64>);

impl HandOffs {
    /// Returns the latency at a percentile, given as a share; 0 when there was no hand-off.
    #[must_use]
    pub fn percentile(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let at = (last as f64 * share.clamp(0.0, 1.0)).round() as usize;
        self.0.get(at).map_or(0.0, |nanoseconds| *nanoseconds as f64)
    }

    /// Returns the number of hand-offs.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// The shared state of the two tasks.
#[derive(Debug)]
struct Court {
    began: Instant,
    /// The time of the last release, with the releasing task in the lowest bit.
    released: AtomicU64,
    over: AtomicBool,
}

impl Court {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Measures two tasks that pass one lock back and forth.
///
/// # Errors
/// When a lock is refused.
pub async fn hand_offs<K: Keyed>(length: Duration) -> Result<HandOffs, Failed> {
    let (locks, keys) = K::with_keys(1)?;
    let court = Court { began: Instant::now(), released: AtomicU64::new(0), over: AtomicBool::new(false) };
    let court = Arc::new(court);
    let mut players = JoinSet::new();
    for me in 0..2 {
        let (locks, court) = (locks.clone(), Arc::clone(&court));
        let key = keys.first().cloned().ok_or("there is no key")?;
        players.spawn(async move { play(&locks, &key, me, &court).await });
    }
    tokio::time::sleep(length).await;
    court.over.store(true, Ordering::Relaxed);
    let mut all = Vec::new();
    while let Some(joined) = players.join_next().await {
        all.extend(joined??);
    }
    all.sort_unstable();
    Ok(HandOffs(all))
}

async fn play<K: Keyed>(locks: &K, key: &K::Key, me: u64, court: &Court) -> Result<Vec<u64>, Failed> {
    let mut took = Vec::new();
    while !court.over.load(Ordering::Relaxed) {
        let asked = court.now();
        let guard = locks.lock(key).await?;
        let (now, released) = (court.now(), court.released.load(Ordering::Relaxed));
        // Only a release by the other task, for which this task waited, is a hand-off.
        if released & 1 != me && released >> 1 >= asked {
            took.push(now.saturating_sub(released >> 1));
        }
        yield_now().await;
        court.released.store((court.now() << 1) | me, Ordering::Relaxed);
        drop(guard);
    }
    Ok(took)
}

/// The result of draining a queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Drained {
    /// The number of hand-offs to a waiter.
    pub hand_offs: u32,
    /// The time from the first release to the last.
    pub spent: Spent,
}

/// The shared state of the waiters.
#[derive(Debug, Default)]
struct Line {
    queued: AtomicU32,
    served: AtomicU32,
    empty: Notify,
}

/// Queues `waiters` tasks for one lock and releases it. Each of them acquires it and passes it on. Tasks that were
/// not served within `patience` are not counted.
///
/// # Errors
/// When a lock is refused.
pub async fn drain<K: Keyed>(waiters: u32, patience: Duration) -> Result<Drained, Failed> {
    let (locks, keys) = K::with_keys(1)?;
    let key = keys.first().cloned().ok_or("there is no key")?;
    let guard = locks.lock(&key).await?;
    let (line, mut tasks) = (Arc::new(Line::default()), JoinSet::new());
    for _ in 0..waiters {
        let (locks, key, line) = (locks.clone(), key.clone(), Arc::clone(&line));
        tasks.spawn(async move { wait_in_line(&locks, &key, &line, waiters).await });
    }
    while line.queued.load(Ordering::Acquire) < waiters {
        if let Some(ended) = tasks.try_join_next() {
            ended??;
            return Err("a lock that is held was granted".into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let meter = Stopwatch::start();
    drop(guard);
    let in_time = timeout(patience, line.empty.notified()).await.is_ok();
    let hand_offs = line.served.load(Ordering::Acquire);
    let spent = meter.stop(u64::from(hand_offs));
    // After a timeout, the tasks still in the queue would never finish.
    while let Some(joined) = if in_time { tasks.join_next().await } else { tasks.try_join_next() } {
        joined??;
    }
    Ok(Drained { hand_offs, spent })
}

async fn wait_in_line<K: Keyed>(locks: &K, key: &K::Key, line: &Line, waiters: u32) -> Result<(), Failed> {
    let (mut lock, mut waits) = (pin!(locks.lock(key)), false);
    let guard = poll_fn(|context| {
        let polled = lock.as_mut().poll(context);
        if polled.is_pending() && !std::mem::replace(&mut waits, true) {
            line.queued.fetch_add(1, Ordering::AcqRel);
        }
        polled
    });
    let guard = guard.await?;
    let last = line.served.fetch_add(1, Ordering::AcqRel) + 1 == waiters;
    drop(guard);
    if last {
        line.empty.notify_one();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Runtime;
    use tokio::sync::{Semaphore, SemaphorePermit};

    use super::*;
    use crate::lock::{Mutexes, Ours, Pool};

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A lock that is lost after three releases.
    #[derive(Clone)]
    struct Forgetful(Arc<(Semaphore, AtomicU32)>);

    struct Lossy<'a>(Option<SemaphorePermit<'a>>, &'a AtomicU32);

    impl Drop for Lossy<'_> {
        fn drop(&mut self) {
            if self.1.fetch_add(1, Ordering::AcqRel) >= 3
                && let Some(permit) = self.0.take()
            {
                permit.forget();
            }
        }
    }

    impl Keyed for Forgetful {
        type Key = ();
        type Guard<'a> = Lossy<'a>;

        fn with_keys(_: u32) -> Result<(Self, Vec<()>), Failed> {
            Ok((Self(Arc::new((Semaphore::new(1), AtomicU32::new(0)))), vec![()]))
        }

        async fn lock<'a>(&'a self, (): &'a ()) -> Result<Lossy<'a>, Failed> {
            Ok(Lossy(Some(self.0.0.acquire().await?), &self.0.1))
        }
    }

    #[test]
    fn every_waiter_in_the_queue_is_served() {
        let runtime = Runtime::new().unwrap();
        let count = |drained: Result<Drained, Failed>| drained.unwrap().hand_offs;
        assert_eq!(count(runtime.block_on(drain::<Ours>(100, PATIENCE))), 100);
        assert_eq!(count(runtime.block_on(drain::<Mutexes>(100, PATIENCE))), 100);
        assert_eq!(count(runtime.block_on(drain::<Pool>(100, PATIENCE))), 100);
    }

    #[test]
    fn those_who_are_forgotten_are_missed_and_nothing_hangs() {
        let runtime = Runtime::new().unwrap();
        let drained = runtime.block_on(drain::<Forgetful>(10, Duration::from_millis(200))).unwrap();
        assert_eq!(drained.hand_offs, 3);
    }
}
