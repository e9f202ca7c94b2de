//! A store that cannot be reached from a certain write on, as if the process died before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tidelock::id::{Epoch, OpId};
use tidelock::prelude::*;
use tidelock::store::{
    ApplyError, Claim, Claimed, Document, EventPage, HistoryCut, LogQuery, Page, PageOf, Receipt, Resolution,
    StoreError, StoreErrorKind, StoreInfo, StreamInfo, Sweep, Swept, Watch, WorkFilter, WorkRow,
};

#[derive(Debug)]
pub(crate) struct Away {
    inner: SharedStore,
    /// Writes that still go through.
    left: AtomicUsize,
    /// Whether reading fails as well.
    pub(crate) reads: std::sync::atomic::AtomicBool,
    /// The schema that it says it has, if not its own.
    pub(crate) schema: AtomicUsize,
}

impl Away {
    pub(crate) fn after(inner: &SharedStore, writes: usize) -> Arc<Self> {
        let (inner, left) = (Arc::clone(inner), AtomicUsize::new(writes));
        Arc::new(Self { inner, left, reads: false.into(), schema: AtomicUsize::new(0) })
    }

    fn read(&self) -> Result<(), StoreError> {
        if self.reads.load(Ordering::SeqCst) { Err(away()) } else { Ok(()) }
    }
}

fn away() -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, "the store is away", "this is a test")
}

#[async_trait]
impl Store for Away {
    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        let one = |left: usize| left.checked_sub(1);
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one).is_err() {
            return Err(ApplyError::not_applied(away()));
        }
        self.inner.apply(batch).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        self.inner.claim(claim).await
    }

    async fn resolve(&self, id: OpId) -> Result<Resolution, StoreError> {
        self.inner.resolve(id).await
    }

    async fn operation(&self, id: OpId) -> Result<Option<Receipt>, StoreError> {
        self.inner.operation(id).await
    }

    async fn document(&self, key: &Key) -> Result<Option<Document>, StoreError> {
        self.inner.document(key).await
    }

    async fn documents(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<Document>, StoreError> {
        self.inner.documents(prefix, page).await
    }

    async fn stream(&self, key: &Key) -> Result<Option<StreamInfo>, StoreError> {
        self.inner.stream(key).await
    }

    async fn streams(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StreamInfo>, StoreError> {
        self.inner.streams(prefix, page).await
    }

    async fn read_stream(&self, query: StreamQuery) -> Result<EventPage, StoreError> {
        self.inner.read_stream(query).await
    }

    async fn read_log(&self, query: LogQuery) -> Result<EventPage, StoreError> {
        self.read()?;
        self.inner.read_log(query).await
    }

    async fn work(&self, key: &Key) -> Result<Option<WorkRow>, StoreError> {
        self.inner.work(key).await
    }

    async fn works(&self, filter: &WorkFilter, page: Page) -> Result<PageOf<WorkRow>, StoreError> {
        self.inner.works(filter, page).await
    }

    async fn count_work(&self, filter: &WorkFilter) -> Result<u64, StoreError> {
        self.inner.count_work(filter).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        self.inner.sweep(sweep).await
    }

    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    async fn declare_cut(&self, reason: &str) -> Result<HistoryCut, StoreError> {
        self.inner.declare_cut(reason).await
    }

    fn watch(&self) -> Watch {
        self.inner.watch()
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.inner.now().await
    }

    async fn info(&self) -> Result<StoreInfo, StoreError> {
        let info = self.inner.info().await?;
        match u32::try_from(self.schema.load(Ordering::SeqCst)).unwrap() {
            0 => Ok(info),
            schema => Ok(StoreInfo { schema, ..info }),
        }
    }
}
