//! Runs that sleep until the same instant: their memory, and the time to wake them all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tidelock::clock::Timestamp;
use tidelock::prelude::*;
use tidelock::workflow::{Ctx, Failure, Worker, Workflow, WorkflowClient};
use tokio::task::JoinSet;

use super::round::Sleepers;

const SLEEP: Workflow<Timestamp, u32> = Workflow::new("sleeper");
/// The number of clients.
const CLIENTS: u32 = 64;
/// The least number of starts per second.
const RATE: u64 = 400;

/// Starts `count` sleeping runs, and waits until all have ended.
pub(super) async fn run(store: &SharedStore, count: u32) -> Result<Sleepers> {
    let code = async |cx: &Ctx, until: Timestamp| -> Result<u32, Failure> {
        cx.sleep_until(until).await?;
        Ok(1)
    };
    let driving = Worker::new(Arc::clone(store)).register(SLEEP, code).start().await?;
    let before = resident();
    let wait = Duration::from_secs(2 + u64::from(count) / RATE);
    let until = store.now().await?.after(wait);
    let mut tasks = JoinSet::new();
    for client in 0..CLIENTS {
        let (store, share) = (Arc::clone(store), count / CLIENTS + u32::from(client < count % CLIENTS));
        tasks.spawn(async move {
            let client = WorkflowClient::new(store);
            for _ in 0..share {
                client.start(SLEEP, &until).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(joined) = tasks.join_next().await {
        joined??;
    }
    while driving.stats().activations < u64::from(count) || driving.stats().active > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let bytes = resident().saturating_sub(before) / u64::from(count.max(1));
    let late = until.has_come(store.now().await?);
    anyhow::ensure!(!late, "cannot measure sleepers: the machine did not start {count} within {wait:?}");
    while !until.has_come(store.now().await?) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let woken = Instant::now();
    while driving.stats().ended < u64::from(count) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let wake_ms = woken.elapsed().as_secs_f64() * 1_000.0;
    driving.shutdown().await;
    Ok(Sleepers { count, bytes_each: bytes, wake_ms })
}

/// Returns the resident memory of this process in bytes; 0 where the system does not report it.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
