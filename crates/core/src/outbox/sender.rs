//! The sender: a worker that claims messages and delivers them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::deliver::Deliver;
use super::destinations::Destinations;
use super::error::OutboxError;
use super::execution::Job;
use super::keys;
use super::message::Outbox;
use crate::id::QueueName;
use crate::model::retry::RetryPolicy;
use crate::store::{Grant, SharedStore, WorkFilter};
use crate::telemetry::{Count, DELIVERIES};
use crate::worker::{
    ClaimSpec, Engine, LeasedWork, Metered, Worker, WorkerHandle, WorkerOptions, bounded, is_idle,
    worker_setters,
};

/// The most ordered messages in one grant.
pub(super) const IN_ORDER: usize = 10;

/// A builder for a worker that delivers the messages of an outbox.
#[must_use = "nothing is sent before start() is awaited"]
pub struct Sender {
    store: SharedStore,
    outbox: Outbox,
    deliver: Arc<dyn Deliver>,
    options: Options,
}

/// The options of a sender.
#[derive(Clone, Debug)]
pub(super) struct Options {
    worker: WorkerOptions,
    pub(super) retry: RetryPolicy,
    pub(super) timeout: Duration,
    per_destination: Option<usize>,
}

impl Sender {
    /// Creates a sender for an outbox. Several senders, in any number of processes, share the work.
    pub fn new(store: SharedStore, outbox: Outbox, deliver: impl Deliver) -> Self {
        let retry = RetryPolicy {
            max_attempts: 20,
            base: Duration::from_secs(1),
            factor: 2.0,
            cap: Duration::from_hours(1),
        };
        let worker = WorkerOptions::default();
        let options = Options { worker, retry, timeout: Duration::from_secs(30), per_destination: None };
        Self { store, outbox, deliver: Arc::new(deliver), options }
    }

    worker_setters!();

    /// Sets the retry policy. The default is 20 attempts with exponential backoff from a second to an hour. After the last
    /// attempt the message is blocked.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = policy;
        self
    }

    /// Sets the timeout of one delivery, after which the attempt has failed. The default is 30 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = bounded(timeout);
        self
    }

    /// Sets how many messages to one destination this sender delivers at once, at least one. The default is three quarters of its
    /// [`concurrency`](Self::concurrency), and a quarter for a destination whose deliveries take longer than a second. So a
    /// destination that is slow or hangs does not delay the others.
    pub fn destination_concurrency(mut self, deliveries: usize) -> Self {
        self.options.per_destination = Some(deliveries.max(1));
        self
    }

    /// Starts the worker.
    ///
    /// # Errors
    /// Returns an [`OutboxError`] when the name of the outbox is invalid, or when no Tokio runtime runs.
    pub async fn start(self) -> Result<WorkerHandle<OutboxEngine>, OutboxError> {
        let Self { store, outbox, deliver, options } = self;
        tokio::runtime::Handle::try_current().map_err(|_| OutboxError::NoRuntime)?;
        let queue = keys::queue(outbox.name())?;
        let worker = Worker::new(store, options.worker.clone())?;
        let counters = Counters::default();
        let destinations = Destinations::new(options.per_destination, options.worker.concurrency);
        let engine = OutboxEngine { worker, queue, outbox, deliver, options, counters, destinations };
        Ok(WorkerHandle::start(engine))
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("outbox", &self.outbox)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The counters of a sender, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Messages delivered and removed.
    pub delivered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Messages blocked.
    pub blocked: u64,
}

/// See [`SenderStats`].
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) delivered: Count,
    pub(super) failed: Count,
    pub(super) blocked: Count,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            delivered: Count::of(DELIVERIES, "delivered"),
            failed: Count::of(DELIVERIES, "failed"),
            blocked: Count::of(DELIVERIES, "blocked"),
        }
    }
}

/// The engine of a [`Sender`]: delivers one message, or messages of one order, per grant.
pub struct OutboxEngine {
    pub(super) worker: Arc<Worker>,
    queue: QueueName,
    pub(super) outbox: Outbox,
    pub(super) deliver: Arc<dyn Deliver>,
    pub(super) options: Options,
    pub(super) counters: Counters,
    pub(super) destinations: Arc<Destinations>,
}

impl Metered for OutboxEngine {
    type Stats = SenderStats;

    fn stats(&self) -> SenderStats {
        let Counters { delivered, failed, blocked } = &self.counters;
        SenderStats { delivered: delivered.get(), failed: failed.get(), blocked: blocked.get() }
    }
}

impl Engine for OutboxEngine {
    const NAME: &'static str = "outbox";

    fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    fn claims(&self) -> Vec<ClaimSpec> {
        let lease_ttl = self.worker.options.lease_ttl;
        vec![ClaimSpec { queues: vec![self.queue.clone()], lease_ttl, events: IN_ORDER }]
    }

    async fn execute(self: Arc<Self>, grant: Grant, work: LeasedWork) {
        Job::new(self, work).run(grant).await;
    }
}

impl WorkerHandle<OutboxEngine> {
    /// Returns whether no message of this outbox is due or in flight, in any process. Blocked messages do not count.
    ///
    /// # Errors
    /// Returns [`OutboxError::Store`] when the store cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn is_idle(&self) -> Result<bool, OutboxError> {
        let filter = WorkFilter { queue: Some(self.engine.queue.clone()), ..WorkFilter::default() };
        Ok(is_idle(&self.worker().store, &filter, |_| true).await?)
    }
}

impl fmt::Debug for OutboxEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxEngine")
            .field("outbox", &self.outbox)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
