//! Scheduler: a worker that runs tasks at their times.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::definition::Schedule;
use super::engine::{Counters, Reconciled, ScheduleEngine};
use super::error::ScheduleError;
use super::{keys, registration};
use crate::process;
use crate::runtime::timer::sleep_until;
use crate::store::{SharedStore, WorkFilter};
use crate::worker::{Worker, WorkerHandle, WorkerOptions, idle, is_idle, worker_setters};

/// A builder for a worker that runs tasks at their times.
#[must_use = "nothing runs before start() is awaited"]
#[derive(Debug)]
pub struct Scheduler {
    store: SharedStore,
    tasks: Vec<Schedule>,
    options: Options,
}

/// The options of a scheduler.
#[derive(Debug)]
struct Options {
    name: String,
    worker: WorkerOptions,
}

impl Scheduler {
    /// Creates a scheduler on this store.
    pub fn new(store: SharedStore) -> Self {
        let options = Options { name: keys::DEFAULT_SCHEDULER.to_owned(), worker: WorkerOptions::default() };
        Self { store, tasks: Vec::new(), options }
    }

    /// Adds a task.
    pub fn with(mut self, task: Schedule) -> Self {
        self.tasks.push(task);
        self
    }

    /// Sets the name of the scheduler; `default` by default. Programs with different tasks on one store need different names.
    /// When a scheduler starts, it archives the tasks of its name that it does not register.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = name.into();
        self
    }

    worker_setters!();

    /// Registers the tasks, archives those that are gone, and starts the worker.
    ///
    /// # Errors
    /// [`ScheduleError`] when the times of a task are invalid, a part is missing, a name occurs twice, there is no runtime, or
    /// the store fails. In all cases but a failure of the store, nothing is registered.
    pub async fn start(self) -> Result<WorkerHandle<ScheduleEngine>, ScheduleError> {
        let Self { store, tasks, options } = self;
        tokio::runtime::Handle::try_current().map_err(|_| ScheduleError::NoRuntime)?;
        keys::check("the name of a scheduler", &options.name)?;
        let queue = keys::queue(&options.name)?;
        let now = store.now().await?;
        let mut known = BTreeMap::new();
        for task in tasks {
            task.check(&options.name, now)?;
            let name = task.name.clone();
            if known.insert(name.clone(), Arc::new(task)).is_some() {
                return Err(ScheduleError::Twice { task: name });
            }
        }
        registration::all(&store, &options.name, &known).await?;
        let worker = Worker::new(store, options.worker)?;
        let (name, tasks) = (options.name, known);
        let (counters, reconciled) = (Counters::default(), Mutex::new(Reconciled::new()));
        Ok(WorkerHandle::start(ScheduleEngine { worker, name, queue, tasks, counters, reconciled }))
    }
}

/// The counters of a scheduler, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerStats {
    /// Runs that ended and were recorded.
    pub runs: u64,
    /// Recorded runs that failed.
    pub failures: u64,
    /// Runs whose lease was lost, or that were released because the store failed.
    pub lost: u64,
    /// Records that could not be decoded and were quarantined.
    pub quarantined: u64,
}

impl WorkerHandle<ScheduleEngine> {
    /// Waits until no task of this scheduler is due or running, in any process. It is meant for tests that move the clock.
    ///
    /// # Errors
    /// Returns [`ScheduleError::Store`] when the store cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn quiesce(&self) -> Result<(), ScheduleError> {
        let worker = self.worker();
        let mut hints = worker.store.watch();
        loop {
            let polled = process::now();
            if self.is_settled().await? {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = idle::hinted(&mut hints, polled + idle::MIN_POLL_DELAY) => {}
                () = sleep_until(polled + worker.options.poll_interval) => {}
            }
        }
    }

    async fn is_settled(&self) -> Result<bool, ScheduleError> {
        let filter = WorkFilter { queue: Some(self.engine.queue.clone()), ..WorkFilter::default() };
        Ok(is_idle(&self.worker().store, &filter, |_| true).await?)
    }
}
