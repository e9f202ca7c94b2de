//! Concurrent writers that increment counters.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tidelock::prelude::*;
use tidelock_benches::lock::Zipf;
use tidelock_console::bench::statistics::{Commits, Latencies, per_second, ratio};
use tokio::task::{JoinSet, yield_now};

use super::record::Records;
use super::round::Increments;
use super::strategy::{Incrementer, Strategy, Tried};

/// Writers that continue where their last slice ended, and their records.
#[derive(Debug)]
pub(super) struct Writers {
    strategy: Strategy,
    store: SharedStore,
    records: Records,
    writers: Vec<Writer>,
}

impl Writers {
    /// Creates writers that go through the same draws from different offsets.
    pub(super) fn new(incrementer: &Incrementer, records: Records, writers: u32, zipf: &Zipf) -> Self {
        let apart = zipf.draws.len() / (writers.max(1) as usize);
        let writer = |number| Writer {
            incrementer: incrementer.another(),
            keys: records.keys(),
            draws: Arc::clone(&zipf.draws),
            next: number * apart,
        };
        let writers = (0..writers as usize).map(writer).collect();
        Self { strategy: incrementer.strategy, store: Arc::clone(&incrementer.store), records, writers }
    }

    /// Runs all writers for a while, and checks that no increment was lost.
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
        Ok(all.increments(self.strategy, took, writes))
    }
}

/// One writing task.
#[derive(Debug)]
struct Writer {
    incrementer: Incrementer,
    keys: Arc<[Key]>,
    draws: Arc<[u32]>,
    next: usize,
}

impl Writer {
    async fn run(mut self, until: Instant) -> Result<(Self, Part)> {
        let mut part = Part::default();
        while Instant::now() < until {
            // A store in memory never waits. Without this, a few writers would starve the others.
            yield_now().await;
            let started = Instant::now();
            let tried = self.increment(until).await?;
            part.add(tried, started.elapsed());
        }
        Ok((self, part))
    }

    async fn increment(&mut self, until: Instant) -> Result<Tried> {
        let draw = self.next.checked_rem(self.draws.len()).and_then(|place| self.draws.get(place));
        let key = draw
            .and_then(|number| self.keys.get(*number as usize))
            .context("cannot increment: no such record")?;
        self.next += 1;
        self.incrementer.increment(key, until).await
    }
}

/// The result of writers in one slice.
#[derive(Debug, Default)]
struct Part {
    acknowledged: u64,
    /// Increments abandoned at the end of the slice.
    unfinished: u64,
    attempts: u64,
    latencies: Latencies,
}

impl Part {
    /// Adds an increment. An abandoned one counts among the latencies with its time so far, because leaving out starving
    /// increments would improve the percentiles. It does not count in the rate.
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

    fn increments(mut self, strategy: Strategy, took: Duration, writes: u64) -> Increments {
        let acknowledged = self.acknowledged as f64;
        let handwritten = matches!(strategy, Strategy::Naive | Strategy::Jitter);
        Increments {
            commits: Commits {
                per_s: per_second(usize::try_from(self.acknowledged).unwrap_or(usize::MAX), took),
                p50_us: self.latencies.percentile(0.5),
                p99_us: self.latencies.percentile(0.99),
            },
            unfinished: self.unfinished as f64,
            mean_attempts: handwritten.then(|| ratio(self.attempts as f64, acknowledged)),
            per_write: ratio(acknowledged, writes as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::strategy::Load;
    use super::*;
    use tidelock_console::progress::Progress;

    #[test]
    fn starving_increments_count_in_the_latencies_but_not_in_the_rate() {
        let mut part = Part::default();
        for _ in 0..9 {
            part.add(Tried { attempts: 1, done: true }, Duration::from_millis(1));
        }
        part.add(Tried { attempts: 11, done: false }, Duration::from_millis(700));
        let increments = part.increments(Strategy::Naive, Duration::from_secs(1), 9);
        assert!((increments.commits.per_s - 9.0).abs() < 1e-9);
        assert!((increments.commits.p99_us - 700_000.0).abs() < 1e-9);
        assert!((increments.unfinished - 1.0).abs() < 1e-9);
        assert!(increments.mean_attempts.is_some_and(|mean| (mean - 20.0 / 9.0).abs() < 1e-9));
    }

    #[tokio::test]
    async fn every_strategy_counts_every_increment() {
        for strategy in Strategy::ALL {
            let store: SharedStore = Arc::new(MemoryStore::new());
            let load = (Load::Spread, strategy);
            let records = Records::create(&*store, load, 3, &Progress::new(3)).await.unwrap();
            let incrementer = Incrementer::new(strategy, &store, &StateRegistry::new(Arc::clone(&store)));
            let mut writers = Writers::new(&incrementer, records, 4, &Zipf::new(3));
            // An increment that was lost is an error of the slice.
            let mut increments = writers.slice(Duration::from_millis(20)).await.unwrap();
            // On a busy machine a slice may be too short for any.
            for _ in 0..500 {
                if increments.commits.per_s > 0.0 {
                    break;
                }
                increments = writers.slice(Duration::from_millis(20)).await.unwrap();
            }
            assert!(increments.commits.per_s > 0.0, "{strategy:?}");
            assert!(increments.per_write >= 1.0, "{strategy:?}: {increments:?}");
            assert_eq!(writers.writers.len(), 4, "{strategy:?}");
        }
    }
}
