//! Lease guard.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::error::LeaseError;
use super::{background, registry};
use crate::id::{Fence, Owner};
use crate::key::Key;
use crate::lock::TaskId;
use crate::process;
use crate::store::{ApplyError, Batch, Lease, Operation, Refusal, Selection};
use crate::worker::{LocalLease, LostReason, TASKS, apply_release};

/// A guard of a held lease. The lease is renewed in the background until it is released, dropped or lost.
///
/// Protect work under it in two ways: stop when the [`token`](Self::token) fires, and write with
/// [`guard`](Self::guard). The first avoids useless work; the second keeps the data correct.
///
/// # Crash safety
/// The lease of a process that dies expires at most its `ttl` after the last renewal. Its committed writes stay.
#[must_use = "dropping it releases the lease"]
#[derive(Debug)]
pub struct LeaseGuard {
    key: Key,
    owner: Owner,
    kept: Arc<LocalLease>,
    /// Before this instant, a release only shortens the lease.
    at_least: Instant,
    stays: bool,
    ended: bool,
}

impl LeaseGuard {
    pub(super) fn new(
        key: Key,
        owner: Owner,
        kept: Arc<LocalLease>,
        at_least: Duration,
        stays: bool,
    ) -> Self {
        Self { key, owner, kept, at_least: process::now() + at_least, stays, ended: false }
    }

    /// Returns the leased key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the name that other processes see: the given owner with a unique suffix.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns the fencing token. It is higher than that of every earlier grant.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.kept.lease().fence
    }

    /// Returns the lease for [`Batch::guard_lease`]. It names the row of the lease, not the leased key.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        self.kept.lease()
    }

    /// Adds the lease to a batch as its first condition. The store refuses the whole batch if another holder has the
    /// lease by then. A refusal counts the condition as effect 0.
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

    /// Returns a token that fires when the lease ends for its holder, before another process can own it. Only
    /// [`LeaseRequest::steal`](super::LeaseRequest::steal) and an operator can be faster; the fencing token then rejects the old
    /// holder's writes.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.kept.token().clone()
    }

    /// Waits until the lease is lost, and returns the reason.
    ///
    /// # Cancel safety
    /// Cancel-safe: no loss is missed between two calls.
    pub async fn lost(&self) -> LostReason {
        self.kept.token().cancelled().await;
        self.kept.lost().unwrap_or_else(LostReason::too_late)
    }

    /// Returns whether the lease is lost. The clock decides, so the result is right even if this process was suspended
    /// until just now.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.kept.lost().is_some()
    }

    /// Returns the instant until which the holder may act if no further renewal succeeds.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.kept.deadline()
    }

    /// Binds the guard to the calling task, after it was moved there. A second request then fails with
    /// [`LeaseError::Reentrant`] in this task, and no longer in the task that acquired the lease.
    pub fn adopt(&self) {
        registry::adopt(&self.owner, TaskId::current());
    }

    /// Releases the lease. Before the time of [`LeaseRequest::at_least`](super::LeaseRequest::at_least) is over, the lease is shortened
    /// to that instant instead.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] when another holder has the lease or its row was removed, [`LeaseError::Write`] when the
    /// store did not accept the release. Neither changes anything that was committed. The release is retried in the
    /// background until the lease would have expired anyway.
    ///
    /// # Cancel safety
    /// The release completes even if the future is dropped.
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

    /// Stops the renewal. Returns the batch that ends the lease in the store, if it is still held there.
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
        let longer = self.at_least.saturating_duration_since(process::now());
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
        apply_release(store, row, batch, self.kept.ttl())
    }

    fn lost_because(&self, reason: LostReason) -> LeaseError {
        LeaseError::Lost { key: self.key.clone(), fence: self.fence(), reason }
    }
}

impl Drop for LeaseGuard {
    /// Releases the lease in the background. If the process ends first, the lease expires.
    fn drop(&mut self) {
        if let Some(batch) = self.end() {
            drop(TASKS.spawn(self.settled(batch)));
        }
    }
}
