//! Locking and unlocking again and again: alone, in a crowd on one key, and in a crowd on many.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::{JoinSet, unconstrained, yield_now};

use super::{Failed, Keyed, Meter, Spent, Zipf};

/// The clock is read once in so many turns.
const BATCH: u64 = 1_000;
/// In a crowd, a task lets others run once in so many turns, while it holds the lock.
const YIELD: u64 = 16;

/// One task takes one lock that nobody else wants. It is never sent to the back of the run queue meanwhile, as tokio does
/// now and then with whoever uses its mutex: that would count against the mutex.
///
/// # Errors
/// When a lock is refused.
pub async fn alone<K: Keyed>(length: Duration) -> Result<Spent, Failed> {
    let (locks, keys) = K::with_keys(1)?;
    let task = async move {
        let key = keys.first().ok_or("there is no key")?;
        batch(&locks, key).await?;
        let (meter, mut turns) = (Meter::start(), 0);
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

/// So many tasks take locks. Every task goes through the same draws, each from another place on.
///
/// # Errors
/// When a lock is refused.
pub async fn crowd<K: Keyed>(zipf: &Zipf, tasks: u32, length: Duration) -> Result<Spent, Failed> {
    let (locks, keys) = K::with_keys(zipf.keys)?;
    let (keys, over) = (Arc::new(keys), Arc::new(AtomicBool::new(false)));
    let apart = zipf.draws.len() / (tasks.max(1) as usize);
    let mut running = JoinSet::new();
    let meter = Meter::start();
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
