//! The sender: claims messages while it has room, and gives each row a task of its own.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::deliver::Deliver;
use super::error::OutboxError;
use super::job::Job;
use super::message::Outbox;
use super::names;
use crate::clock::Timestamp;
use crate::id::{Lane, Owner};
use crate::lease::{self, Holding, MAX_TTL, MIN_TTL, unique_owner, working};
use crate::lock::sleep_until;
use crate::model::retry::RetryPolicy;
use crate::store::limits::{CLAIM_EVENTS, CLAIM_ROWS};
use crate::store::{Claim, Grant, SharedStore, StoreError, Watch};
use crate::telemetry::OUTBOX;

/// How many messages in order come with one grant.
pub(super) const IN_ORDER: usize = 10;
/// Hints that come close together are one.
const HUSH: Duration = Duration::from_millis(2);

/// A sender that is about to run.
#[must_use = "nothing is sent before start() is awaited"]
pub struct Sender {
    store: SharedStore,
    outbox: Outbox,
    deliver: Arc<dyn Deliver>,
    options: Options,
}

/// How a sender works.
#[derive(Clone, Debug)]
pub(super) struct Options {
    owner: Option<Owner>,
    concurrency: usize,
    pub(super) retry: RetryPolicy,
    ttl: Duration,
    pub(super) limit: Duration,
    grace: Duration,
    look_again: Duration,
}

impl Sender {
    /// Sends the messages of an outbox. Several senders, in any number of processes, share the work.
    pub fn new(store: SharedStore, outbox: Outbox, deliver: impl Deliver) -> Self {
        let retry = RetryPolicy {
            max_attempts: 20,
            base: Duration::from_secs(1),
            factor: 2.0,
            cap: Duration::from_hours(1),
        };
        let options = Options {
            owner: None,
            concurrency: 16,
            retry,
            ttl: lease::DEFAULT_TTL,
            limit: Duration::from_secs(30),
            grace: Duration::from_secs(10),
            look_again: Duration::from_secs(1),
        };
        Self { store, outbox, deliver: Arc::new(deliver), options }
    }

    /// How many messages are sent at the same time, at most: 16.
    pub fn concurrency(mut self, messages: usize) -> Self {
        self.options.concurrency = messages.max(1);
        self
    }

    /// How often and how fast a message is tried again: 20 times, with waits that grow from a second to an hour. After that it is
    /// blocked.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = policy;
        self
    }

    /// How long one delivery may take: 30 seconds. One that takes longer has failed.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.options.limit = limit;
        self
    }

    /// How long others wait for messages whose process died: 30 seconds. A process that lives renews in time.
    pub fn lease(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl.clamp(MIN_TTL, MAX_TTL);
        self
    }

    /// Who sends, as others are to see it: by default the machine and the process. What makes it unique is added.
    pub fn owner(mut self, owner: Owner) -> Self {
        self.options.owner = Some(owner);
        self
    }

    /// How long deliveries may go on after [`Sending::shutdown`]: 10 seconds.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.options.grace = grace;
        self
    }

    /// How long a message may go unnoticed when the store's hint of it was missed: 1 second.
    pub fn look_again(mut self, interval: Duration) -> Self {
        self.options.look_again = interval.max(Duration::from_millis(1));
        self
    }

    /// Starts to send.
    ///
    /// # Errors
    /// [`OutboxError`] when the name of the outbox is not valid, or there is no runtime.
    pub async fn start(self) -> Result<Sending, OutboxError> {
        let Self { store, outbox, deliver, options } = self;
        tokio::runtime::Handle::try_current().map_err(|_| OutboxError::NoRuntime)?;
        let (lane, owner) = (names::lane(outbox.name())?, unique_owner(options.owner.as_ref())?);
        let (stopping, cut, killed, counters) = Default::default();
        let shared =
            Arc::new(Shared { store, outbox, deliver, owner, options, stopping, cut, killed, counters });
        let task = tokio::spawn(sending(Arc::clone(&shared), lane));
        Ok(Sending { shared, task })
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

/// What a sender did so far, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Messages that were delivered and are gone.
    pub delivered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Messages that were blocked.
    pub blocked: u64,
}

/// See [`SenderStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) delivered: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) blocked: AtomicU64,
}

/// What the tasks of a sender share.
pub(super) struct Shared {
    pub(super) store: SharedStore,
    pub(super) outbox: Outbox,
    pub(super) deliver: Arc<dyn Deliver>,
    owner: Owner,
    pub(super) options: Options,
    /// Nothing new is begun.
    pub(super) stopping: CancellationToken,
    /// Deliveries are broken off.
    pub(super) cut: CancellationToken,
    /// Everything is broken off, as a crash would.
    killed: CancellationToken,
    pub(super) counters: Counters,
}

