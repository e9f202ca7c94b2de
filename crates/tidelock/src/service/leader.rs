//! Leader election: a handler that runs in one process at a time, under a lease.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tidelock_core::error::InvalidInput;
use tidelock_core::failure::Failure;
use tidelock_core::id::{Fence, Owner};
use tidelock_core::key::Key;
use tidelock_core::lease::{LeaseError, LeaseGuard};
use tidelock_core::runtime::backoff::Backoff;
use tidelock_core::store::Batch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Options;
use crate::Tidelock;

/// The shortest wait before the next candidacy, so that a handler that returns at once does not spin.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest additional wait after failures, and the wait after a permanent one.
const LONGEST: Duration = Duration::from_secs(30);
/// The additional wait after failures in a row.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), LONGEST);
/// The longest time that a release may take at shutdown. After it, the lease expires by itself.
const RELEASE: Duration = Duration::from_secs(5);

type Handler = Arc<dyn Fn(Leadership) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync>;

/// The leadership of this process, passed to the handler of [`Service::leader`](crate::Service::leader).
#[derive(Clone, Debug)]
pub struct Leadership(Arc<LeaseGuard>);

impl Leadership {
    /// Returns the fencing token. It is higher than that of every earlier leader.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.0.fence()
    }

    /// Adds the precondition that this process still leads. Without it, a write may land after another process has taken
    /// over.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] when the lease is known to be lost.
    pub fn guard(&self, batch: Batch) -> Result<Batch, LeaseError> {
        self.0.guard(batch)
    }

    /// Returns a token that is cancelled before another process can lead, for work in other tasks.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.0.token()
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

    pub(super) fn spawn(self, tide: &Tidelock, options: &Options) -> Result<Leading, InvalidInput> {
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
        let handler = AssertUnwindSafe(async { (self.handler)(Leadership(Arc::clone(&guard))).await });
        let ended = tokio::select! {
            biased;
            () = self.stopping.cancelled() => Ok(()),
            reason = guard.lost() => Err(Failure::new(format!("the lease is lost: {reason:?}"))),
            ended = handler.catch_unwind() => match ended {
                Ok(ended) => ended,
                Err(_) => Err(Failure::new("the handler panicked")),
            },
        };
        // A clone that the handler passed to another task releases the lease when it is dropped there.
        if let Some(guard) = Arc::into_inner(guard) {
            let released = tokio::time::timeout(RELEASE, guard.release()).await;
            if let Ok(Err(error)) = released {
                tracing::debug!(target: "tidelock::leader", leader = self.name, %error, "lease release failed");
            }
        }
        ended
    }
}
