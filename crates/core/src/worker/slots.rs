//! Slots: the bound on concurrent executions, and their tasks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Engine, LeasedWork};
use crate::process;
use crate::runtime::panic::text;
use crate::runtime::timer::sleep_until;
use crate::store::Grant;
use crate::telemetry::WORKER;

/// A permit for one execution.
pub(crate) type Slot = OwnedSemaphorePermit;

/// The slots of a worker.
#[derive(Debug)]
pub(crate) struct Slots {
    permits: Arc<Semaphore>,
    executions: JoinSet<()>,
}

impl Slots {
    pub(super) fn new(count: usize) -> Self {
        let permits = Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS)));
        Self { permits, executions: JoinSet::new() }
    }

    /// Waits for a free slot, and returns up to `wanted`. Returns `None` when the worker is stopping.
    pub(super) async fn free(&mut self, wanted: usize, stopping: &CancellationToken) -> Option<Vec<Slot>> {
        let first = tokio::select! {
            biased;
            () = stopping.cancelled() => return None,
            first = Arc::clone(&self.permits).acquire_owned() => first.ok()?,
        };
        while let Some(ended) = self.executions.try_join_next() {
            report(ended);
        }
        let mut slots = vec![first];
        while slots.len() < wanted
            && let Ok(another) = Arc::clone(&self.permits).try_acquire_owned()
        {
            slots.push(another);
        }
        Some(slots)
    }

    /// Executes a grant in a separate task, under a lease that is renewed until the end. The permits are dropped then.
    pub(super) fn execute<E: Engine>(
        &mut self,
        engine: &Arc<E>,
        grant: Grant,
        ttl: Duration,
        sent: Instant,
        permits: impl Send + 'static,
    ) {
        // Counted from here, not from the start of its task: a test clock that skips idle time would expire the lease.
        let active = Active::new(engine);
        self.executions.spawn(process::bound(async move {
            let _permits = permits;
            let engine = Arc::clone(&active.0);
            match LeasedWork::start(&engine.worker().store, &grant, ttl, sent) {
                Ok(work) => engine.execute(grant, work).await,
                // The lease expires without renewal.
                Err(error) => {
                    tracing::error!(target: WORKER, row = %grant.row.key, %error, "lease renewal not started");
                }
            }
        }));
    }

    /// Waits for the executions, and interrupts those that outlast the timeout.
    pub(super) async fn drain(&mut self, timeout: Duration, cut: &CancellationToken) {
        let end = process::now() + timeout;
        loop {
            tokio::select! {
                biased;
                ended = self.executions.join_next() => match ended {
                    Some(ended) => report(ended),
                    None => return,
                },
                () = sleep_until(end), if !cut.is_cancelled() => cut.cancel(),
            }
        }
    }

    /// Drops all executions, like a crash.
    pub(super) async fn abort(&mut self) {
        self.executions.shutdown().await;
    }
}

/// A guard that counts one execution.
pub(crate) struct Active<E: Engine>(Arc<E>);

impl<E: Engine> Active<E> {
    pub(crate) fn new(engine: &Arc<E>) -> Self {
        let engine = Arc::clone(engine);
        engine.worker().active.fetch_add(1, Ordering::AcqRel);
        Self(engine)
    }
}

impl<E: Engine> Drop for Active<E> {
    fn drop(&mut self) {
        self.0.worker().active.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Reports a panic of an engine. Panics of user code are caught where it is called. The row is claimed again when its lease
/// expires.
fn report(ended: Result<(), JoinError>) {
    if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
        tracing::error!(target: WORKER, error = text(&*panic), "execution panicked");
    }
}
