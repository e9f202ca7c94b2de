//! The fixture of an engine's suite: an open store that is removed afterwards.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use tidelock::prelude::*;
use tidelock_console::address::Address;
use tidelock_console::bench::machine::Machine;
use tidelock_console::bench::until_interrupted;
use tidelock_console::usage::UsageError;

use super::server::BenchServer;
use super::work_files::WorkFiles;
use crate::args::{Backend, EngineArgs};

/// An open store and its server.
pub(crate) struct Fixture<'a> {
    pub(crate) store: SharedStore,
    server: Option<&'a BenchServer>,
}

impl Fixture<'_> {
    /// Runs the server's maintenance after rows were created.
    pub(crate) async fn run_maintenance(&self) -> Result<()> {
        match self.server {
            Some(server) => Ok(server.schemas().run_maintenance().await?),
            None => Ok(()),
        }
    }
}

/// The rounds, with the backend's name and the machine.
pub(crate) struct Measurement<R> {
    pub(crate) store: &'static str,
    pub(crate) machine: Machine,
    pub(crate) rounds: Vec<R>,
}

/// Opens the store, measures, and removes everything, also after an interruption.
pub(crate) async fn measure<R>(
    options: &EngineArgs,
    work: impl AsyncFnOnce(&Fixture<'_>) -> Result<Vec<R>>,
) -> Result<Measurement<R>> {
    match options.store {
        Backend::Memory => {
            if options.path.is_some() {
                return Err(UsageError(
                    "cannot place the memory store in a file; leave out --path".to_owned(),
                )
                .into());
            }
            let fixture = Fixture { store: Arc::new(MemoryStore::new()), server: None };
            let rounds = until_interrupted(Box::pin(work(&fixture))).await?;
            Ok(Measurement { store: "memory", machine: Machine::here(Path::new(".")), rounds })
        }
        Backend::Sqlite => {
            let files = WorkFiles::create(options.path.as_deref())?;
            let address = Address::File(files.store().to_owned());
            let rounds = until_interrupted(Box::pin(at(&address, None, work))).await?;
            Ok(Measurement { store: "sqlite", machine: Machine::here(files.directory().path()), rounds })
        }
        Backend::Postgres => {
            let mut server = BenchServer::open(options.url.as_deref(), options.path.as_deref()).await?;
            let schema = server.schema("bench_tidelock");
            let address = Address::Schema { url: server.url().clone(), schema };
            server.announce();
            let rounds = until_interrupted(Box::pin(at(&address, Some(&server), work))).await;
            let machine = server.machine();
            server.close().await;
            Ok(Measurement { store: "postgres", machine, rounds: rounds? })
        }
    }
}

async fn at<R>(
    address: &Address,
    server: Option<&BenchServer>,
    work: impl AsyncFnOnce(&Fixture<'_>) -> Result<Vec<R>>,
) -> Result<Vec<R>> {
    let store = address.open().await?;
    let rounds = work(&Fixture { store: store.shared(), server }).await;
    store.close().await;
    rounds
}
