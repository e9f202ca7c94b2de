//! How soon another process hears of a commit: one handle waits, another one, with connections of its own, commits.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::store::Watch;

use crate::address::{Address, Opened};
use crate::bench::commit::{EVENT_TYPE, payload_text};
use crate::bench::measure::Latencies;
use crate::random::Random;

/// Between two samples, for hints of the last one that are still on their way. It varies, so as not to fall into step
/// with any timer of the store.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(15);
/// Until a store that was just opened listens.
const LISTENING: Duration = Duration::from_millis(300);
/// Hints that are not counted.
const WARM_UP: u32 = 5;
/// A hint that takes longer than this does not come.
const LONGEST: Duration = Duration::from_secs(10);

/// How long hints took, one entry for each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    acknowledged: Latencies,
    started: Latencies,
}

/// How soon a hint was heard.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Wake {
    /// How many hints were waited for.
    pub(crate) count: f64,
    /// Half of them were heard so soon after the writer had its acknowledgement; 0 when before it.
    pub(crate) after_ack_p50_us: f64,
    /// All but one in a hundred were.
    pub(crate) after_ack_p99_us: f64,
    /// Half of them were heard so soon after the writer began.
    pub(crate) after_start_p50_us: f64,
    /// All but one in a hundred were.
    pub(crate) after_start_p99_us: f64,
}

impl Samples {
    /// Adds all samples of another.
    pub(crate) fn merge(&mut self, other: Self) {
        self.acknowledged.merge(other.acknowledged);
        self.started.merge(other.started);
    }

    /// The numbers.
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

/// The one who waits and the one who commits.
#[derive(Debug)]
pub(crate) struct Pair {
    waiting: Opened,
    writing: SharedStore,
    hints: Watch,
    stream: Key,
    random: Random,
}

impl Pair {
    /// Opens a second handle beside the one that writes.
    pub(crate) async fn new(address: &Address, writing: SharedStore) -> Result<Self> {
        let waiting = address.open_existing().await?;
        let hints = waiting.shared().watch();
        let stream = Key::new("wake", ["up"])?;
        let mut pair = Self { waiting, writing, hints, stream, random: Random::fresh() };
        // A store that was just opened may not listen yet, and gives a hint when it does.
        tokio::time::sleep(LISTENING).await;
        pair.slice(WARM_UP).await?;
        Ok(pair)
    }

    /// Commits so many times and waits for each hint.
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
                .context("no hint came within 10 s; does a pooler stand between, or is NOTIFY refused?")?;
            ensure!(heard, "the store that waits was closed");
            Ok(Instant::now())
        };
        let (acknowledged, heard) = tokio::try_join!(write, hear)?;
        samples.acknowledged.add(heard.saturating_duration_since(acknowledged));
        samples.started.add(heard.saturating_duration_since(started));
        Ok(())
    }

    /// Lets late hints come in, and forgets them.
    async fn rest(&mut self) {
        tokio::time::sleep(self.random.between(SHORTEST_PAUSE, LONGEST_PAUSE)).await;
        while self.hints.has_changed() && self.hints.changed().await {}
    }

    /// Ends the handle that waited.
    pub(crate) async fn close(self) {
        self.waiting.close().await;
    }
}
