//! How soon an event is handled after it was committed, when there is nothing else to do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tidelock::events::Start;
use tidelock::prelude::*;
use tidelock::reactions::{Reaction, Reactions};
use tokio::sync::mpsc;

use super::super::measure::{Commits, Latencies, per_second};
use super::{Stock, StockEvent};

/// Longer than any event takes that is not lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// Commits events one by one, and waits for each to be handled.
pub(super) async fn run(store: &SharedStore, round: u32, count: u32) -> Result<Commits> {
    let prefix = format!("{round}-tailed");
    let (tell, mut told) = mpsc::unbounded_channel();
    let reaction = Reaction::new(format!("tail-{round}"))
        .streams(KeyPrefix::starting("stock", &[], &prefix))
        .start_from(Start::Now)
        .each(move |_, _| {
            let tell = tell.clone();
            async move {
                // Whoever listened is gone only when the measurement is over.
                let _ = tell.send(Instant::now());
                Ok(())
            }
        });
    let running = Reactions::new(Arc::clone(store)).with(reaction).start().await?;
    let (events, mut latencies, started) =
        (Events::new(Arc::clone(store)), Latencies::default(), Instant::now());
    for number in 0..count {
        events
            .append::<Stock>(format!("{prefix}-{}", number % 10).as_str(), [StockEvent::received()])
            .await?;
        let committed = Instant::now();
        let handled = tokio::time::timeout(PATIENCE, told.recv()).await;
        let handled = handled.context("an event was not handled")?.context("the reaction ended")?;
        latencies.add(handled.saturating_duration_since(committed));
        running.settle().await?;
    }
    let took = started.elapsed();
    running.shutdown().await;
    let (p50_us, p99_us) = (latencies.percentile(0.5), latencies.percentile(0.99));
    Ok(Commits { per_s: per_second(latencies.count(), took), p50_us, p99_us })
}
