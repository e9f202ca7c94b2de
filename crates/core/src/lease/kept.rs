//! A lease that this process keeps, and the holder's own clock: until when it may act, and why it may not any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::error::{LeaseError, LostReason};
use super::keeper::Renewer;
use crate::store::{Lease, SharedStore};
use crate::telemetry::{LEASES_LOST, count};

/// A lease that is renewed.
#[derive(Debug)]
pub(crate) struct Kept {
    renewer: &'static Renewer,
    store: SharedStore,
    lease: Lease,
    ttl: Duration,
    deadline: Mutex<Instant>,
    reason: Mutex<Option<LostReason>>,
    token: CancellationToken,
    /// Its place among those that were never renewed.
    young: Mutex<Option<(Instant, u64)>>,
}

impl Kept {
    /// Begins to renew a lease that was claimed at `sent`.
    pub(super) fn start(
        renewer: &'static Renewer,
        store: &SharedStore,
        lease: Lease,
        ttl: Duration,
        sent: Instant,
    ) -> Result<Arc<Self>, LeaseError> {
        let kept = Arc::new(Self {
            renewer,
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

    /// It has a place among those that were never renewed.
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

    /// Until when the holder may act.
    pub(crate) fn deadline(&self) -> Instant {
        *self.deadline.lock()
    }

    /// A renewal that was sent at `sent` succeeded, and the store said after `asked` how much is left.
    pub(crate) fn renewed(&self, sent: Instant, asked: Instant, left: Duration) {
        let end = (sent + self.ttl).min(asked + left.min(self.ttl));
        *self.deadline.lock() = end - margin(self.ttl);
    }

    /// Whether the holder's time is over. This does not wait for the thread that would say so.
    pub(crate) fn is_over(&self) -> bool {
        self.token.is_cancelled() || Instant::now() >= self.deadline()
    }

    /// Why the lease is lost, when it is. Whoever has seen that it is lost never sees it kept again.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        if self.is_over() {
            self.lose(LostReason::too_late());
        }
        self.reason.lock().clone()
    }

    /// The lease is lost; the first reason counts.
    pub(crate) fn lose(&self, reason: LostReason) {
        let first = {
            let mut known = self.reason.lock();
            let first = known.is_none();
            let reason = known.get_or_insert(reason);
            if let Some(word) = reason.word().filter(|_| first) {
                count(LEASES_LOST, "reason", word, 1);
            }
            first
        };
        if first {
            self.token.cancel();
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(place) = self.young.get_mut().take() {
            self.renewer.disown(place);
        }
    }
}

/// How much earlier than the store the holder ends: a tenth, and enough for a thread to be woken.
fn margin(ttl: Duration) -> Duration {
    (ttl / 10).max(Duration::from_millis(10)).min(ttl / 2)
}
