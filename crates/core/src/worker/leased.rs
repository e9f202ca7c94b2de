//! A leased work row, renewed until it is released.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::local_lease::{LocalLease, LostReason};
use super::renewal::{LEASES, NoThread, TASKS, apply_release};
use crate::clock::Due;
use crate::error::{Explain as _, Outcome, Retry};
use crate::id::Epoch;
use crate::process;
use crate::runtime::timer::sleep_until;
use crate::store::{ApplyError, Batch, Grant, Lease, NewWork, Receipt, Refusal, SharedStore};
use crate::telemetry::WORKER;

/// A work row under a lease of this process. Dropping it ends renewal, and the lease expires.
#[derive(Debug)]
pub(crate) struct LeasedWork {
    store: SharedStore,
    kept: Arc<LocalLease>,
    /// The epoch of the grant.
    epoch: Epoch,
    /// The content of the row after it is handed back. If set, a commit with unknown outcome counts as a failed
    /// attempt.
    handed_back: Option<NewWork>,
}

/// The result of a batch under a lease.
#[derive(Debug)]
pub(crate) enum Committed {
    /// It was applied.
    Done(Box<Receipt>),
    /// The lease is lost, or its state is unknown. The next holder of the row sees the state in the store.
    Gone,
    /// It was rejected, for a reason other than the lease.
    Refused(Box<Refusal>),
}

impl LeasedWork {
    /// Starts to renew the lease of a grant whose claim was sent at `sent`.
    pub(crate) fn start(
        store: &SharedStore,
        grant: &Grant,
        ttl: Duration,
        sent: Instant,
    ) -> Result<Self, NoThread> {
        let kept = LocalLease::start(&LEASES, store, grant.lease(), ttl, sent)?;
        Ok(Self { store: Arc::clone(store), kept, epoch: grant.epoch, handed_back: None })
    }

    /// Counts a claim without a known commit as an attempt: for work with effects outside the store. A row that is handed back
    /// holds the payload of `handed_back`.
    pub(crate) fn counting_unknown(mut self, handed_back: NewWork) -> Self {
        self.handed_back = Some(handed_back);
        self
    }

    pub(crate) fn lease(&self) -> &Lease {
        self.kept.lease()
    }

    /// Returns whether the history of the store was cut since the grant.
    pub(crate) fn is_of_another_epoch(&self) -> bool {
        self.epoch != self.store.epoch()
    }

    /// Returns the token that fires before another worker can lease the row.
    pub(crate) fn token(&self) -> &CancellationToken {
        self.kept.token()
    }

    /// Returns the reason when the lease is lost.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        self.kept.lost()
    }

    /// Applies a batch on the condition that the lease is held in the epoch of the grant. After a cut of the history the row
    /// is released: the holder may know events that were lost.
    ///
    /// A failing store is retried for as long as the lease lasts. After an unknown outcome the row is released: from then
    /// on the batch cannot be applied, and the row shows whether it was.
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
                    tracing::debug!(target: WORKER, %row, %error, "commit failed, retrying");
                    tokio::select! {
                        biased;
                        () = self.token().cancelled() => {}
                        () = sleep_until(process::now() + wait) => {}
                    }
                }
                _ => {
                    tracing::warn!(target: WORKER, %row, %error, "commit failed, row released");
                    if self.handed_back.is_some() {
                        self.hand_back("it is not known whether its last commit arrived").await;
                    } else {
                        self.release().await;
                    }
                    return Committed::Gone;
                }
            }
        }
    }

    /// Ends renewal: a batch of the caller has finished the row.
    pub(crate) fn let_go(&self) {
        self.kept.lose(LostReason::Released);
    }

    /// Ends the lease by a batch of the caller, in the background. A failing store is retried for as long as the lease lasts.
    pub(crate) fn end(&self, batch: Batch) -> Option<JoinHandle<()>> {
        self.let_go();
        let settled =
            apply_release(Arc::clone(&self.store), self.lease().key.clone(), batch, self.kept.ttl());
        TASKS.spawn(async move { drop(settled.await) }).ok()
    }

    /// Releases the row unchanged. A failing store is retried for as long as the lease lasts.
    pub(crate) async fn release(&self) {
        self.let_go_with(Batch::new().release(self.lease())).await;
    }

    /// Releases the row with a reason. The attempt counts, because it may have had effects.
    pub(crate) async fn hand_back(&self, reason: &str) {
        let batch = Batch::new().fail(self.lease(), reason, Due::Now);
        self.let_go_with(self.handed_back.iter().cloned().fold(batch, Batch::enqueue)).await;
    }

    async fn let_go_with(&self, batch: Batch) {
        self.kept.lose(LostReason::Released);
        let (lease, store) = (self.lease(), Arc::clone(&self.store));
        // A new holder of the row needs no notice.
        drop(apply_release(store, lease.key.clone(), batch, self.kept.ttl()).await);
    }
}

impl Drop for LeasedWork {
    fn drop(&mut self) {
        self.kept.lose(LostReason::Released);
    }
}
