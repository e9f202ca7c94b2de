//! One process of `store --processes`: opens the shared store, waits for the start, commits, reports.

use std::process::ExitCode;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use tidelock_console::address::{Address, Opened};
use tidelock_console::bench::commit::{Errors, Producers};
use tidelock_console::output;
use tidelock_console::parent_death::ParentPipe;

use crate::args::ProducerArgs;

/// The line that a process prints after it has opened the store.
pub(crate) const READY: &str = "ready";

/// Commits after the start signal, and exits when the parent dies.
pub(crate) async fn produce(options: &ProducerArgs) -> Result<ExitCode> {
    let mut parent = ParentPipe::listen();
    let store = Address::handed_over(&options.store)?.open().await?;
    output::say(READY)?;
    if parent.line().await.is_none() {
        bail!("cannot measure: the parent process is dead");
    }
    tokio::select! {
        result = measured(options, &store) => output::say(serde_json::to_string(&result?)?)?,
        () = parent.closed() => bail!("cannot measure: the parent process is dead"),
    }
    store.close().await;
    Ok(ExitCode::SUCCESS)
}

async fn measured(options: &ProducerArgs, store: &Opened) -> Result<ProcessResult> {
    let kind = format!("process-{}", options.process);
    let mut producers = Producers::new(&kind, options.producers, options.producers.max(1_000))?;
    let mut slice = producers.slice(&store.shared(), options.seconds).await?;
    let numbers = slice.numbers();
    Ok(ProcessResult {
        process: options.process,
        commits: u64::try_from(slice.latencies.count())?,
        per_s: numbers.per_s,
        p50_us: numbers.p50_us,
        p99_us: numbers.p99_us,
        groups: store.written().groups,
        errors: slice.errors,
    })
}

/// The result that a process reports to its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessResult {
    /// The number of the process.
    pub(crate) process: u32,
    /// Acknowledged commits.
    pub(crate) commits: u64,
    /// Commits per second.
    pub(crate) per_s: f64,
    /// The median latency.
    pub(crate) p50_us: f64,
    /// The 99th percentile.
    pub(crate) p99_us: f64,
    /// Flushed transactions.
    pub(crate) groups: u64,
    /// The number of errors by code.
    pub(crate) errors: Errors,
}
