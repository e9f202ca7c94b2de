//! Simulated partition: a store behind a connection that can be cut. From then on writes fail, while reads still work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tidelock_core::store::*;

/// A store behind a connection that can be cut.
#[derive(Debug)]
pub(crate) struct Wire {
    store: SharedStore,
    cut: AtomicBool,
    loses: AtomicBool,
    drops: AtomicBool,
}

impl Wire {
    pub(crate) fn to(store: &SharedStore) -> Arc<Self> {
        Arc::new(Self {
            store: Arc::clone(store),
            cut: AtomicBool::new(false),
            loses: AtomicBool::new(false),
            drops: AtomicBool::new(false),
        })
    }

    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// Delivers the next write, but loses its answer and all later requests.
    pub(crate) fn cut_behind_the_next(&self) {
        self.loses.store(true, Ordering::SeqCst);
    }

    /// Loses the next write without a trace: its outcome is unknown.
    pub(crate) fn drop_the_next(&self) {
        self.drops.store(true, Ordering::SeqCst);
    }

    pub(crate) fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }

    fn whole(&self) -> Result<(), StoreError> {
        if self.cut.load(Ordering::SeqCst) { Err(broken()) } else { Ok(()) }
    }
}

fn broken() -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, "a case", "the wire is cut")
}

#[async_trait]
impl tidelock_core::store::layer::StoreLayer for Wire {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        self.whole().map_err(ApplyError::not_applied)?;
        if self.drops.swap(false, Ordering::SeqCst) {
            return Err(ApplyError::unknown(broken(), batch.id()));
        }
        // Cut before the write: a case that sees the write may mend the connection before the answer arrives.
        if self.loses.swap(false, Ordering::SeqCst) {
            self.cut();
            let id = batch.id();
            drop(self.store.apply(batch).await);
            return Err(ApplyError::unknown(broken(), id));
        }
        self.store.apply(batch).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        self.whole()?;
        self.store.claim(claim).await
    }
}
