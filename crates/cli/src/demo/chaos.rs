//! What is done to the workers, and what the others make of it, as it happens: a stream and a document for those who look meanwhile.
//!
//! The proof does not read them: they are there to be seen.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tidelock::prelude::*;

/// The event of an order that another worker went on with, in the commit that ships it.
pub(crate) const TAKEN_OVER: &str = "OrderTakenOver";

/// The stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chaos;

/// What happens to workers.
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
    /// It ended by itself, which none should.
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

/// Where the parent notes what it does.
#[derive(Clone, Debug)]
pub(crate) struct Notes {
    events: Events,
    run: String,
}

impl Notes {
    /// Those of a demo.
    pub(crate) fn of(store: &SharedStore, run: &str) -> Self {
        Self { events: Events::new(store.clone()), run: run.to_owned() }
    }

    /// Notes one thing.
    pub(crate) async fn note(&self, event: ChaosEvent) -> Result<()> {
        self.events.append::<Chaos>(self.run.as_str(), [event]).await?;
        Ok(())
    }
}

/// The numbers so far.
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
    /// Puts them where everybody sees them.
    pub(crate) async fn show(self, store: &dyn Store, run: &str) -> Result<()> {
        let key = Key::new("demo", [run])?;
        store.apply(Batch::new().put(&key, Expect::Any, Payload::of(&self)?)).await?;
        Ok(())
    }
}
