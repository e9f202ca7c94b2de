//! Writers that increment counters for a while, one after the other each, all of them at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tidelock::prelude::*;
use tidelock_benches::lock::Zipf;
use tokio::task::{JoinSet, yield_now};

use super::super::measure::{Commits, Latencies, per_second, ratio};
use super::record::Records;
use super::round::Increments;
use super::way::{Hand, Tried, Way};

/// Writers that go on where they stopped, with the records that only they write.
#[derive(Debug)]
pub(super) struct Crowd {
    way: Way,
    store: SharedStore,
    records: Records,
    writers: Vec<Writer>,
}

impl Crowd {
    /// So many writers. All of them go through the same draws, each from another place on.
    pub(super) fn new(hand: &Hand, records: Records, writers: u32, zipf: &Zipf) -> Self {
        let apart = zipf.draws.len() / (writers.max(1) as usize);
        let writer = |number| Writer {
            hand: hand.another(),
            keys: records.keys(),
            draws: Arc::clone(&zipf.draws),
            next: number * apart,
        };
        let writers = (0..writers as usize).map(writer).collect();
        Self { way: hand.way, store: Arc::clone(&hand.store), records, writers }
    }

    /// Lets all writers write for a while, and then makes sure that nothing was lost.
    pub(super) async fn slice(&mut self, length: Duration) -> Result<Increments> {
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for writer in self.writers.drain(..) {
            tasks.spawn(writer.run(started + length));
        }
        let mut all = Part::default();
        while let Some(joined) = tasks.join_next().await {
            let (writer, part) = joined??;
            self.writers.push(writer);
            all.merge(part);
        }
        let took = started.elapsed();
        let writes = self.records.verify(&*self.store, all.acknowledged).await?;
        Ok(all.increments(self.way, took, writes))
    }
}

/// One task that writes.
#[derive(Debug)]
struct Writer {
    hand: Hand,
    keys: Arc<[Key]>,
    draws: Arc<[u32]>,
    next: usize,
}

impl Writer {
    async fn run(mut self, until: Instant) -> Result<(Self, Part)> {
        let mut part = Part::default();
        while Instant::now() < until {
            // A store in memory answers at once. Without this, a few writers would keep all others from beginning.
            yield_now().await;
            let started = Instant::now();
            let tried = self.increment(until).await?;
            part.add(tried, started.elapsed());
        }
        Ok((self, part))
    }

    async fn increment(&mut self, until: Instant) -> Result<Tried> {
        let draw = self.next.checked_rem(self.draws.len()).and_then(|place| self.draws.get(place));
        let key =
            draw.and_then(|number| self.keys.get(*number as usize)).context("there is no such record")?;
        self.next += 1;
        self.hand.increment(key, until).await
    }
}

/// What writers did in one slice of time.
#[derive(Debug, Default)]
struct Part {
    acknowledged: u64,
    /// Increments that were given up when the time was over.
    unfinished: u64,
    attempts: u64,
    latencies: Latencies,
}

impl Part {
    /// Adds one increment. One that was not done when the time was over would have taken at least as long as it had
    /// been tried by then, so it counts with that time among the latencies. Left out, those that starve would make
    /// the percentiles look better. It does not count in the rate.
    fn add(&mut self, tried: Tried, took: Duration) {
        self.attempts += tried.attempts;
        self.latencies.add(took);
        if tried.done {
            self.acknowledged += 1;
        } else {
            self.unfinished += 1;
        }
    }

    fn merge(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.unfinished += other.unfinished;
        self.attempts += other.attempts;
        self.latencies.merge(other.latencies);
    }

    fn increments(mut self, way: Way, took: Duration, writes: u64) -> Increments {
        let acknowledged = self.acknowledged as f64;
        let by_hand = matches!(way, Way::Naive | Way::Jitter);
        Increments {
            commits: Commits {
                per_s: per_second(usize::try_from(self.acknowledged).unwrap_or(usize::MAX), took),
                p50_us: self.latencies.percentile(0.5),
                p99_us: self.latencies.percentile(0.99),
            },
            unfinished: self.unfinished as f64,
            mean_attempts: by_hand.then(|| ratio(self.attempts as f64, acknowledged)),
            per_write: ratio(acknowledged, writes as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::way::Load;
    use super::*;
    use crate::progress::Progress;

    #[test]
    fn whoever_starves_counts_among_the_latencies_but_not_in_the_rate() {
        let mut part = Part::default();
        for _ in 0..9 {
            part.add(Tried { attempts: 1, done: true }, Duration::from_millis(1));
        }
        part.add(Tried { attempts: 11, done: false }, Duration::from_millis(700));
        let increments = part.increments(Way::Naive, Duration::from_secs(1), 9);
        assert!((increments.commits.per_s - 9.0).abs() < 1e-9);
        assert!((increments.commits.p99_us - 700_000.0).abs() < 1e-9);
        assert!((increments.unfinished - 1.0).abs() < 1e-9);
        assert!(increments.mean_attempts.is_some_and(|mean| (mean - 20.0 / 9.0).abs() < 1e-9));
    }

    #[tokio::test]
    async fn every_way_counts_every_increment() {
        for way in Way::ALL {
            let store: SharedStore = Arc::new(MemoryStore::new());
            let load = (Load::Spread, way);
            let records = Records::create(&*store, load, 3, &Progress::new(3)).await.unwrap();
            let hand = Hand::new(way, &store, &States::new(Arc::clone(&store)));
            let mut crowd = Crowd::new(&hand, records, 4, &Zipf::new(3));
            // An increment that was lost is an error of the slice.
            let mut increments = crowd.slice(Duration::from_millis(20)).await.unwrap();
            // On a busy machine a slice may be too short for any.
            for _ in 0..500 {
                if increments.commits.per_s > 0.0 {
                    break;
                }
                increments = crowd.slice(Duration::from_millis(20)).await.unwrap();
            }
            assert!(increments.commits.per_s > 0.0, "{way:?}");
            assert!(increments.per_write >= 1.0, "{way:?}: {increments:?}");
            assert_eq!(crowd.writers.len(), 4, "{way:?}");
        }
    }
}
