//! One process of `bench store --processes`: opens the shared store, waits for the start, commits, reports.

use anyhow::{Result, bail};

use super::commit::{Crew, ProcessResult};
use crate::address::{Address, Opened};
use crate::args::BenchProducer;
use crate::exit::Exit;
use crate::lifeline::Lifeline;
use crate::output;

/// The word by which a process says that it has opened the store.
pub(crate) const READY: &str = "ready";

/// Commits when told to, and ends at once when the parent is gone.
pub(crate) async fn produce(options: BenchProducer) -> Result<Exit> {
    let mut parent = Lifeline::listen();
    let store = Address::handed_over(&options.store)?.open().await?;
    output::say(READY)?;
    if parent.line().await.is_none() {
        bail!("the process that started this one is gone");
    }
    tokio::select! {
        result = measured(&options, &store) => output::say(serde_json::to_string(&result?)?)?,
        () = parent.cut() => bail!("the process that started this one is gone"),
    }
    store.close().await;
    Ok(Exit::Well)
}

async fn measured(options: &BenchProducer, store: &Opened) -> Result<ProcessResult> {
    let kind = format!("process-{}", options.process);
    let mut crew = Crew::new(&kind, options.producers, options.producers.max(1_000))?;
    let mut slice = crew.slice(&store.shared(), options.seconds).await?;
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
