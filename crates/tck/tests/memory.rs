//! The kit on the reference store, which must keep every promise for which it is the oracle.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tidelock_core::clock::{Clock, ManualClock};
use tidelock_core::store::memory::Backup;
use tidelock_core::store::{MemoryStore, Store};
use tidelock_tck::{Backend, Capabilities, Database};

struct Memory;

#[async_trait]
impl Backend for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn fresh(&self, clock: Arc<ManualClock>) -> Box<dyn Database> {
        Box::new(MemoryDatabase { store: MemoryStore::with_clock(clock), copy: Mutex::default() })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn attach(&self, _address: &str, _clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        unreachable!("memory is not shared by processes")
    }
}

/// Handles to one memory store behave like connections to one database.
struct MemoryDatabase {
    store: MemoryStore,
    copy: Mutex<Option<Backup>>,
}

#[async_trait]
impl Database for MemoryDatabase {
    async fn connect(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn restart(&mut self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn backup(&self) -> bool {
        *self.copy.lock().unwrap() = Some(self.store.backup());
        true
    }

    async fn restore(&self) {
        self.store.restore(self.copy.lock().unwrap().as_ref().expect("a copy was made"));
    }

    fn address(&self) -> Option<String> {
        None
    }
}

tidelock_tck::conformance!(Memory);
