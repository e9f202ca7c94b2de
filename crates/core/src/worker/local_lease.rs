//! A lease as its holder sees it: a deadline on the local monotonic clock, and the reason of its loss.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::renewal::{NoThread, Renewer};
use crate::id::{Fence, Owner};
use crate::process::{self, PerProcess};
use crate::store::{Holder, Lease, LeaseRow, SharedStore};
use crate::telemetry::{LEASES_LOST, count};

/// A lease of this process, renewed in the background.
#[derive(Debug)]
pub(crate) struct LocalLease {
    renewer: Arc<Renewer>,
    store: SharedStore,
    lease: Lease,
    ttl: Duration,
    deadline: Mutex<Instant>,
    reason: Mutex<Option<LostReason>>,
    token: CancellationToken,
    /// Its key among the leases before their first renewal.
    young: Mutex<Option<(Instant, u64)>>,
}

impl LocalLease {
    /// Starts to renew a lease whose claim was sent at `sent`.
    pub(crate) fn start(
        renewer: &'static PerProcess<Arc<Renewer>>,
        store: &SharedStore,
        lease: Lease,
        ttl: Duration,
        sent: Instant,
    ) -> Result<Arc<Self>, NoThread> {
        let renewer = renewer.with(Arc::clone);
        let kept = Arc::new(Self {
            renewer: Arc::clone(&renewer),
            store: Arc::clone(store),
            lease,
            ttl,
            deadline: Mutex::new(sent + ttl - margin(ttl)),
            reason: Mutex::new(None),
            token: CancellationToken::new(),
            young: Mutex::new(None),
        });
        renewer.adopt(&kept)?;
        Ok(kept)
    }

    /// Notes the key among the leases before their first renewal.
    pub(super) fn adopted(&self, place: (Instant, u64)) {
        *self.young.lock() = Some(place);
    }

    pub(crate) fn store(&self) -> &SharedStore {
        &self.store
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Returns the instant until which the holder may act.
    pub(crate) fn deadline(&self) -> Instant {
        *self.deadline.lock()
    }

    /// Extends the deadline after a renewal sent at `sent`, with the time left by the store's clock, read after `asked`.
    pub(crate) fn renewed(&self, sent: Instant, asked: Instant, left: Duration) {
        let end = (sent + self.ttl).min(asked + left.min(self.ttl));
        *self.deadline.lock() = end - margin(self.ttl);
    }

    /// Returns whether the deadline has passed, independent of the renewal thread.
    pub(crate) fn is_over(&self) -> bool {
        self.token.is_cancelled() || process::now() >= self.deadline()
    }

    /// Returns the reason of the loss. A lease that was once lost stays lost.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        if self.is_over() {
            self.lose(LostReason::too_late());
        }
        self.reason.lock().clone()
    }

    /// Marks the lease as lost. The first reason counts.
    pub(crate) fn lose(&self, reason: LostReason) {
        let first = {
            let mut known = self.reason.lock();
            let first = known.is_none();
            let reason = known.get_or_insert(reason);
            if let Some(word) = reason.word().filter(|_| first) {
                count(LEASES_LOST, word, 1);
            }
            first
        };
        if first {
            self.token.cancel();
        }
    }
}

impl Drop for LocalLease {
    fn drop(&mut self) {
        if let Some(place) = self.young.get_mut().take() {
            self.renewer.disown(place);
        }
    }
}

/// Returns the safety margin before the store's expiry: a tenth, and enough to wake a thread.
fn margin(ttl: Duration) -> Duration {
    (ttl / 10).max(Duration::from_millis(10)).min(ttl / 2)
}

/// The reason why a lease was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostReason {
    /// Another owner has it: it expired in the store, or was stolen.
    Taken {
        /// The new owner.
        by: Owner,
        /// The fence of the new owner.
        fence: Fence,
    },
    /// The row was reset or removed, or finished under this lease by other means than [`LeaseGuard`](crate::lease::LeaseGuard).
    Revoked,
    /// No renewal succeeded in time, so the holder gave up before another owner can have it.
    CouldNotRenew {
        /// The error of the last attempt.
        error: String,
    },
    /// The holder released it.
    Released,
}

impl LostReason {
    /// Returns the metric label; none for a release.
    pub(super) fn word(&self) -> Option<&'static str> {
        match self {
            Self::Taken { .. } => Some("taken_over"),
            Self::Revoked => Some("revoked"),
            Self::CouldNotRenew { .. } => Some("expired"),
            Self::Released => None,
        }
    }

    /// Returns the reason for a stale fence.
    pub(crate) fn of(holder: &Holder) -> Self {
        match holder {
            Holder::Held(LeaseRow { owner, fence, .. }) => Self::Taken { by: owner.clone(), fence: *fence },
            Holder::Nobody | Holder::Gone => Self::Revoked,
        }
    }

    /// Returns the reason for a deadline that passed without a failed renewal.
    pub(crate) fn too_late() -> Self {
        Self::CouldNotRenew { error: "this process was stopped, or too busy".to_owned() }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { by, fence } => write!(f, "{by} has it with fence {fence}"),
            Self::Revoked => f.write_str("it was reset, removed or finished"),
            Self::CouldNotRenew { error } => write!(f, "it could not be renewed in time: {error}"),
            Self::Released => f.write_str("it was released"),
        }
    }
}
