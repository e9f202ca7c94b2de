//! Helpers for archive cases: an aggregate, and an archive that detects a changed page.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tidelock_core::archive::{ArchivePage, ArchiveRequest, Archiver};
use tidelock_core::events::{Aggregate, Events};

use crate::prelude::*;

/// A sum and the bookings that led to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ledger {
    pub(crate) sum: i64,
    pub(crate) bookings: Vec<i64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum LedgerEvent {
    Booked { n: i64 },
}
pub(crate) use LedgerEvent::Booked;

impl Aggregate for Ledger {
    const KIND: &'static str = "ledger";
    type Event = LedgerEvent;

    fn apply(&mut self, event: &LedgerEvent) {
        let Booked { n } = event;
        self.sum += n;
        self.bookings.push(*n);
    }
}

pub(crate) fn engine(store: &SharedStore) -> Events {
    Events::new(Arc::clone(store)).snapshots::<Ledger>(u64::MAX)
}

pub(crate) fn here(env: &Env) -> Events {
    engine(&env.store.0)
}

pub(crate) fn there(env: &Env) -> Events {
    engine(&env.other.0)
}

pub(crate) fn stream(id: &str) -> Key {
    Ledger::stream(id).unwrap()
}

/// Books the numbers from 1 to `count`, each in a separate append.
pub(crate) async fn book(events: &Events, id: &str, count: i64) {
    for n in 1..=count {
        events.append::<Ledger>(id, [Booked { n }]).await.unwrap();
    }
}

pub(crate) fn versions(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.version.0).collect()
}

/// An archive that accepts a page again only if it is unchanged.
#[derive(Clone, Default)]
pub(crate) struct Shelf {
    pages: Arc<Mutex<BTreeMap<String, ArchivePage>>>,
    calls: Arc<AtomicUsize>,
}

impl Shelf {
    pub(crate) fn keep(&self, page: ArchivePage) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let mut pages = self.pages.lock().unwrap();
        let before = pages.insert(page.name(), page.clone());
        assert!(before.is_none_or(|before| before == page), "a page that comes again is the same");
    }

    /// Returns the archived versions in order. Each event must be on exactly one page.
    pub(crate) fn versions(&self) -> Vec<u64> {
        let pages = self.pages.lock().unwrap();
        let mut all: Vec<u64> = pages.values().flat_map(|page| versions(&page.events)).collect();
        all.sort_unstable();
        all
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// Archives a stream to a shelf, in pages of two events.
pub(crate) fn closing(events: &Events, stream: &Key, shelf: &Shelf) -> ArchiveRequest {
    let shelf = shelf.clone();
    let archive = move |page: ArchivePage| {
        let shelf = shelf.clone();
        async move {
            shelf.keep(page);
            Ok::<(), std::io::Error>(())
        }
    };
    Archiver::new(events.clone()).close(stream).archive(archive).page(2)
}
