//! `tidelock bench`: numbers beside the yardsticks of the same machine, measured in the same minute.
//!
//! A rate by itself says more about the disk than about the store. So every phase runs in short slices, in rounds,
//! beside what the device and the bare driver can do, each on a settled machine; each ratio is the median of the
//! rounds' ratios.

mod claim;
mod commit;
mod events;
mod floor;
mod flush;
mod lock;
mod machine;
mod measure;
mod memory;
mod plan;
mod postgres;
mod processes;
mod producer;
mod report;
mod sqlite;
mod stand;
mod state;
mod workflow;

use anyhow::{Result, bail};

use crate::args::{Backend, BenchEngine, BenchLock, BenchStore};
use crate::exit::{Exit, WrongUse};

pub(crate) use lock::hold;
pub(crate) use producer::produce;

/// Measures a store. Interrupted, it still removes its files and schemas.
pub(crate) async fn run(options: BenchStore) -> Result<Exit> {
    match (options.store, options.processes) {
        // A server is tidied up by statements, so these two look out for interruptions themselves.
        (Backend::Postgres, 1) => Box::pin(postgres::run(&options)).await,
        (Backend::Postgres, _) => Box::pin(processes::run_on_server(&options)).await,
        (Backend::Memory, 1) => until_stopped(memory::run(&options)).await,
        (Backend::Memory, _) => {
            Err(WrongUse("the memory store lives in one process; use --store sqlite".to_owned()).into())
        }
        (Backend::Sqlite, 1) => until_stopped(Box::pin(sqlite::run(&options))).await,
        (Backend::Sqlite, _) => until_stopped(Box::pin(processes::run_on_file(&options))).await,
    }
}

/// Measures locks.
pub(crate) async fn lock(options: BenchLock) -> Result<Exit> {
    until_stopped(Box::pin(lock::run(&options))).await
}

/// Measures state that many writers change. Interrupted, it still removes its files and schemas.
pub(crate) async fn state(options: BenchEngine) -> Result<Exit> {
    Box::pin(state::run(&options)).await
}

/// Measures aggregates and reactions. Interrupted, it still removes its files and schemas.
pub(crate) async fn events(options: BenchEngine) -> Result<Exit> {
    Box::pin(events::run(&options)).await
}

/// Measures runs. Interrupted, it still removes its files and schemas.
pub(crate) async fn workflow(options: BenchEngine) -> Result<Exit> {
    Box::pin(workflow::run(&options)).await
}

/// Does some work unless the user interrupts it. Interrupted, the work's future is dropped.
async fn until_stopped<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        done = work => done,
        asked_to_stop = tokio::signal::ctrl_c() => {
            asked_to_stop?;
            bail!("stopped before the end; nothing was measured")
        }
    }
}
