//! A store behind a wire that can be cut: writes fail from then on, and reads go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tidelock_core::store::*;

/// A store behind a wire.
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

    /// The next write arrives. Its answer does not, nor does anything after it.
    pub(crate) fn cut_behind_the_next(&self) {
        self.loses.store(true, Ordering::SeqCst);
    }

    /// The next write does not arrive, and nobody knows.
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
        // The wire is cut before the write: a case that sees the write may mend the wire before the answer is here.
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
