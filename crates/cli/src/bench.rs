//! `tidelock bench`: commits and claims on the operator's disk or server, beside the bare driver.
//!
//! It answers two questions: is the disk or server fast enough, and is Tidelock the bottleneck? The named store is never
//! written. SQLite is measured in a temporary directory beside the file, PostgreSQL in temporary schemas of the database.

mod baseline;
mod load;
mod round;
mod target;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock_console::bench::directory::WorkDirectory;
use tidelock_console::bench::machine::Machine;
use tidelock_console::bench::report::Report;
use tidelock_console::bench::server::MeasuredServer;
use tidelock_console::bench::until_interrupted;

use self::baseline::Baselines;
use self::load::Load;
use self::round::Comparison;
use self::target::Target;
use crate::address::Address;
use crate::args::Bench;
use crate::exit::Exit;
use crate::server_url::ServerUrl;

/// The number of rounds, so that a noisy moment affects all phases or is outvoted by the median.
const ROUNDS: u32 = 5;
/// Concurrent callers; the names of the ratios contain this number.
const CALLERS: u32 = 64;
/// Concurrent workers that claim.
const WORKERS: usize = 16;
/// The number of streams, distributed over the callers.
const STREAMS: u32 = 1_000;
/// Rows of work in the queue.
const ROWS: u32 = 1_000;

/// The parameters of a run.
#[derive(Clone, Debug, Serialize)]
struct Plan {
    /// Seconds of each phase, over all rounds.
    seconds: f64,
    /// The number of rounds.
    rounds: u32,
    /// Concurrent callers.
    producers: u32,
    /// Concurrent workers that claim.
    workers: usize,
    /// The number of streams.
    streams: u32,
    /// Rows of work in the queue.
    rows: u32,
    /// The ratios of the backend.
    #[serde(skip)]
    comparisons: &'static [Comparison],
}

impl Plan {
    fn of(options: &Bench, comparisons: &'static [Comparison]) -> Self {
        Self {
            seconds: options.seconds.as_secs_f64(),
            rounds: ROUNDS,
            producers: CALLERS,
            workers: WORKERS,
            streams: STREAMS,
            rows: ROWS,
            comparisons,
        }
    }

    /// The time of one phase in one round.
    fn slice(&self) -> Duration {
        Duration::from_secs_f64(self.seconds / f64::from(self.rounds.max(1)))
    }
}

/// Measures and prints. An interrupted run removes its files and schemas as well.
pub(crate) async fn run(options: &Bench) -> Result<Exit> {
    match Target::parse(options.store.as_deref())? {
        Target::Memory => on_memory(options).await,
        Target::Directory(parent) => on_disk(options, &parent).await,
        Target::Server(url) => on_server(options, url).await,
    }
}

async fn on_memory(options: &Bench) -> Result<Exit> {
    let plan = Plan::of(options, round::MEMORY);
    let store: SharedStore = Arc::new(MemoryStore::new());
    let load = Load::new(&plan, store, None, Baselines::Memory);
    let rounds = until_interrupted(load.run(&plan)).await?;
    Report::of("memory", &plan, Machine::here(Path::new(".")), rounds).print(options.output)?;
    Ok(Exit::Well)
}

async fn on_disk(options: &Bench, parent: &Path) -> Result<Exit> {
    let plan = Plan::of(options, round::SQLITE);
    let directory = WorkDirectory::below(parent)?;
    directory.warn_if_in_memory("pass a path on a disk with --store");
    let measure = async {
        let opened = Address::File(directory.file("store.db")).open().await?;
        let baselines = Baselines::on_disk(&plan, &directory).await?;
        let rounds = Load::new(&plan, opened.shared(), Some(opened.clone()), baselines).run(&plan).await;
        opened.close().await;
        rounds
    };
    let rounds = until_interrupted(Box::pin(measure)).await?;
    Report::of("sqlite", &plan, Machine::here(directory.path()), rounds).print(options.output)?;
    Ok(Exit::Well)
}

async fn on_server(options: &Bench, url: ServerUrl) -> Result<Exit> {
    let plan = Plan::of(options, round::POSTGRES);
    let mut server = MeasuredServer::connect(url, false).await?;
    let (schema, handwritten) = (server.schema("bench_tidelock"), server.schema("bench_plain"));
    server.announce();
    let measure = async {
        let opened = Address::Schema { url: server.url().clone(), schema }.open().await?;
        let baselines = Baselines::on_server(&plan, &server, &handwritten).await?;
        server.schemas().run_maintenance().await?;
        let rounds = Load::new(&plan, opened.shared(), Some(opened.clone()), baselines).run(&plan).await;
        opened.close().await;
        rounds
    };
    let rounds = until_interrupted(Box::pin(measure)).await;
    let machine = Machine::with_server(server.settings().clone(), None);
    server.drop_schemas().await;
    Report::of("postgres", &plan, machine, rounds?).print(options.output)?;
    Ok(Exit::Well)
}
