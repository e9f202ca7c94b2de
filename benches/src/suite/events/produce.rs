//! Producers that append one event at a time, with batches or with commands.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tidelock::events::encode;
use tidelock::prelude::*;
use tidelock_console::bench::statistics::{Commits, Latencies, per_second};
use tokio::task::{JoinSet, yield_now};

use super::{Stock, StockEvent};

/// The strategy of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// A batch with the expected version.
    Apply,
    /// A command on an aggregate.
    Execute,
}

impl Strategy {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Execute => "execute",
        }
    }
}

/// Producers with separate streams.
pub(super) struct Producers {
    producers: Vec<Producer>,
}

struct Producer {
    strategy: Strategy,
    store: SharedStore,
    events: Events,
    streams: Vec<(String, Option<StreamVersion>)>,
}

impl Producers {
    pub(super) fn new(
        store: &SharedStore,
        strategy: Strategy,
        prefix: &str,
        producers: u32,
        streams: u32,
    ) -> Self {
        let events = Events::new(Arc::clone(store));
        let producer = |number: u32| Producer {
            strategy,
            store: Arc::clone(store),
            events: events.clone(),
            streams: (number..streams.max(producers))
                .step_by(producers.max(1) as usize)
                .map(|stream| (format!("{prefix}-{stream}"), None))
                .collect(),
        };
        Self { producers: (0..producers).map(producer).collect() }
    }

    /// Runs all producers for a while. Returns their rate and the number of events.
    pub(super) async fn run(self, length: Duration) -> Result<(Commits, u64)> {
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for producer in self.producers {
            tasks.spawn(producer.run(started + length));
        }
        let mut all = Latencies::default();
        while let Some(joined) = tasks.join_next().await {
            all.merge(joined??);
        }
        let (count, took) = (all.count(), started.elapsed());
        let (p50_us, p99_us) = (all.percentile(0.5), all.percentile(0.99));
        Ok((Commits { per_s: per_second(count, took), p50_us, p99_us }, count as u64))
    }
}

impl Producer {
    async fn run(mut self, until: Instant) -> Result<Latencies> {
        let mut latencies = Latencies::default();
        loop {
            for (stream, version) in &mut self.streams {
                if Instant::now() >= until {
                    return Ok(latencies);
                }
                // A store in memory never waits. Without this, a few producers would starve the others.
                yield_now().await;
                let started = Instant::now();
                *version = match self.strategy {
                    Strategy::Apply => append(&*self.store, stream, *version).await?,
                    Strategy::Execute => {
                        let receive = |_: &Stock| Ok::<_, std::convert::Infallible>([StockEvent::received()]);
                        self.events.execute(stream.as_str(), receive).await?.version
                    }
                };
                latencies.add(started.elapsed());
            }
        }
    }
}

async fn append(
    store: &dyn Store,
    id: &str,
    version: Option<StreamVersion>,
) -> Result<Option<StreamVersion>> {
    let (event_type, payload) = encode(&StockEvent::received())?;
    let expect = version.map_or(Expect::Absent, Expect::Exact);
    let batch = Batch::new().append(&Stock::stream(id)?, expect, [NewEvent::new(event_type, payload)]);
    let receipt = store.apply(batch).await?;
    Ok(receipt.appended.first().map(|appended| appended.last_version))
}
