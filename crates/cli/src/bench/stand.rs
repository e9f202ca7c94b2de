//! Where an engine is measured: the store that the user named, opened, and gone afterwards.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use tidelock::prelude::*;

use super::machine::Machine;
use super::plan::Place;
use super::postgres::Site;
use super::until_stopped;
use crate::address::Address;
use crate::args::{Backend, BenchEngine};
use crate::exit::WrongUse;

/// An open store, and the server that it is on.
pub(super) struct Stand<'a> {
    pub(super) store: SharedStore,
    site: Option<&'a Site>,
}

impl Stand<'_> {
    /// Lets a server come to rest after rows were made.
    pub(super) async fn settle(&self) -> Result<()> {
        match self.site {
            Some(site) => Ok(site.schemas().settle().await?),
            None => Ok(()),
        }
    }
}

/// What was measured, with the names of the store and of the machine.
pub(super) struct Taken<R> {
    pub(super) store: &'static str,
    pub(super) machine: Machine,
    pub(super) rounds: Vec<R>,
}

/// Opens the store, measures, and leaves nothing behind, not even when it is interrupted.
pub(super) async fn measure<R>(
    options: &BenchEngine,
    work: impl AsyncFnOnce(&Stand<'_>) -> Result<Vec<R>>,
) -> Result<Taken<R>> {
    match options.store {
        Backend::Memory => {
            if options.path.is_some() {
                return Err(WrongUse("the memory store has no file; leave out --path".to_owned()).into());
            }
            let stand = Stand { store: Arc::new(MemoryStore::new()), site: None };
            let rounds = until_stopped(Box::pin(work(&stand))).await?;
            Ok(Taken { store: "memory", machine: Machine::here(Path::new(".")), rounds })
        }
        Backend::Sqlite => {
            let place = Place::choose(options.path.as_deref())?;
            place.warn_about_memory();
            let address = Address::File(place.store().to_owned());
            let rounds = until_stopped(Box::pin(at(&address, None, work))).await?;
            Ok(Taken { store: "sqlite", machine: Machine::here(place.directory()), rounds })
        }
        Backend::Postgres => {
            let mut site = Site::choose(options.url.as_deref(), options.path.as_deref()).await?;
            let schema = site.schema("bench_tidelock");
            let address = Address::Schema { url: site.url().clone(), schema };
            site.announce();
            let rounds = until_stopped(Box::pin(at(&address, Some(&site), work))).await;
            let machine = site.machine();
            site.leave().await;
            Ok(Taken { store: "postgres", machine, rounds: rounds? })
        }
    }
}

async fn at<R>(
    address: &Address,
    site: Option<&Site>,
    work: impl AsyncFnOnce(&Stand<'_>) -> Result<Vec<R>>,
) -> Result<Vec<R>> {
    let store = address.open().await?;
    let rounds = work(&Stand { store: store.shared(), site }).await;
    store.close().await;
    rounds
}
