//! The kit on the reference store: it must keep every promise that it is the oracle for.

use std::sync::Arc;

use async_trait::async_trait;
use tidelock_core::clock::{Clock, ManualClock};
use tidelock_core::store::{MemoryStore, Store};
use tidelock_tck::{Backend, Capabilities, Database};

struct Memory;

#[async_trait]
impl Backend for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn fresh(&self, clock: Arc<ManualClock>) -> Box<dyn Database> {
        Box::new(MemoryDatabase(MemoryStore::with_clock(clock)))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn attach(&self, _address: &str, _clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        unreachable!("memory is not shared by processes")
    }
}

/// Handles to one memory store behave like connections to one database.
struct MemoryDatabase(MemoryStore);

#[async_trait]
impl Database for MemoryDatabase {
    async fn connect(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    async fn restart(&mut self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    fn address(&self) -> Option<String> {
        None
    }
}

tidelock_tck::conformance!(Memory);
