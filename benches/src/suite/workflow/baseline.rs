//! The baseline: batches of one event, with as many producers as runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tidelock::prelude::*;
use tidelock_console::bench::statistics::{Commits, Latencies, per_second};
use tokio::task::{JoinSet, yield_now};
use uuid::Uuid;

/// Runs producers for a while, each on its own stream.
pub(super) async fn run(store: &SharedStore, producers: u32, length: Duration) -> Result<Commits> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..producers {
        tasks.spawn(produce(Arc::clone(store), started + length));
    }
    let mut all = Latencies::default();
    while let Some(joined) = tasks.join_next().await {
        all.merge(joined??);
    }
    let (count, took) = (all.count(), started.elapsed());
    let (p50_us, p99_us) = (all.percentile(0.5), all.percentile(0.99));
    Ok(Commits { per_s: per_second(count, took), p50_us, p99_us })
}

async fn produce(store: SharedStore, until: Instant) -> Result<Latencies> {
    let stream = Key::new("bare", [Uuid::now_v7()])?;
    let payload = Payload::of(&serde_json::json!({ "op": { "name": "step 1", "seq": 1 }, "value": 1 }))?;
    let mut latencies = Latencies::default();
    while Instant::now() < until {
        // A store in memory never waits. Without this, a few producers would starve the others.
        yield_now().await;
        let started = Instant::now();
        let event = NewEvent::new(EventType::new("done")?, payload.clone());
        store.apply(Batch::new().append(&stream, Expect::Any, [event])).await?;
        latencies.add(started.elapsed());
    }
    Ok(latencies)
}
