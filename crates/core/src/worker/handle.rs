//! The handle of a running worker.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::{Engine, Worker, poll};
use crate::id::Owner;
use crate::process;

/// An engine that counts its work.
pub trait Metered {
    /// The counters.
    type Stats;

    /// Returns the counters since the start of the worker, in this process.
    fn stats(&self) -> Self::Stats;
}

/// The handle of a running worker, which stops when the handle is dropped.
///
/// Dropping it stops everything at once: executions are interrupted, and their leases expire. [`shutdown`](Self::shutdown)
/// is graceful.
#[must_use = "dropping the handle stops the worker"]
#[derive(Debug)]
pub struct WorkerHandle<E> {
    pub(crate) engine: Arc<E>,
    worker: Arc<Worker>,
    tasks: Vec<JoinHandle<()>>,
}

impl<E: Metered> WorkerHandle<E> {
    /// Returns the owner of the worker's leases.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.worker.owner
    }

    /// Returns the counters since the start, in this process.
    #[must_use]
    pub fn stats(&self) -> E::Stats {
        self.engine.stats()
    }

    /// Stops gracefully. The worker claims no more, and executions may end within the shutdown timeout. Those that outlast
    /// it are interrupted, and their rows are released for other workers. Where the store does not answer, leases expire: the
    /// shutdown returns a few seconds after its timeout at the latest.
    ///
    /// # Cancel safety
    /// Dropping the future stops everything at once, like dropping the handle.
    pub async fn shutdown(mut self) -> E::Stats {
        self.worker.stopping.cancel();
        self.join().await;
        self.stats()
    }

    /// Stops at once, like a crash: executions are interrupted, and leases expire. When this returns, nothing runs and no
    /// claim is in flight. For tests of crash recovery.
    ///
    /// # Cancel safety
    /// Cancel safe: everything stops in any case.
    pub async fn abort(mut self) {
        self.worker.killed.cancel();
        self.join().await;
        self.worker.claims.drain(&self.worker.owner).await;
    }

    /// Starts the worker of an engine. Must be called inside a Tokio runtime.
    pub(crate) fn start(engine: E) -> Self
    where
        E: Engine,
    {
        let (worker, engine) = (Arc::clone(engine.worker()), Arc::new(engine));
        let tasks = vec![process::spawn(poll::run(Arc::clone(&engine)))];
        Self { engine, worker, tasks }
    }

    /// Adds a task that ends with the worker and restarts after a panic.
    pub(crate) fn add<Fut>(&mut self, task: &'static str, run: impl Fn(Arc<E>) -> Fut + Send + Sync + 'static)
    where
        E: Engine,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let engine = Arc::clone(&self.engine);
        self.tasks.push(process::spawn(async move {
            engine.worker().supervise(task, || run(Arc::clone(&engine))).await;
        }));
    }

    pub(crate) fn worker(&self) -> &Worker {
        &self.worker
    }

    async fn join(&mut self) {
        for task in &mut self.tasks {
            // An error means that the runtime has cancelled the task.
            drop(task.await);
        }
    }
}

impl<E> Drop for WorkerHandle<E> {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
