//! The sender: claims messages while it has room, and gives each row a task of its own.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::deliver::Deliver;
use super::error::OutboxError;
use super::job::Job;
use super::message::Outbox;
use super::names;
use crate::clock::Timestamp;
use crate::id::{Lane, Owner};
use crate::lease::working::{self, HUSH};
use crate::lease::{Claims, DEFAULT_TTL, Hand, Hands, MAX_TTL, MIN_TTL, unique_owner};
use crate::model::retry::RetryPolicy;
use crate::runtime::timer::sleep_until;
use crate::store::limits::{CLAIM_EVENTS, CLAIM_ROWS};
use crate::store::{Claim, SharedStore, StoreError, Watch};
use crate::telemetry::{Count, DELIVERIES, OUTBOX};

/// How many messages in order come with one grant.
pub(super) const IN_ORDER: usize = 10;

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
            ttl: DEFAULT_TTL,
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
        self.options.limit = working::bounded(limit);
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
        self.options.grace = working::bounded(grace);
        self
    }

    /// How long a message may go unnoticed when the store's hint of it was missed: 1 second.
    pub fn look_again(mut self, interval: Duration) -> Self {
        self.options.look_again = working::interval(interval);
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
        let claims = Claims::new(&store);
        let shared =
            Shared { store, outbox, deliver, owner, options, stopping, cut, killed, claims, counters };
        let shared = Arc::new(shared);
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
    claims: Claims,
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
        SenderStats { delivered: delivered.get(), failed: failed.get(), blocked: blocked.get() }
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
        self.shared.claims.settle(&self.shared.owner).await;
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
    hands: Hands,
    hints: Watch,
}

impl Claiming {
    fn new(shared: Arc<Shared>, lane: Lane) -> Self {
        let hands = Hands::new(&shared.store, shared.options.concurrency);
        let hints = shared.store.watch();
        Self { shared, lane, hands, hints }
    }

    async fn run_or_die(mut self) {
        let killed = self.shared.killed.clone();
        working::unless(&killed, self.run()).await;
        self.hands.break_off().await;
    }

    async fn run(&mut self) {
        let most = CLAIM_ROWS.min(CLAIM_EVENTS / IN_ORDER);
        while let Some(hands) = self.hands.free(most, &self.shared.stopping).await {
            match self.claim(hands).await {
                Ok((0, next_at)) => self.idle(next_at).await,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(target: OUTBOX, %error, "messages could not be claimed; it is tried again");
                    let wait = working::after(&error, self.shared.options.look_again);
                    working::pause(wait, &self.shared.stopping).await;
                }
            }
        }
        self.hands.wind_down(self.shared.options.grace, &self.shared.cut).await;
    }

    async fn claim(&mut self, mut hands: Vec<Hand>) -> Result<(usize, Option<Timestamp>), StoreError> {
        let (owner, ttl) = (&self.shared.owner, self.shared.options.ttl);
        let claim = Claim::lanes(owner, [self.lane.clone()], hands.len(), ttl).with_events(IN_ORDER);
        let sent = Instant::now();
        let claimed = self.shared.claims.send(claim).await?;
        let count = claimed.grants.len();
        for grant in claimed.grants {
            let shared = Arc::clone(&self.shared);
            self.hands.hold(grant, ttl, sent, hands.pop(), async move |grant, holding| {
                Job::new(shared, holding).run(grant).await;
            });
        }
        Ok((count, claimed.next_at))
    }

    /// Waits until there may be something, and never for long.
    async fn idle(&mut self, next_at: Option<Timestamp>) {
        let looked = Instant::now();
        let wait = working::until(&self.shared.store, next_at, self.shared.options.look_again).await;
        tokio::select! {
            biased;
            () = self.shared.stopping.cancelled() => {}
            () = working::hinted(&mut self.hints, looked + HUSH) => {}
            () = sleep_until(looked + wait) => {}
        }
    }
}
