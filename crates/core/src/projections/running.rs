//! Projections that run: each version as a reaction of its own, and somebody who looks whether one has caught up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::error::ProjectionsError;
use super::names::{self, Pointer};
use super::projection::Projection;
use super::read::ReadModel;
use crate::lease::working;
use crate::payload::Payload;
use crate::reactions::{Reactions, ReactionsError, Running};
use crate::runtime::timer::sleep_until;
use crate::store::{Batch, Expect, SharedStore};
use crate::telemetry::REACTIONS;

/// Projections that are about to run in this process.
#[must_use = "nothing runs before start() is awaited"]
#[derive(Debug)]
pub struct Projections {
    store: SharedStore,
    projections: Vec<Projection>,
    look_again: Duration,
}

impl Projections {
    /// Projections on this store.
    pub fn new(store: SharedStore) -> Self {
        Self { store, projections: Vec::new(), look_again: Duration::from_secs(1) }
    }

    /// Adds a version of a projection. To build a new one while the old one goes on, add both, or let programs of both run at
    /// the same time.
    pub fn with(mut self, projection: Projection) -> Self {
        self.projections.push(projection);
        self
    }

    /// How long something may go unnoticed: 1 second. So often it is looked whether a new version has caught up.
    pub fn look_again(mut self, interval: Duration) -> Self {
        self.look_again = working::interval(interval);
        self
    }

    /// Starts them. The first version that is ever started is the one that is read. Later ones are built from the beginning
    /// of the log, and read as soon as they have caught up; earlier ones than the one that is read do not run any more.
    ///
    /// # Errors
    /// [`ProjectionsError`] when a name cannot be one, or the store fails.
    pub async fn start(self) -> Result<RunningProjections, ProjectionsError> {
        let Self { store, projections, look_again } = self;
        let mut by_name: BTreeMap<String, BTreeMap<u32, Projection>> = BTreeMap::new();
        for projection in projections {
            let (name, version) = (projection.name.clone(), projection.version);
            if by_name.entry(name.clone()).or_default().insert(version, projection).is_some() {
                return Err(ReactionsError::Twice { name: names::kind(&name, version) }.into());
            }
        }
        let (stopping, mut all) = (CancellationToken::new(), Vec::new());
        for (name, versions) in by_name {
            let model = ReadModel::new(Arc::clone(&store), name);
            let first = versions.keys().next().copied().unwrap_or(1);
            let live = live(&model, first).await?;
            let mut running = BTreeMap::new();
            for (version, projection) in versions.into_iter().filter(|(version, _)| *version >= live) {
                let reactions = Reactions::new(Arc::clone(&store)).look_again(look_again);
                running.insert(version, reactions.with(projection.reaction()).start().await?);
            }
            all.push(Arc::new(One { model, running: Mutex::new(running) }));
        }
        let watch = |one: &Arc<One>| tokio::spawn(watch(Arc::clone(one), look_again, stopping.clone()));
        let tasks = all.iter().map(watch).collect();
        Ok(RunningProjections { all, tasks, stopping })
    }
}

/// The version that is read: this one, if there was none before.
async fn live(model: &ReadModel, first: u32) -> Result<u32, ProjectionsError> {
    loop {
        match model.pointer().await {
            Err(ProjectionsError::Unknown { .. }) => {}
            found => return Ok(found?.1.live),
        }
        let pointer = Payload::of(&Pointer { live: first, old: Vec::new() })?;
        model.put(Batch::new().put(&names::pointer(&model.name)?, Expect::Absent, pointer)).await?;
    }
}

/// One projection with the versions that run here.
#[derive(Debug)]
struct One {
    model: ReadModel,
    running: Mutex<BTreeMap<u32, Running>>,
}

impl One {
    /// Lets the newest version be read that has caught up, ends those that are not read any more, and deletes them.
    async fn look(&self) -> Result<(), ProjectionsError> {
        let mut running = self.running.lock().await;
        for version in running.keys().rev() {
            match self.model.swap_to(*version).await {
                Ok(true) => {
                    let (projection, version) = (&self.model.name, *version);
                    tracing::info!(target: REACTIONS, projection, version, "another version is read from now on");
                    break;
                }
                Ok(false) => break,
                Err(ProjectionsError::Behind { .. }) => {}
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
            // Another process has not noticed yet.
            Err(ProjectionsError::Reactions(error)) if matches!(*error, ReactionsError::Running { .. }) => {
                Ok(())
            }
            other => other.map(drop),
        }
    }
}

async fn watch(one: Arc<One>, look_again: Duration, stopping: CancellationToken) {
    loop {
        if let Err(error) = one.look().await {
            let projection = &one.model.name;
            tracing::warn!(target: REACTIONS, projection, %error, "a projection could not be looked after");
        }
        tokio::select! {
            () = stopping.cancelled() => return,
            () = sleep_until(Instant::now() + look_again) => {}
        }
    }
}

/// Projections that run in this process, until they are shut down or this is dropped.
#[must_use = "dropping it stops the projections"]
#[derive(Debug)]
pub struct RunningProjections {
    all: Vec<Arc<One>>,
    tasks: Vec<JoinHandle<()>>,
    stopping: CancellationToken,
}

impl RunningProjections {
    /// Waits until every version that runs here has done all there is, and the newest is read. For tests.
    ///
    /// # Errors
    /// [`ProjectionsError`] when the store cannot be read, or a version cannot catch up because something is blocked.
    ///
    /// # Cancel safety
    /// Cancel-safe: it only looks.
    pub async fn settle(&self) -> Result<(), ProjectionsError> {
        for one in &self.all {
            for running in one.running.lock().await.values() {
                running.settle().await?;
            }
            one.look().await?;
        }
        Ok(())
    }

    /// Stops politely, as [`Running::shutdown`] does.
    ///
    /// # Cancel safety
    /// Dropped, everything stops at once.
    pub async fn shutdown(mut self) {
        self.stopping.cancel();
        for task in &mut self.tasks {
            drop(task.await);
        }
        for one in &self.all {
            for (_, running) in std::mem::take(&mut *one.running.lock().await) {
                running.shutdown().await;
            }
        }
    }
}

impl Drop for RunningProjections {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
