//! Stores that wrap a store: count, delay or fail its operations.

use std::fmt;

use async_trait::async_trait;

use super::*;
use crate::clock::Timestamp;
use crate::id::{Epoch, OpId, QueueName};
use crate::key::{Key, KeyPrefix};

/// A layer over a store. Every operation goes to [`inner`](Self::inner), unless the layer overrides it.
///
/// Use it for fault injection in tests, for counting, or for custom tracing. A type that implements it is a [`Store`]. Code
/// that calls it needs only that trait in scope.
///
/// ```
/// use async_trait::async_trait;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tidelock_core::store::layer::StoreLayer;
/// use tidelock_core::store::{ApplyError, Batch, MemoryStore, Receipt, Store};
///
/// #[derive(Debug, Default)]
/// struct CountedWrites {
///     store: MemoryStore,
///     writes: AtomicU64,
/// }
///
/// #[async_trait]
/// impl StoreLayer for CountedWrites {
///     fn inner(&self) -> &dyn Store {
///         &self.store
///     }
///
///     async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
///         self.writes.fetch_add(1, Ordering::Relaxed);
///         self.store.apply(batch).await
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ApplyError> {
/// let store = CountedWrites::default();
/// Store::apply(&store, Batch::new()).await?;
/// assert_eq!(store.writes.load(Ordering::Relaxed), 1);
/// # Ok(())
/// # }
/// ```
#[async_trait]
#[expect(missing_docs, reason = "each operation is that of Store")]
pub trait StoreLayer: Send + Sync + fmt::Debug + 'static {
    /// Returns the wrapped store.
    fn inner(&self) -> &dyn Store;

    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        self.inner().apply(batch).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        self.inner().claim(claim).await
    }

    async fn next_ready(&self, queues: &[QueueName]) -> Result<NextReady, StoreError> {
        self.inner().next_ready(queues).await
    }

    async fn resolve(&self, id: OpId) -> Result<Resolution, StoreError> {
        self.inner().resolve(id).await
    }

    async fn read(&self, gets: &[Get]) -> Result<RowSet, StoreError> {
        self.inner().read(gets).await
    }

    async fn operation(&self, id: OpId) -> Result<Option<Receipt>, StoreError> {
        self.inner().operation(id).await
    }

    async fn document(&self, key: &Key) -> Result<Option<StoredDocument>, StoreError> {
        self.inner().document(key).await
    }

    async fn documents(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StoredDocument>, StoreError> {
        self.inner().documents(prefix, page).await
    }

    async fn count_documents(&self, prefix: &KeyPrefix) -> Result<u64, StoreError> {
        self.inner().count_documents(prefix).await
    }

    async fn stream(&self, key: &Key) -> Result<Option<StreamInfo>, StoreError> {
        self.inner().stream(key).await
    }

    async fn streams(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StreamInfo>, StoreError> {
        self.inner().streams(prefix, page).await
    }

    async fn read_stream(&self, query: StreamQuery) -> Result<EventPage, StoreError> {
        self.inner().read_stream(query).await
    }

    async fn read_log(&self, query: LogQuery) -> Result<EventPage, StoreError> {
        self.inner().read_log(query).await
    }

    async fn work(&self, key: &Key) -> Result<Option<WorkRow>, StoreError> {
        self.inner().work(key).await
    }

    async fn works(&self, filter: &WorkFilter, page: Page) -> Result<PageOf<WorkRow>, StoreError> {
        self.inner().works(filter, page).await
    }

    async fn count_work(&self, filter: &WorkFilter) -> Result<u64, StoreError> {
        self.inner().count_work(filter).await
    }

    fn epoch(&self) -> Epoch {
        self.inner().epoch()
    }

    async fn declare_cut(&self, reason: &str) -> Result<HistoryCut, StoreError> {
        self.inner().declare_cut(reason).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        self.inner().sweep(sweep).await
    }

    fn watch(&self) -> Watch {
        self.inner().watch()
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.inner().now().await
    }

    fn estimated_now(&self) -> Timestamp {
        self.inner().estimated_now()
    }

    async fn info(&self) -> Result<StoreInfo, StoreError> {
        self.inner().info().await
    }
}

#[async_trait]
impl<L: StoreLayer> Store for L {
    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        StoreLayer::apply(self, batch).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        StoreLayer::claim(self, claim).await
    }

    async fn next_ready(&self, queues: &[QueueName]) -> Result<NextReady, StoreError> {
        StoreLayer::next_ready(self, queues).await
    }

    async fn resolve(&self, id: OpId) -> Result<Resolution, StoreError> {
        StoreLayer::resolve(self, id).await
    }

    async fn read(&self, gets: &[Get]) -> Result<RowSet, StoreError> {
        StoreLayer::read(self, gets).await
    }

    async fn operation(&self, id: OpId) -> Result<Option<Receipt>, StoreError> {
        StoreLayer::operation(self, id).await
    }

    async fn document(&self, key: &Key) -> Result<Option<StoredDocument>, StoreError> {
        StoreLayer::document(self, key).await
    }

    async fn documents(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StoredDocument>, StoreError> {
        StoreLayer::documents(self, prefix, page).await
    }

    async fn count_documents(&self, prefix: &KeyPrefix) -> Result<u64, StoreError> {
        StoreLayer::count_documents(self, prefix).await
    }

    async fn stream(&self, key: &Key) -> Result<Option<StreamInfo>, StoreError> {
        StoreLayer::stream(self, key).await
    }

    async fn streams(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StreamInfo>, StoreError> {
        StoreLayer::streams(self, prefix, page).await
    }

    async fn read_stream(&self, query: StreamQuery) -> Result<EventPage, StoreError> {
        StoreLayer::read_stream(self, query).await
    }

    async fn read_log(&self, query: LogQuery) -> Result<EventPage, StoreError> {
        StoreLayer::read_log(self, query).await
    }

    async fn work(&self, key: &Key) -> Result<Option<WorkRow>, StoreError> {
        StoreLayer::work(self, key).await
    }

    async fn works(&self, filter: &WorkFilter, page: Page) -> Result<PageOf<WorkRow>, StoreError> {
        StoreLayer::works(self, filter, page).await
    }

    async fn count_work(&self, filter: &WorkFilter) -> Result<u64, StoreError> {
        StoreLayer::count_work(self, filter).await
    }

    fn epoch(&self) -> Epoch {
        StoreLayer::epoch(self)
    }

    async fn declare_cut(&self, reason: &str) -> Result<HistoryCut, StoreError> {
        StoreLayer::declare_cut(self, reason).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        StoreLayer::sweep(self, sweep).await
    }

    fn watch(&self) -> Watch {
        StoreLayer::watch(self)
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        StoreLayer::now(self).await
    }

    fn estimated_now(&self) -> Timestamp {
        StoreLayer::estimated_now(self)
    }

    async fn info(&self) -> Result<StoreInfo, StoreError> {
        StoreLayer::info(self).await
    }
}
