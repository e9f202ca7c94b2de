//! A row that this process holds and renews until it is released.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::background::TASKS;
use super::keeper::{self, LEASES};
use super::kept::Kept;
use super::{LeaseError, LostReason};
use crate::clock::Due;
use crate::error::{Explain as _, Outcome, Retry};
use crate::id::Epoch;
use crate::runtime::timer::sleep_until;
use crate::store::{ApplyError, Batch, Grant, Lease, Receipt, Refusal, SharedStore};

/// A row that is held. Dropped, it is renewed no more, and ends by itself.
#[derive(Debug)]
pub(crate) struct Holding {
    store: SharedStore,
    kept: Arc<Kept>,
    /// The epoch of the grant: what its holder knows belongs to it.
    epoch: Epoch,
    /// A commit of which nobody knows whether it arrived leaves a word in the row, so that the next holder is warned.
    counts_unknown: bool,
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
        let kept = Kept::start(&LEASES, store, grant.lease(), ttl, sent)?;
        Ok(Self { store: Arc::clone(store), kept, epoch: grant.epoch, counts_unknown: false })
    }

    /// The same for a holder whose work has effects outside the store: a claim that ended without a known commit counts.
    pub(crate) fn counting_unknown(mut self) -> Self {
        self.counts_unknown = true;
        self
    }

    pub(crate) fn lease(&self) -> &Lease {
        self.kept.lease()
    }

    /// Whether the history of the store was cut since the row was granted.
    pub(crate) fn is_of_another_epoch(&self) -> bool {
        self.epoch != self.store.epoch()
    }

    /// Fires when the row may soon be somebody else's.
    pub(crate) fn token(&self) -> &CancellationToken {
        self.kept.token()
    }

    /// Why the row is lost, when it is.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        self.kept.lost()
    }

    /// Applies a batch whose first condition is that the row is still ours, in the epoch in which it was granted. After
    /// a cut of the history the row is handed back: the holder may know events that were lost.
    ///
    /// A store that fails for a while is asked again for as long as the lease lasts. When it is not known whether the batch
    /// was applied, the row is handed back: from then on it cannot be applied any more, and the row says whether it was.
    pub(crate) async fn commit(&self, batch: Batch) -> Committed {
        let guarded = Batch::new().guard_lease(self.lease()).and(batch).observed_in(self.epoch);
        loop {
            if self.lost().is_some() {
                return Committed::Gone;
            }
            let error = match self.store.apply(guarded.clone()).await {
                Ok(receipt) => return Committed::Done(Box::new(receipt)),
                Err(ApplyError::Refused(refusal)) => {
                    return match *refusal {
                        Refusal::Epoch { .. } => {
                            self.release().await;
                            Committed::Gone
                        }
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
                    if self.counts_unknown {
                        self.hand_back("it is not known whether its last commit arrived").await;
                    } else {
                        self.release().await;
                    }
                    return Committed::Gone;
                }
            }
        }
    }

    /// It is renewed no more: the row was finished by a batch of the caller.
    pub(crate) fn let_go(&self) {
        self.kept.lose(LostReason::Released);
    }

    /// Ends the hold by a batch of the caller, in the background, also when the caller is dropped. If the store fails,
    /// it retries for as long as the lease lasts.
    pub(crate) fn end(&self, batch: Batch) -> Option<JoinHandle<()>> {
        self.let_go();
        let settled =
            keeper::settle(Arc::clone(&self.store), self.lease().key.clone(), batch, self.kept.ttl());
        TASKS.spawn(async move { drop(settled.await) }).ok()
    }

    /// Hands the row back untouched. If the store fails, that is tried again for as long as the lease lasts.
    pub(crate) async fn release(&self) {
        self.let_go_with(Batch::new().release(self.lease())).await;
    }

    /// Hands the row back at once, with a reason: the claim counts, because something may have been done.
    pub(crate) async fn hand_back(&self, reason: &str) {
        self.let_go_with(Batch::new().fail(self.lease(), reason, Due::Now)).await;
    }

    async fn let_go_with(&self, batch: Batch) {
        self.kept.lose(LostReason::Released);
        let (lease, store) = (self.lease(), Arc::clone(&self.store));
        // Whoever has the row by now need not be told that we have not.
        drop(keeper::settle(store, lease.key.clone(), batch, self.kept.ttl()).await);
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.kept.lose(LostReason::Released);
    }
}
