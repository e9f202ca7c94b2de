//! A row that this process holds: the keeper renews it until it is let go.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::keeper;
use super::kept::Kept;
use super::{LeaseError, LostReason};
use crate::error::{Explain as _, Outcome, Retry};
use crate::lock::sleep_until;
use crate::store::{ApplyError, Batch, Grant, Lease, Receipt, Refusal, SharedStore};

/// A row that is held. Dropped, it is renewed no more, and ends by itself.
#[derive(Debug)]
pub(crate) struct Holding {
    store: SharedStore,
    kept: Arc<Kept>,
}

/// What became of a batch under a lease.
#[derive(Debug)]
pub(crate) enum Committed {
    /// It was applied.
    Done(Box<Receipt>),
    /// The row is not ours any more, or it is not known whose it is. Whoever gets it next sees what is true.
    Gone,
    /// It was refused, for a reason other than the lease.
    Refused(Box<Refusal>),
}

impl Holding {
    /// Keeps a row that was asked for at `sent`.
    pub(crate) fn start(
        store: &SharedStore,
        grant: &Grant,
        ttl: Duration,
        sent: Instant,
    ) -> Result<Self, LeaseError> {
        let kept = Kept::start(store, grant.lease(), ttl, sent)?;
        Ok(Self { store: Arc::clone(store), kept })
    }

    pub(crate) fn lease(&self) -> &Lease {
        self.kept.lease()
    }

    /// Fires when the row may soon be somebody else's.
    pub(crate) fn token(&self) -> &CancellationToken {
        self.kept.token()
    }

    /// Why the row is lost, when it is.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        self.kept.lost()
    }

    /// Applies a batch whose first condition is that the row is still ours.
    ///
    /// A store that fails for a while is asked again for as long as the lease lasts. When it is not known whether the batch
    /// was applied, the row is handed back: from then on it cannot be applied any more, and the row says whether it was.
    pub(crate) async fn commit(&self, batch: Batch) -> Committed {
        let guarded = Batch::new().guard_lease(self.lease()).and(batch);
        loop {
            if self.lost().is_some() {
                return Committed::Gone;
            }
            let error = match self.store.apply(guarded.clone()).await {
                Ok(receipt) => return Committed::Done(Box::new(receipt)),
                Err(ApplyError::Refused(refusal)) => {
                    return match *refusal {
                        Refusal::Fenced { ref key, .. } if *key == self.lease().key => Committed::Gone,
                        _ => Committed::Refused(refusal),
                    };
                }
                Err(error) => error,
            };
            let row = &self.lease().key;
            match (error.outcome(), error.retry()) {
                (Outcome::NotApplied, Retry::After(wait)) => {
                    tracing::debug!(target: crate::telemetry::LEASE, %row, %error, "a commit is tried again");
                    tokio::select! {
                        () = self.token().cancelled() => {}
                        () = sleep_until(Instant::now() + wait) => {}
                    }
                }
                _ => {
                    tracing::warn!(target: crate::telemetry::LEASE, %row, %error, "a commit failed; the row is handed back");
                    self.release().await;
                    return Committed::Gone;
                }
            }
        }
    }

    /// It is renewed no more: the row was finished by a batch of the caller.
    pub(crate) fn let_go(&self) {
        self.kept.lose(LostReason::Released);
    }

    /// Ends the hold by a batch of the caller, on the keeper's thread: it is carried out even if nobody waits for it. If the store
    /// fails, that is tried again for as long as the lease lasts.
    pub(crate) fn end(&self, batch: Batch) -> Option<JoinHandle<()>> {
        self.let_go();
        let settled =
            keeper::settle(Arc::clone(&self.store), self.lease().key.clone(), batch, self.kept.ttl());
        keeper::spawn(async move { drop(settled.await) }).ok()
    }

    /// Hands the row back untouched. If the store fails, that is tried again for as long as the lease lasts.
    pub(crate) async fn release(&self) {
        self.kept.lose(LostReason::Released);
        let (lease, store) = (self.lease(), Arc::clone(&self.store));
        let batch = Batch::new().release(lease);
        // Whoever has the row by now need not be told that we have not.
        drop(keeper::settle(store, lease.key.clone(), batch, self.kept.ttl()).await);
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.kept.lose(LostReason::Released);
    }
}
