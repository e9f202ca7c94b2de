//! A store behind a wire that can be cut: writes fail from then on, and reads go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tidelock_core::clock::Timestamp;
use tidelock_core::id::{Epoch, OpId};
use tidelock_core::key::{Key, KeyPrefix};
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
impl Store for Wire {
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

    async fn resolve(&self, id: OpId) -> Result<Resolution, StoreError> {
        self.store.resolve(id).await
    }

    async fn operation(&self, id: OpId) -> Result<Option<Receipt>, StoreError> {
        self.store.operation(id).await
    }

    async fn document(&self, key: &Key) -> Result<Option<Document>, StoreError> {
        self.store.document(key).await
    }

    async fn documents(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<Document>, StoreError> {
        self.store.documents(prefix, page).await
    }

    async fn stream(&self, key: &Key) -> Result<Option<StreamInfo>, StoreError> {
        self.store.stream(key).await
    }

    async fn streams(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StreamInfo>, StoreError> {
        self.store.streams(prefix, page).await
    }

    async fn read_stream(&self, query: StreamQuery) -> Result<EventPage, StoreError> {
        self.store.read_stream(query).await
    }

    async fn read_log(&self, query: LogQuery) -> Result<EventPage, StoreError> {
        self.store.read_log(query).await
    }

    async fn work(&self, key: &Key) -> Result<Option<WorkRow>, StoreError> {
        self.store.work(key).await
    }

    async fn works(&self, filter: &WorkFilter, page: Page) -> Result<PageOf<WorkRow>, StoreError> {
        self.store.works(filter, page).await
    }

    async fn count_work(&self, filter: &WorkFilter) -> Result<u64, StoreError> {
        self.store.count_work(filter).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        self.store.sweep(sweep).await
    }

    fn epoch(&self) -> Epoch {
        self.store.epoch()
    }

    async fn declare_cut(&self, reason: &str) -> Result<HistoryCut, StoreError> {
        self.store.declare_cut(reason).await
    }

    fn watch(&self) -> Watch {
        self.store.watch()
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.store.now().await
    }

    async fn info(&self) -> Result<StoreInfo, StoreError> {
        self.store.info().await
    }
}
