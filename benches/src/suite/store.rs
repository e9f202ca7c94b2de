//! The `store` suite: commits and claims beside the device and the bare driver.

mod memory;
mod plan;
mod postgres;
mod processes;
mod producer;
mod sqlite;

use std::process::ExitCode;

use anyhow::Result;
use tidelock_console::bench::until_interrupted;
use tidelock_console::usage::UsageError;

use crate::args::{Backend, StoreArgs};

pub(crate) use producer::produce;

/// Measures a store. An interrupted run removes its files and schemas as well.
pub(crate) async fn run(options: &StoreArgs) -> Result<ExitCode> {
    match (options.store, options.processes) {
        // Statements clean up a server, so these two handle interruptions themselves.
        (Backend::Postgres, 1) => Box::pin(postgres::run(options)).await,
        (Backend::Postgres, _) => Box::pin(processes::run_on_server(options)).await,
        (Backend::Memory, 1) => until_interrupted(memory::run(options)).await,
        (Backend::Memory, _) => {
            let reason = "cannot share the memory store between processes; use --store sqlite";
            Err(UsageError(reason.to_owned()).into())
        }
        (Backend::Sqlite, 1) => until_interrupted(Box::pin(sqlite::run(options))).await,
        (Backend::Sqlite, _) => until_interrupted(Box::pin(processes::run_on_file(options))).await,
    }
}
