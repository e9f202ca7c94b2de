//! Chaos events of the demo: the faults injected into workers and the resulting takeovers, as a stream and a document for live
//! observers.
//!
//! The proof does not read them. They are for display only.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tidelock::prelude::*;

/// The event of an order that another worker has taken over, in the commit that ships it.
pub(crate) const TAKEN_OVER: &str = "OrderTakenOver";

/// The aggregate of the stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chaos;

/// An event of a worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(clippy::enum_variant_names, reason = "a variant is the name of its event")]
pub(crate) enum ChaosEvent {
    WorkerStarted {
        worker: String,
    },
    WorkerKilled {
        worker: String,
    },
    WorkerStopped {
        worker: String,
        for_ms: u64,
    },
    WorkerWentOn {
        worker: String,
    },
    /// It exited unexpectedly.
    WorkerFell {
        worker: String,
        how: String,
    },
}

impl Aggregate for Chaos {
    const KIND: &'static str = "chaos";
    type Event = ChaosEvent;

    fn apply(&mut self, _event: &ChaosEvent) {}
}

/// A recorder of the parent's actions.
#[derive(Clone, Debug)]
pub(crate) struct Notes {
    events: Events,
    run: String,
}

impl Notes {
    /// Creates the recorder of a demo.
    pub(crate) fn of(store: &SharedStore, run: &str) -> Self {
        Self { events: Events::new(store.clone()), run: run.to_owned() }
    }

    /// Records one event.
    pub(crate) async fn note(&self, event: ChaosEvent) -> Result<()> {
        self.events.append::<Chaos>(self.run.as_str(), [event]).await?;
        Ok(())
    }
}

/// The progress so far.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Numbers {
    pub(crate) ordered: u64,
    pub(crate) shipped: u64,
    pub(crate) under_way: u64,
    pub(crate) kills: u64,
    pub(crate) standstills: u64,
    pub(crate) fallen: u64,
    pub(crate) replayed: u64,
    pub(crate) fenced: u64,
}

impl Numbers {
    /// Stores the numbers in a document for live observers.
    pub(crate) async fn show(self, store: &dyn Store, run: &str) -> Result<()> {
        let key = Key::new("demo", [run])?;
        store.apply(Batch::new().put(&key, Expect::Any, Payload::of(&self)?)).await?;
        Ok(())
    }
}
