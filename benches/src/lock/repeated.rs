//! Repeated locking and unlocking: uncontended, contended on one key, and contended on many.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::{JoinSet, unconstrained, yield_now};

use super::{Failed, Keyed, Spent, Stopwatch, Zipf};

/// The number of turns between two reads of the clock.
const BATCH: u64 = 1_000;
/// Under contention, the number of turns after which a task yields while it holds the lock.
const YIELD: u64 = 16;

/// Measures one task on an uncontended lock. The task runs without tokio's cooperative budget. Tokio would otherwise
/// sometimes move a user of its mutex to the back of the run queue, which would count against the mutex.
///
/// # Errors
/// When a lock is refused.
pub async fn alone<K: Keyed>(length: Duration) -> Result<Spent, Failed> {
    let (locks, keys) = K::with_keys(1)?;
    let task = async move {
        let key = keys.first().ok_or("there is no key")?;
        batch(&locks, key).await?;
        let (meter, mut turns) = (Stopwatch::start(), 0);
        while meter.wall() < length {
            batch(&locks, key).await?;
            turns += BATCH;
        }
        Ok(meter.stop(turns))
    };
    tokio::spawn(unconstrained(task)).await?
}

async fn batch<K: Keyed>(locks: &K, key: &K::Key) -> Result<(), Failed> {
    for _ in 0..BATCH {
        black_box(&locks.lock(black_box(key)).await?);
    }
    Ok(())
}

/// Measures `tasks` tasks that contend for locks. Every task cycles through the same draws, each from another offset.
///
/// # Errors
/// When a lock is refused.
pub async fn crowd<K: Keyed>(zipf: &Zipf, tasks: u32, length: Duration) -> Result<Spent, Failed> {
    let (locks, keys) = K::with_keys(zipf.keys)?;
    let (keys, over) = (Arc::new(keys), Arc::new(AtomicBool::new(false)));
    let apart = zipf.draws.len() / (tasks.max(1) as usize);
    let mut running = JoinSet::new();
    let meter = Stopwatch::start();
    for task in 0..tasks as usize {
        let (locks, keys) = (locks.clone(), Arc::clone(&keys));
        let (draws, over) = (Arc::clone(&zipf.draws), Arc::clone(&over));
        running.spawn(async move { take_turns(&locks, &keys, &draws, task * apart, &over).await });
    }
    tokio::time::sleep(length).await;
    over.store(true, Ordering::Relaxed);
    let mut turns = 0;
    while let Some(joined) = running.join_next().await {
        turns += joined??;
    }
    Ok(meter.stop(turns))
}

async fn take_turns<K: Keyed>(
    locks: &K,
    keys: &[K::Key],
    draws: &[u32],
    from: usize,
    over: &AtomicBool,
) -> Result<u64, Failed> {
    let mut turns = 0;
    for number in draws.iter().cycle().skip(from) {
        let key = keys.get(*number as usize).ok_or("there is no such key")?;
        let guard = locks.lock(key).await?;
        black_box(&guard);
        turns += 1;
        if turns % YIELD == 0 {
            yield_now().await;
            if over.load(Ordering::Relaxed) {
                break;
            }
        }
        drop(guard);
    }
    Ok(turns)
}
