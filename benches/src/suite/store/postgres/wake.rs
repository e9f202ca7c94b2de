//! The latency of notifications: one handle waits, and another one with its own connections commits.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::store::Watch;
use tidelock_console::address::{Address, Opened};
use tidelock_console::bench::commit::{EVENT_TYPE, payload_text};
use tidelock_console::bench::statistics::Latencies;
use tidelock_console::random::Random;

/// The bounds of the pause between samples, in which late notifications arrive. It varies, so that samples do not
/// synchronise with the store's timers.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(15);
/// The time until a newly opened store listens.
const LISTENING: Duration = Duration::from_millis(300);
/// Uncounted notifications.
const WARM_UP: u32 = 5;
/// The timeout of a notification.
const LONGEST: Duration = Duration::from_secs(10);

/// The latencies of notifications.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    acknowledged: Latencies,
    started: Latencies,
}

/// Percentiles of the latency of notifications.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Wake {
    /// The number of notifications.
    pub(crate) count: f64,
    /// The median after the writer's acknowledgement; 0 when it came before.
    pub(crate) after_ack_p50_us: f64,
    /// Its 99th percentile.
    pub(crate) after_ack_p99_us: f64,
    /// The median after the writer's start.
    pub(crate) after_start_p50_us: f64,
    /// Its 99th percentile.
    pub(crate) after_start_p99_us: f64,
}

impl Samples {
    /// Adds all samples of `other`.
    pub(crate) fn merge(&mut self, other: Self) {
        self.acknowledged.merge(other.acknowledged);
        self.started.merge(other.started);
    }

    /// Returns the percentiles.
    pub(crate) fn wake(&mut self) -> Wake {
        Wake {
            count: self.started.count() as f64,
            after_ack_p50_us: self.acknowledged.percentile(0.5),
            after_ack_p99_us: self.acknowledged.percentile(0.99),
            after_start_p50_us: self.started.percentile(0.5),
            after_start_p99_us: self.started.percentile(0.99),
        }
    }
}

/// A waiting and a committing handle.
#[derive(Debug)]
pub(crate) struct Pair {
    waiting: Opened,
    writing: SharedStore,
    hints: Watch,
    stream: Key,
    random: Random,
}

impl Pair {
    /// Opens the waiting handle.
    pub(crate) async fn new(address: &Address, writing: SharedStore) -> Result<Self> {
        let waiting = address.open_existing().await?;
        let hints = waiting.shared().watch();
        let stream = Key::new("wake", ["up"])?;
        let mut pair = Self { waiting, writing, hints, stream, random: Random::fresh() };
        // A newly opened store may not listen yet, and notifies when it does.
        tokio::time::sleep(LISTENING).await;
        pair.slice(WARM_UP).await?;
        Ok(pair)
    }

    /// Commits `count` times and waits for each notification.
    pub(crate) async fn slice(&mut self, count: u32) -> Result<Samples> {
        let mut samples = Samples::default();
        for _ in 0..count {
            self.rest().await;
            self.sample(&mut samples).await?;
        }
        Ok(samples)
    }

    async fn sample(&mut self, samples: &mut Samples) -> Result<()> {
        let event = NewEvent::new(EVENT_TYPE.parse()?, Payload::from_json(payload_text())?);
        let batch = Batch::new().append(&self.stream, Expect::Any, [event]);
        let started = Instant::now();
        let write = async {
            self.writing.apply(batch).await?;
            anyhow::Ok(Instant::now())
        };
        let hear = async {
            let heard = tokio::time::timeout(LONGEST, self.hints.changed()).await;
            let heard = heard
                .context("cannot measure notifications: none within 10 s; check for a pooler, and that NOTIFY is allowed")?;
            ensure!(heard, "cannot measure notifications: the waiting store was closed");
            Ok(Instant::now())
        };
        let (acknowledged, heard) = tokio::try_join!(write, hear)?;
        samples.acknowledged.add(heard.saturating_duration_since(acknowledged));
        samples.started.add(heard.saturating_duration_since(started));
        Ok(())
    }

    /// Waits for late notifications, and discards them.
    async fn rest(&mut self) {
        tokio::time::sleep(self.random.between(SHORTEST_PAUSE, LONGEST_PAUSE)).await;
        while self.hints.has_changed() && self.hints.changed().await {}
    }

    /// Closes the waiting handle.
    pub(crate) async fn close(self) {
        self.waiting.close().await;
    }
}
