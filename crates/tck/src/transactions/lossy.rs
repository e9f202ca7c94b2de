//! A connection that loses replies, and delivers some batches after it reported an unknown outcome.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tidelock_core::store::layer::StoreLayer;
use tidelock_core::store::*;

use crate::rng::Rng;

#[derive(Debug)]
pub(super) struct Lossy {
    store: SharedStore,
    rng: Mutex<Rng>,
}

/// The fate of a batch.
enum Fate {
    Arrives,
    /// It never reaches the store.
    IsLost,
    /// It is applied; the reply is lost.
    LosesReply,
    /// It reaches the store later, at a time when the client may already resolve it.
    IsLate(usize),
}

impl Lossy {
    pub(super) fn over(seed: u64, store: &SharedStore) -> SharedStore {
        Arc::new(Self { store: Arc::clone(store), rng: Mutex::new(Rng::new(seed)) })
    }

    fn fate(&self) -> Fate {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        match rng.below(24) {
            0 => Fate::IsLost,
            1 | 2 => Fate::LosesReply,
            3 | 4 => Fate::IsLate(rng.below(200)),
            _ => Fate::Arrives,
        }
    }
}

#[async_trait]
impl StoreLayer for Lossy {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        let id = batch.id();
        match self.fate() {
            Fate::Arrives => return self.store.apply(batch).await,
            Fate::IsLost => {}
            Fate::LosesReply => drop(self.store.apply(batch).await),
            Fate::IsLate(yields) => {
                let store = Arc::clone(&self.store);
                tokio::spawn(async move {
                    for _ in 0..yields {
                        tokio::task::yield_now().await;
                    }
                    drop(store.apply(batch).await);
                });
            }
        }
        let error = StoreError::new(StoreErrorKind::Unreachable, "a case", "the reply is lost");
        Err(ApplyError::unknown(error, id))
    }
}
