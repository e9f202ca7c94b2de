//! Claims in flight.

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use super::options::MIN_TTL;
use crate::id::Owner;
use crate::key::Key;
use crate::process;
use crate::store::{Claim, Claimed, SharedStore, StoreError};

/// The claims of one worker. The store executes a claim once it is sent, so the worker keeps track of those in flight.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    store: SharedStore,
    sent: TaskTracker,
}

impl Claims {
    pub(crate) fn new(store: &SharedStore) -> Self {
        Self { store: Arc::clone(store), sent: TaskTracker::new() }
    }

    /// Sends a claim and returns its result. Dropping the future does not stop the claim.
    pub(crate) async fn send(&self, claim: Claim) -> Result<Claimed, StoreError> {
        let store = Arc::clone(&self.store);
        match self.sent.spawn(process::bound(async move { store.claim(claim).await })).await {
            Ok(claimed) => claimed,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime shuts down, and this task with it.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Waits for the claims in flight: a later one would lease a row to a worker that is gone. The last claim is sent here,
    /// so that a store which executes writes in order has executed all others.
    pub(crate) async fn drain(&self, owner: &Owner) {
        self.sent.close();
        self.sent.wait().await;
        let Ok(absent) = Key::single("tidelock.absent") else { return };
        drop(self.store.claim(Claim::existing(owner, &absent, MIN_TTL)).await);
    }
}
