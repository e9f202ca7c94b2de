//! The latency from commit to handler on an idle store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tidelock::events::StartFrom;
use tidelock::prelude::*;
use tidelock::reactions::{Reaction, Reactions};
use tidelock_console::bench::statistics::{Commits, Latencies, per_second};
use tokio::sync::mpsc;

use super::{Stock, StockEvent};

/// The timeout of an event.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Commits events one by one, and waits until each is handled.
pub(super) async fn run(store: &SharedStore, round: u32, count: u32) -> Result<Commits> {
    let prefix = format!("{round}-tailed");
    let (handled_at, mut handled_times) = mpsc::unbounded_channel();
    let reaction = Reaction::new(format!("tail-{round}"))
        .streams(KeyPrefix::starting("stock", &[], &prefix))
        .start_from(StartFrom::Now)
        .each(move |_, _| {
            let handled_at = handled_at.clone();
            async move {
                // The receiver is dropped only at the end of the measurement.
                let _ = handled_at.send(Instant::now());
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
        let handled = tokio::time::timeout(TIMEOUT, handled_times.recv()).await;
        let handled = handled
            .context("cannot measure: an event was not handled within 30 s")?
            .context("cannot measure: the reaction ended")?;
        latencies.add(handled.saturating_duration_since(committed));
        running.quiesce().await?;
    }
    let took = started.elapsed();
    running.shutdown().await;
    let (p50_us, p99_us) = (latencies.percentile(0.5), latencies.percentile(0.99));
    Ok(Commits { per_s: per_second(latencies.count(), took), p50_us, p99_us })
}
