//! The guard of a lease that is held.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::error::LeaseError;
use super::{background, registry};
use crate::id::{Fence, Owner};
use crate::key::Key;
use crate::lock::Task;
use crate::store::{ApplyError, Batch, Lease, Operation, Refusal, Selection};
use crate::worker::{LocalLease, LostReason, TASKS, settle};

/// A lease that is held. It is renewed in the background until it is released, dropped or lost.
///
/// Work under it in two ways at once: stop when the [`token`](Self::token) fires, and write with
/// [`guard`](Self::guard). The first spares useless work; the second is what keeps the data right.
///
/// # Crash safety
/// A process that dies leaves the lease to end by itself, at most its `ttl` after the last renewal. Nothing that it
/// had committed changes.
#[must_use = "dropping it releases the lease"]
#[derive(Debug)]
pub struct Held {
    key: Key,
    owner: Owner,
    kept: Arc<LocalLease>,
    /// Before this instant a release only shortens the lease.
    at_least: Instant,
    stays: bool,
    ended: bool,
}

impl Held {
    pub(super) fn new(
        key: Key,
        owner: Owner,
        kept: Arc<LocalLease>,
        at_least: Duration,
        stays: bool,
    ) -> Self {
        Self { key, owner, kept, at_least: Instant::now() + at_least, stays, ended: false }
    }

    /// The key that was asked for.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The name under which others see this hold: the owner that was given, and what makes it unique.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The fence: higher than that of every grant before.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.kept.lease().fence
    }

    /// What a write shows, for [`Batch::guard_lease`]. It names the row of the lease, not the key that was asked for.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        self.kept.lease()
    }

    /// The batch with the lease as its first condition: refused as a whole if somebody else holds the lease by then.
    /// A refusal counts the condition as effect 0.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] when the lease is known to be lost.
    pub fn guard(&self, batch: Batch) -> Result<Batch, LeaseError> {
        if let Some(reason) = self.kept.lost() {
            return Err(self.lost_because(reason));
        }
        let id = batch.id();
        let guarded = Batch::new().guard_lease(self.lease()).and(batch);
        Ok(id.into_iter().fold(guarded, Batch::op_id))
    }

    /// A token that fires when the lease ends for its holder, in time before anybody else can own it. Only a thief
    /// ([`Hold::steal`](super::Hold::steal)) and an operator can be faster; the fence stands in their way.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.kept.token().clone()
    }

    /// Waits until the lease is lost, and says why.
    ///
    /// # Cancel safety
    /// Cancel-safe: nothing is missed between two calls.
    pub async fn lost(&self) -> LostReason {
        self.kept.token().cancelled().await;
        self.kept.lost().unwrap_or_else(LostReason::too_late)
    }

    /// Whether the lease is lost. It answers by the clock, even if this process was stopped until a moment ago.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.kept.lost().is_some()
    }

    /// Until when the holder may act, if no further renewal succeeds.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.kept.deadline()
    }

    /// Makes the guard the calling task's, after it was handed over: asking again is then told as
    /// [`LeaseError::Reentrant`] to this task and no longer to the one that took it.
    pub fn adopt(&self) {
        registry::adopt(&self.owner, Task::current());
    }

    /// Lets the lease go. Before the time of [`Hold::at_least`](super::Hold::at_least) is over, it is shortened to
    /// that instant instead.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] when somebody else had it or the row was taken away, [`LeaseError::Write`] when the store did not take the release.
    /// Neither changes anything that was committed. The store is asked again in the background until the lease would
    /// have ended by itself.
    ///
    /// # Cancel safety
    /// The release is carried out even if the future is dropped.
    pub async fn release(mut self) -> Result<(), LeaseError> {
        let before = self.kept.lost();
        let Some(batch) = self.end() else {
            return Err(self.lost_because(before.unwrap_or(LostReason::Revoked)));
        };
        match background::run(self.settled(batch)).await? {
            Ok(()) => Ok(()),
            Err(ApplyError::Refused(refusal)) => Err(match *refusal {
                Refusal::Fenced { holder, .. } => self.lost_because(LostReason::of(&holder)),
                other => LeaseError::Write(Box::new(other.into())),
            }),
            Err(error) => Err(LeaseError::Write(Box::new(error))),
        }
    }

    /// Ends the renewal. The batch that ends the lease in the store, when there is something to end.
    fn end(&mut self) -> Option<Batch> {
        if std::mem::replace(&mut self.ended, true) {
            return None;
        }
        registry::leave(&self.owner);
        self.kept.lose(LostReason::Released);
        if let Some(LostReason::Taken { .. } | LostReason::Revoked) = self.kept.lost() {
            return None;
        }
        let (batch, lease) = (Batch::new(), self.lease());
        let longer = self.at_least.saturating_duration_since(Instant::now());
        Some(if !longer.is_zero() {
            batch.renew(lease, longer)
        } else if self.stays {
            batch.release(lease)
        } else {
            batch.guard_lease(lease).operate(Selection::Keys(vec![lease.key.clone()]), Operation::Remove)
        })
    }

    fn settled(&self, batch: Batch) -> impl Future<Output = Result<(), ApplyError>> + Send + 'static {
        let (store, row) = (Arc::clone(self.kept.store()), self.lease().key.clone());
        settle(store, row, batch, self.kept.ttl())
    }

    fn lost_because(&self, reason: LostReason) -> LeaseError {
        LeaseError::Lost { key: self.key.clone(), fence: self.fence(), reason }
    }
}

impl Drop for Held {
    /// Releases in the background. A process that ends meanwhile leaves the lease to end by itself.
    fn drop(&mut self) {
        if let Some(batch) = self.end() {
            drop(TASKS.spawn(self.settled(batch)));
        }
    }
}
