//! Leader election: a handler that runs in one process at a time, under a lease.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tidelock_core::error::InvalidInput;
use tidelock_core::failure::Failure;
use tidelock_core::id::{Fence, Owner};
use tidelock_core::key::Key;
use tidelock_core::lease::{LeaseError, LeaseGuard, LostReason};
use tidelock_core::runtime::backoff::Backoff;
use tidelock_core::store::{Batch, Receipt};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Options;
use crate::{Error, Tidelock};

/// The shortest wait before the next candidacy, so that a handler that returns at once does not spin.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest additional wait after failures, and the wait after a permanent one.
const LONGEST: Duration = Duration::from_secs(30);
/// The additional wait after failures in a row.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), LONGEST);
/// The longest time that a release may take at shutdown. After it, the lease is left to expire.
const RELEASE: Duration = Duration::from_secs(5);

type Handler = Arc<dyn Fn(Leadership) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync>;

/// The leadership of this process, passed to the handler of [`Service::leader`](crate::Service::leader).
#[derive(Clone, Debug)]
pub struct Leadership {
    /// Only the election holds the guard, so that a clone that outlives the handler does not keep the lease.
    guard: Weak<LeaseGuard>,
    tide: Tidelock,
    key: Key,
    fence: Fence,
    token: CancellationToken,
}

impl Leadership {
    fn of(guard: &Arc<LeaseGuard>, tide: Tidelock) -> Self {
        let (key, fence, token) = (guard.key().clone(), guard.fence(), guard.token());
        Self { guard: Arc::downgrade(guard), tide, key, fence, token }
    }

    /// Applies a batch on the condition that this process still leads.
    ///
    /// # Errors
    /// [`Error`] when another process leads, a precondition does not hold, or the store fails.
    pub async fn apply(&self, batch: Batch) -> Result<Receipt, Error> {
        self.tide.apply(self.guard(batch)?).await
    }

    /// Returns the fencing token. It is higher than that of every earlier leader.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Adds the precondition that this process still leads, for a batch that is applied elsewhere. Without it, a write may land after another process has taken
    /// over.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] when the lease is known to be lost, or the handler has ended.
    pub fn guard(&self, batch: Batch) -> Result<Batch, LeaseError> {
        match self.guard.upgrade() {
            Some(guard) => guard.guard(batch),
            None => Err(LeaseError::Lost {
                key: self.key.clone(),
                fence: self.fence,
                reason: LostReason::Released,
            }),
        }
    }

    /// Returns a token that is cancelled before another process can lead, for work in other tasks.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }
}

/// A leader that is not started yet.
pub(super) struct Candidate {
    name: &'static str,
    key: Result<Key, InvalidInput>,
    handler: Handler,
}

impl Candidate {
    pub(super) fn new<F, Fut>(name: &'static str, handler: F) -> Self
    where
        F: FnOnce(Leadership) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let key = Key::new("leader", [name]);
        Self { name, key, handler: Arc::new(move |lead| handler.clone()(lead).boxed()) }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn spawn(self, tide: &Tidelock, options: &Options) -> Result<Leading, InvalidInput> {
        if self.name.is_empty() {
            return Err(super::invalid("leader", self.name, "the name is empty"));
        }
        let stopping = CancellationToken::new();
        let election = Election {
            tide: tide.clone(),
            name: self.name,
            key: self.key?,
            owner: options.owner.clone(),
            ttl: options.lease_ttl,
            handler: self.handler,
            stopping: stopping.clone(),
        };
        Ok(Leading { stopping, task: tidelock_core::process::spawn(election.run()) })
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Candidate").field(&self.name).finish()
    }
}

/// A running candidate. Dropping it drops the handler, and releases the lease in the background.
#[derive(Debug)]
pub(super) struct Leading {
    stopping: CancellationToken,
    task: JoinHandle<()>,
}

impl Leading {
    /// Drops the handler and releases the lease, so that another process can lead at once.
    pub(super) async fn shutdown(mut self) {
        self.stopping.cancel();
        // An error means that the runtime has cancelled the task.
        drop((&mut self.task).await);
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Election {
    tide: Tidelock,
    name: &'static str,
    key: Key,
    owner: Option<Owner>,
    ttl: Option<Duration>,
    handler: Handler,
    stopping: CancellationToken,
}

impl Election {
    async fn run(self) {
        let mut failed = 0_u32;
        while !self.stopping.is_cancelled() {
            let ended = tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                acquired = self.request() => match acquired {
                    Ok(guard) => self.lead(guard).await,
                    Err(error) => Err(Failure::retry(error)),
                },
            };
            let mut pause = PAUSE;
            match ended {
                Ok(()) => failed = 0,
                Err(failure) => {
                    let leader = self.name;
                    tracing::warn!(target: "tidelock::leader", leader, error = %failure, "leader failed");
                    failed = failed.saturating_add(1);
                    pause = PAUSE.saturating_add(self.pause_after(&failure, failed));
                }
            }
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn pause_after(&self, failure: &Failure, failed: u32) -> Duration {
        let backoff = if failure.is_permanent() { LONGEST } else { BACKOFF.delay(failed) };
        failure.wait(backoff, self.tide.store().estimated_now())
    }

    async fn request(&self) -> Result<LeaseGuard, LeaseError> {
        let mut request = self.tide.lease(&self.key).note("leader");
        if let Some(owner) = &self.owner {
            request = request.owner(owner.clone());
        }
        if let Some(ttl) = self.ttl {
            request = request.ttl(ttl);
        }
        request.acquire().await
    }

    /// Runs the handler until it returns, the lease is lost, or the service stops. Then the lease is released.
    async fn lead(&self, guard: LeaseGuard) -> Result<(), Failure> {
        let guard = Arc::new(guard);
        let lead = Leadership::of(&guard, self.tide.clone());
        let handler = AssertUnwindSafe(async { (self.handler)(lead).await });
        let ended = tokio::select! {
            biased;
            () = self.stopping.cancelled() => Ok(()),
            reason = guard.lost() => Err(Failure::new(format!("the lease is lost: {reason:?}"))),
            ended = handler.catch_unwind() => match ended {
                Ok(ended) => ended,
                Err(_) => Err(Failure::new("the handler panicked")),
            },
        };
        // A clone that guards a batch right now releases the lease when it has done so.
        if let Some(guard) = Arc::into_inner(guard) {
            let released = tokio::time::timeout(RELEASE, guard.release()).await;
            if let Ok(Err(error)) = released {
                tracing::debug!(target: "tidelock::leader", leader = self.name, %error, "lease release failed");
            }
        }
        ended
    }
}
