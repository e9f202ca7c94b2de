//! One worker for every engine: it claims due work, renews the leases and executes each grant in a slot.
//!
//! An engine defines which queues it polls and how it executes a grant. The rest exists once, here: the poll loop with
//! its adaptive delay, slots, leases with renewal, retry after store failures, restart after a panic, and shutdown.
//! Programs use the [`WorkerHandle`] that the builders of the engines return.
//!
//! Three tokens stop a worker. `stopping` ends claiming, `cut` interrupts the executions that outlast the shutdown timeout,
//! and `killed` drops everything, like a crash. A shutdown that takes 5 s longer than its timeout does so as well.

mod claims;
mod handle;
pub(crate) mod idle;
mod leased;
mod local_lease;
pub(crate) mod local_notify;
mod options;
mod owner;
mod poll;
mod quiesce;
mod renewal;
mod slots;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub use handle::{Metered, WorkerHandle};
pub use local_lease::LostReason;
pub use options::{DEFAULT_TTL, MAX_TTL, MIN_TTL};

pub(crate) use claims::Claims;
pub(crate) use leased::{Committed, LeasedWork};
pub(crate) use local_lease::LocalLease;
pub(crate) use options::{WorkerOptions, bounded, interval, worker_setters};
pub(crate) use owner::unique_owner;
pub(crate) use poll::Poll;
pub(crate) use quiesce::is_idle;
pub(crate) use renewal::{LEASES, NoThread, Renewer, TASKS, apply_release};
pub(crate) use slots::Active;

use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::{Owner, QueueName};
use crate::key::Key;
use crate::process;
use crate::runtime::timer::sleep_until;
use crate::store::limits::CLAIM_ROWS;
use crate::store::{Grant, SharedStore, StoreError};
use crate::telemetry::Count;

/// The time that interrupted executions have to release their rows.
const GRACE: Duration = Duration::from_secs(5);

/// A kind of leased work. The worker owns claiming, renewal, slots, backoff and shutdown.
pub(crate) trait Engine: Metered + Send + Sync + 'static {
    /// The name in logs.
    const NAME: &'static str;

    /// Returns the worker that runs this engine.
    fn worker(&self) -> &Arc<Worker>;

    /// Returns the queues to poll now, with lease time and events per grant.
    fn claims(&self) -> Vec<ClaimSpec> {
        Vec::new()
    }

    /// Claims work for the free slots. An engine whose claims depend on each other implements this instead of `claims`.
    fn poll(&self, poll: &mut Poll<'_, Self>) -> impl Future<Output = Result<(), StoreError>> + Send
    where
        Self: Sized,
    {
        async move {
            for spec in self.claims() {
                poll.claim(spec, usize::MAX, || ()).await?;
            }
            Ok(())
        }
    }

    /// Executes one grant. The future is dropped only when the worker is killed.
    fn execute(self: Arc<Self>, grant: Grant, work: LeasedWork) -> impl Future<Output = ()> + Send;

    /// Runs before each poll: reconciliation and other periodic duties. `now` is the store's clock at the last poll.
    fn tick(&self, _now: Option<Timestamp>) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Runs after the last execution of a graceful shutdown.
    fn stopped(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Runs after the executions were dropped by an abort.
    fn aborted(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Returns the most rows that one poll claims.
    fn max_rows(&self) -> usize {
        CLAIM_ROWS
    }

    /// Returns the longest delay after store hints that led to no grant.
    fn max_hint_delay(&self) -> Duration {
        idle::MIN_POLL_DELAY
    }

    /// Returns the rows whose local notifications wake the poll loop.
    fn notified_by(&self) -> Vec<Key> {
        Vec::new()
    }

    /// Moves a test clock to the next due time. Returns `true` when the loop must poll again at once.
    fn skip_to(&self, _due: Timestamp, _now: Timestamp) -> bool {
        false
    }
}

/// Queues that one claim covers, with the terms of its grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimSpec {
    /// The queues to claim from.
    pub(crate) queues: Vec<QueueName>,
    /// The lease time of a grant.
    pub(crate) lease_ttl: Duration,
    /// The most events that come with a grant.
    pub(crate) events: usize,
}

/// The state that the tasks of one worker share: store, owner, options and the tokens that stop it.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) store: SharedStore,
    pub(crate) owner: Owner,
    pub(crate) options: WorkerOptions,
    /// Ends claiming.
    pub(crate) stopping: CancellationToken,
    /// Interrupts executions.
    pub(crate) cut: CancellationToken,
    /// Drops everything, like a crash.
    killed: CancellationToken,
    /// Wakes the poll loop when a task of this worker has created due work.
    pub(crate) wake: Notify,
    pub(crate) claims: Claims,
    /// The claims of the poll loop.
    pub(crate) polls: Count,
    /// The executions in flight.
    active: AtomicUsize,
}

impl Worker {
    /// Creates a worker with an owner that is unique among all processes.
    pub(crate) fn new(store: SharedStore, options: WorkerOptions) -> Result<Arc<Self>, InvalidInput> {
        let owner = unique_owner(options.owner.as_ref())?;
        let (stopping, cut, killed, wake, active) = Default::default();
        let (claims, polls) = (Claims::new(&store), Count::here());
        Ok(Arc::new(Self { store, owner, options, stopping, cut, killed, wake, claims, polls, active }))
    }

    /// Returns the number of executions in flight.
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Acquire)
    }

    /// Waits for a time, or until the worker is stopping.
    pub(crate) async fn pause(&self, wait: Duration) {
        idle::pause(wait, &self.stopping).await;
    }

    /// Backs off after a failure of the store.
    pub(crate) async fn back_off(&self, error: &StoreError) {
        self.pause(idle::backoff(error, self.options.poll_interval)).await;
    }

    /// Waits until a shutdown has exceeded its timeout and [`GRACE`]. Executions still in flight then wait for a store
    /// that does not reply, or for user code that does not end.
    async fn overdue(&self) {
        self.stopping.cancelled().await;
        sleep_until(process::now() + self.options.shutdown_timeout + GRACE).await;
    }

    /// Runs a task until the worker is killed, and restarts it after a panic.
    pub(crate) async fn supervise<Fut>(&self, task: &'static str, run: impl Fn() -> Fut + Sync)
    where
        Fut: Future<Output = ()> + Send,
    {
        let run = || async {
            tokio::select! {
                biased;
                () = self.killed.cancelled() => {}
                () = self.overdue() => {}
                () = run() => {}
            }
        };
        idle::supervised(task, run, self.options.poll_interval, &self.stopping).await;
    }
}

#[cfg(test)]
mod tests;