/// A sender that runs, until it is shut down or this is dropped.
///
/// Dropped, everything stops at once: deliveries are broken off, and leases end by themselves. [`shutdown`](Self::shutdown) is the
/// polite way.
#[must_use = "dropping it stops the sender"]
pub struct Sending {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Sending {
    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        let Counters { delivered, failed, blocked } = &self.shared.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SenderStats { delivered: get(delivered), failed: get(failed), blocked: get(blocked) }
    }

    /// Stops politely: nothing new is claimed, and deliveries may end within the grace period.
    ///
    /// # Cancel safety
    /// Dropped, everything stops at once, as when [`Sending`] is dropped.
    pub async fn shutdown(mut self) -> SenderStats {
        self.shared.stopping.cancel();
        drop((&mut self.task).await);
        self.stats()
    }

    /// Stops at once, as a crash would. When this returns, nothing runs any more. For tests of what happens then.
    ///
    /// # Cancel safety
    /// Cancel-safe: everything stops all the same.
    pub async fn abort(mut self) {
        self.shared.killed.cancel();
        drop((&mut self.task).await);
        lease::nothing_under_way(&self.shared.store, &self.shared.owner).await;
    }
}

impl fmt::Debug for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending").field("outbox", &self.shared.outbox).field("stats", &self.stats()).finish()
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Claims and sends, and goes on if that panics.
async fn sending(shared: Arc<Shared>, lane: Lane) {
    let make = || Claiming::new(Arc::clone(&shared), lane.clone()).run_or_die();
    let panicked =
        |error: &str| tracing::error!(target: OUTBOX, error, "a sender failed; it is started again");
    working::supervised(make, panicked, shared.options.look_again, &shared.stopping).await;
}

/// The loop that claims.
struct Claiming {
    shared: Arc<Shared>,
    lane: Lane,
    slots: Arc<Semaphore>,
    jobs: JoinSet<()>,
    hints: Watch,
}

impl Claiming {
    fn new(shared: Arc<Shared>, lane: Lane) -> Self {
        let slots = Arc::new(Semaphore::new(shared.options.concurrency.min(Semaphore::MAX_PERMITS)));
        let hints = shared.store.watch();
        Self { shared, lane, slots, jobs: JoinSet::new(), hints }
    }

    async fn run_or_die(mut self) {
        let killed = self.shared.killed.clone();
        tokio::select! {
            biased;
            () = killed.cancelled() => {}
            () = self.run() => {}
        }
        self.jobs.shutdown().await;
    }

    async fn run(&mut self) {
        let most = CLAIM_ROWS.min(CLAIM_EVENTS / IN_ORDER);
        while let Some(slots) = working::free_slots(&self.slots, most, &self.shared.stopping).await {
            while self.jobs.try_join_next().is_some() {}
            match self.claim(slots).await {
                Ok((0, next_at)) => self.idle(next_at).await,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(target: OUTBOX, %error, "messages could not be claimed; it is tried again");
                    working::pause(
                        working::after(&error, self.shared.options.look_again),
                        &self.shared.stopping,
                    )
                    .await;
                }
            }
        }
        working::wind_down(&mut self.jobs, self.shared.options.grace, &self.shared.cut).await;
    }

    async fn claim(
        &mut self,
        mut slots: Vec<OwnedSemaphorePermit>,
    ) -> Result<(usize, Option<Timestamp>), StoreError> {
        let (owner, ttl) = (&self.shared.owner, self.shared.options.ttl);
        let claim = Claim::lanes(owner, [self.lane.clone()], slots.len(), ttl).with_events(IN_ORDER);
        let sent = Instant::now();
        let claimed = self.shared.store.claim(claim).await?;
        let count = claimed.grants.len();
        for grant in claimed.grants {
            self.begin(grant, sent, slots.pop());
        }
        Ok((count, claimed.next_at))
    }

    fn begin(&mut self, grant: Grant, sent: Instant, slot: Option<OwnedSemaphorePermit>) {
        let shared = Arc::clone(&self.shared);
        self.jobs.spawn(async move {
            let _slot = slot;
            match Holding::start(&shared.store, &grant, shared.options.ttl, sent) {
                Ok(holding) => Job::new(shared, holding).run(grant).await,
                // Nobody renews it, so it ends by itself.
                Err(error) => {
                    tracing::error!(target: OUTBOX, row = %grant.row.key, %error, "a message is not kept")
                }
            }
        });
    }

    /// Waits until there may be something, and never for long.
    async fn idle(&mut self, next_at: Option<Timestamp>) {
        let longest = self.shared.options.look_again;
        let wait = match (next_at, self.shared.store.now().await) {
            (Some(at), Ok(now)) => at.since(now).max(HUSH).min(longest),
            _ => longest,
        };
        let looked = Instant::now();
        tokio::select! {
            biased;
            () = self.shared.stopping.cancelled() => {}
            () = working::hinted(&mut self.hints, looked + HUSH) => {}
            () = sleep_until(looked + wait) => {}
        }
    }
}
