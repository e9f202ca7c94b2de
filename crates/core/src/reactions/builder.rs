//! The builder of a worker for reactions.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::definition::Definition;
use super::engine::ReactionEngine;
use super::error::ReactionsError;
use super::quiesce::{self, Quiescence};
use super::reaction::Reaction;
use super::router::Router;
use crate::process;
use crate::runtime::timer::sleep_until;
use crate::store::SharedStore;
use crate::worker::{Worker, WorkerHandle, WorkerOptions, idle, worker_setters};

/// A builder for a worker that runs reactions.
#[must_use = "nothing runs before start() is awaited"]
#[derive(Debug)]
pub struct Reactions {
    store: SharedStore,
    reactions: Vec<Reaction>,
    options: Options,
}

/// The options of a worker for reactions.
#[derive(Debug)]
struct Options {
    worker: WorkerOptions,
    prefetch: usize,
}

impl Reactions {
    /// Creates a builder without reactions.
    pub fn new(store: SharedStore) -> Self {
        Self::with_options(store, WorkerOptions::default())
    }

    pub(crate) fn with_options(store: SharedStore, worker: WorkerOptions) -> Self {
        let options = Options { worker, prefetch: 16 };
        Self { store, reactions: Vec::new(), options }
    }

    /// Adds a reaction.
    pub fn with(mut self, reaction: Reaction) -> Self {
        self.reactions.push(reaction);
        self
    }

    worker_setters!();

    /// Sets the most rows that one poll claims. The default is 16.
    pub fn prefetch(mut self, rows: usize) -> Self {
        self.options.prefetch = rows.max(1);
        self
    }

    /// Starts the worker. When this returns, the store knows every reaction, and later events are handled even if this
    /// process dies.
    ///
    /// Of two definitions of one reaction, the one registered later counts for all processes. A process with an older
    /// definition starts and runs its other reactions. It reports this in
    /// [`ReactionStats::standing`](super::ReactionStats::standing) and with a warning in the log.
    ///
    /// # Errors
    /// Returns a [`ReactionsError`] when two reactions have the same name, or one of them is incomplete or invalid. It also
    /// fails when a reaction has stored its position in another way before, when no Tokio runtime runs, or when the store
    /// fails. Nothing runs then; start again.
    pub async fn start(self) -> Result<WorkerHandle<ReactionEngine>, ReactionsError> {
        let Self { store, reactions, options } = self;
        let mut definitions = BTreeMap::new();
        for reaction in reactions {
            let definition = Definition::check(reaction, options.worker.lease_ttl)?;
            let name = definition.name.to_string();
            if definitions.insert(name.clone(), Arc::new(definition)).is_some() {
                return Err(ReactionsError::Twice { name });
            }
        }
        tokio::runtime::Handle::try_current().map_err(|_| ReactionsError::NoRuntime)?;
        for definition in definitions.values() {
            definition.register(&store).await?;
        }
        let worker = Worker::new(store, options.worker)?;
        let mut handle = WorkerHandle::start(ReactionEngine::new(worker, definitions, options.prefetch));
        for definition in handle.engine.definitions.values().cloned().collect::<Vec<_>>() {
            handle.add("router", move |engine| {
                let definition = Arc::clone(&definition);
                async move { Router::new(Arc::clone(&engine.worker), definition).run().await }
            });
        }
        Ok(handle)
    }
}

impl WorkerHandle<ReactionEngine> {
    /// Waits until nothing is pending for these reactions, in any process: every event is routed, and no row is due, leased
    /// or backing off. Blocked rows and parked events wait for an operator; the result counts them.
    ///
    /// # Errors
    /// Returns [`ReactionsError::Store`] when the store cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn quiesce(&self) -> Result<Quiescence, ReactionsError> {
        let worker = self.worker();
        let definitions: Vec<_> = self.engine.definitions.values().cloned().collect();
        let mut hints = worker.store.watch();
        loop {
            let polled = process::now();
            if let Some(settled) = quiesce::remaining(&worker.store, &definitions).await? {
                return Ok(settled);
            }
            tokio::select! {
                biased;
                () = idle::hinted(&mut hints, polled + idle::MIN_POLL_DELAY) => {}
                () = sleep_until(polled + worker.options.poll_interval) => {}
            }
        }
    }
}
