//! The engine of projections: runs each version as a reaction, and swaps to a new version once it has caught up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::error::ProjectionsError;
use super::keys::{self, Pointer};
use super::projection::Projection;
use super::read::ReadModel;
use crate::clock::Timestamp;
use crate::payload::Payload;
use crate::reactions::{Quiescence, ReactionEngine, Reactions, ReactionsError};
use crate::store::{Batch, Expect, Grant, SharedStore};
use crate::telemetry::REACTIONS;
use crate::worker::{Engine, LeasedWork, Metered, Worker, WorkerHandle, WorkerOptions, worker_setters};

/// A builder for a worker that runs projections.
#[must_use = "nothing runs before start() is awaited"]
#[derive(Debug)]
pub struct Projections {
    store: SharedStore,
    projections: Vec<Projection>,
    options: Options,
}

/// The options of a worker for projections, and of the reactions that it starts.
#[derive(Debug, Default)]
struct Options {
    worker: WorkerOptions,
}

impl Projections {
    /// Creates a builder without projections.
    pub fn new(store: SharedStore) -> Self {
        Self { store, projections: Vec::new(), options: Options::default() }
    }

    /// Adds a version of a projection. To build a new version while the old one runs, add both, or run programs of both at
    /// the same time.
    pub fn with(mut self, projection: Projection) -> Self {
        self.projections.push(projection);
        self
    }

    worker_setters!();

    /// Starts the projections. Readers first read the first version that was ever started. Later versions are built from
    /// the beginning of the log, and become live when they have caught up. Versions before the live one do not run.
    ///
    /// # Errors
    /// Returns a [`ProjectionsError`] when a name is invalid, or the store fails.
    pub async fn start(self) -> Result<WorkerHandle<ProjectionEngine>, ProjectionsError> {
        let Self { store, projections, options: Options { worker } } = self;
        tokio::runtime::Handle::try_current().map_err(|_| ReactionsError::NoRuntime)?;
        let mut by_name: BTreeMap<String, BTreeMap<u32, Projection>> = BTreeMap::new();
        for projection in projections {
            projection.reaction().check_names()?;
            let (name, version) = (projection.name.clone(), projection.version);
            if by_name.entry(name.clone()).or_default().insert(version, projection).is_some() {
                return Err(ReactionsError::Twice { name: keys::kind(&name, version) }.into());
            }
        }
        let mut all = Vec::new();
        for (name, versions) in by_name {
            let model = ReadModel::new(Arc::clone(&store), name);
            let first = versions.keys().next().copied().unwrap_or(1);
            let live = live(&model, first).await?;
            let mut running = BTreeMap::new();
            for (version, projection) in versions.into_iter().filter(|(version, _)| *version >= live) {
                let reactions = Reactions::with_options(Arc::clone(&store), worker.clone());
                running.insert(version, reactions.with(projection.reaction()).start().await?);
            }
            all.push(One { model, running: Mutex::new(running) });
        }
        let worker = Worker::new(store, worker).map_err(ReactionsError::from)?;
        Ok(WorkerHandle::start(ProjectionEngine { worker, all }))
    }
}

/// Returns the live version, and makes `first` live if there was none.
async fn live(model: &ReadModel, first: u32) -> Result<u32, ProjectionsError> {
    loop {
        match model.pointer().await {
            Err(ProjectionsError::Unknown { .. }) => {}
            found => return Ok(found?.1.live),
        }
        let pointer = Payload::of(&Pointer { live: first, cleared: first })?;
        model.put(Batch::new().put(&keys::pointer(&model.name)?, Expect::Absent, pointer)).await?;
    }
}

/// One projection with the versions that run in this process.
#[derive(Debug)]
struct One {
    model: ReadModel,
    running: Mutex<BTreeMap<u32, WorkerHandle<ReactionEngine>>>,
}

impl One {
    /// Swaps to the newest version that has caught up, and stops and deletes the older ones.
    async fn cut_over_if_ready(&self) -> Result<(), ProjectionsError> {
        let mut running = self.running.lock().await;
        for version in running.keys().rev() {
            match self.model.swap_to(*version).await {
                Ok(true) => {
                    let (projection, version) = (&self.model.name, *version);
                    tracing::info!(target: REACTIONS, projection, version, "projection version swapped");
                    break;
                }
                Ok(false) => break,
                Err(ProjectionsError::Behind { .. }) => {}
                // The version was deleted before it became live.
                Err(ProjectionsError::Reactions(error))
                    if matches!(*error, ReactionsError::Unknown { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let live = self.model.version().await?;
        let newer = running.split_off(&live);
        for (_, old) in std::mem::replace(&mut *running, newer) {
            old.shutdown().await;
        }
        drop(running);
        match self.model.delete_old().await {
            // Another process has not noticed the swap yet.
            Err(ProjectionsError::Reactions(error)) if matches!(*error, ReactionsError::Running { .. }) => {
                Ok(())
            }
            other => other.map(drop),
        }
    }
}

/// The engine of [`Projections`]. It claims no work, because reactions handle the events.
#[derive(Debug)]
pub struct ProjectionEngine {
    worker: Arc<Worker>,
    all: Vec<One>,
}

impl Metered for ProjectionEngine {
    type Stats = ();

    fn stats(&self) {}
}

impl Engine for ProjectionEngine {
    const NAME: &'static str = "projections";

    fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    async fn execute(self: Arc<Self>, _grant: Grant, work: LeasedWork) {
        work.release().await;
    }

    async fn tick(&self, _: Option<Timestamp>) {
        for one in &self.all {
            if let Err(error) = one.cut_over_if_ready().await {
                let projection = &one.model.name;
                tracing::warn!(target: REACTIONS, projection, %error, "projection swap failed");
            }
        }
    }

    async fn stopped(&self) {
        for one in &self.all {
            for (_, running) in std::mem::take(&mut *one.running.lock().await) {
                running.shutdown().await;
            }
        }
    }

    async fn aborted(&self) {
        for one in &self.all {
            for (_, running) in std::mem::take(&mut *one.running.lock().await) {
                running.abort().await;
            }
        }
    }

    fn max_hint_delay(&self) -> Duration {
        self.worker.options.poll_interval
    }
}

impl WorkerHandle<ProjectionEngine> {
    /// Waits until every version has handled all events, and the newest is live. For tests.
    ///
    /// # Errors
    /// Returns [`ProjectionsError::Behind`] when the newest version cannot become live because some of its work is blocked
    /// or parked. Returns another [`ProjectionsError`] when the store fails.
    ///
    /// # Cancel safety
    /// Cancel safe: the worker completes a swap or a deletion that was interrupted.
    pub async fn quiesce(&self) -> Result<(), ProjectionsError> {
        for one in &self.engine.all {
            loop {
                let mut newest = None;
                for (version, running) in &*one.running.lock().await {
                    newest = Some((*version, running.quiesce().await?));
                }
                one.cut_over_if_ready().await?;
                let Some((version, settled)) = newest else { break };
                match one.model.swap_to(version).await {
                    Ok(_) => break,
                    // An operator is needed, because blocked or parked work does not catch up.
                    Err(error @ ProjectionsError::Behind { .. }) if settled != Quiescence::default() => {
                        return Err(error);
                    }
                    // An event has arrived since.
                    Err(ProjectionsError::Behind { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}
