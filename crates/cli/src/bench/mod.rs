//! `tidelock bench`: numbers beside the yardsticks of the same machine, measured in the same minute.
//!
//! A rate by itself says more about the disk than about the store. So every phase runs in short slices, in rounds,
//! beside what the device and the bare driver can do, each on a settled machine; each ratio is the median of the
//! rounds' ratios.

mod claim;
mod commit;
mod floor;
mod flush;
mod machine;
mod measure;
mod memory;
mod plan;
mod processes;
mod producer;
mod progress;
mod report;
mod sqlite;

use anyhow::{Result, bail};

use crate::args::{Backend, BenchStore};
use crate::exit::{Exit, WrongUse};

pub(crate) use producer::produce;

/// Measures a store. Interrupted, it still removes its files.
pub(crate) async fn run(options: BenchStore) -> Result<Exit> {
    tokio::select! {
        measured = Box::pin(measure(&options)) => measured,
        asked_to_stop = tokio::signal::ctrl_c() => {
            asked_to_stop?;
            bail!("stopped before the end; nothing was measured")
        }
    }
}

async fn measure(options: &BenchStore) -> Result<Exit> {
    match (options.store, options.processes) {
        (Backend::Memory, 1) => memory::run(options).await,
        (Backend::Memory, _) => {
            Err(WrongUse("the memory store lives in one process; use --store sqlite".to_owned()).into())
        }
        (Backend::Sqlite, 1) => Box::pin(sqlite::run(options)).await,
        (Backend::Sqlite, _) => Box::pin(processes::run(options)).await,
    }
}
