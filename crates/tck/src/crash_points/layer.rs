//! A connection whose process crashes at a point.

use std::sync::Arc;

use async_trait::async_trait;
use tidelock_core::clock::Timestamp;
use tidelock_core::id::{OpId, QueueName};
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::store::layer::StoreLayer;
use tidelock_core::store::*;

use super::CrashPoint;

/// Returns a connection for one process.
pub(super) fn crashing(store: &SharedStore, crash: &Arc<CrashPoint>) -> SharedStore {
    Arc::new(Crashing { store: Arc::clone(store), crash: Arc::clone(crash) })
}

#[derive(Debug)]
struct Crashing {
    store: SharedStore,
    crash: Arc<CrashPoint>,
}

impl Crashing {
    /// Calls the store, with a point before and after the call.
    async fn changes<T>(&self, call: impl Future<Output = T>) -> T {
        self.crash.pass().await;
        let answer = call.await;
        self.crash.pass().await;
        answer
    }

    /// Calls the store without points.
    async fn reads<T>(&self, call: impl Future<Output = T>) -> T {
        self.crash.alive().await;
        let answer = call.await;
        self.crash.alive().await;
        answer
    }
}

#[async_trait]
impl StoreLayer for Crashing {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        self.changes(self.store.apply(batch)).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        let claimed = self.reads(self.store.claim(claim)).await?;
        if !claimed.grants.is_empty() {
            self.crash.pass().await;
        }
        Ok(claimed)
    }

    async fn resolve(&self, id: OpId) -> Result<Resolution, StoreError> {
        self.changes(self.store.resolve(id)).await
    }

    async fn declare_cut(&self, reason: &str) -> Result<HistoryCut, StoreError> {
        self.changes(self.store.declare_cut(reason)).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        self.changes(self.store.sweep(sweep)).await
    }

    async fn next_ready(&self, queues: &[QueueName]) -> Result<NextReady, StoreError> {
        self.reads(self.store.next_ready(queues)).await
    }

    async fn read(&self, gets: &[Get]) -> Result<RowSet, StoreError> {
        self.reads(self.store.read(gets)).await
    }

    async fn operation(&self, id: OpId) -> Result<Option<Receipt>, StoreError> {
        self.reads(self.store.operation(id)).await
    }

    async fn document(&self, key: &Key) -> Result<Option<StoredDocument>, StoreError> {
        self.reads(self.store.document(key)).await
    }

    async fn documents(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StoredDocument>, StoreError> {
        self.reads(self.store.documents(prefix, page)).await
    }

    async fn count_documents(&self, prefix: &KeyPrefix) -> Result<u64, StoreError> {
        self.reads(self.store.count_documents(prefix)).await
    }

    async fn stream(&self, key: &Key) -> Result<Option<StreamInfo>, StoreError> {
        self.reads(self.store.stream(key)).await
    }

    async fn streams(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StreamInfo>, StoreError> {
        self.reads(self.store.streams(prefix, page)).await
    }

    async fn read_stream(&self, query: StreamQuery) -> Result<EventPage, StoreError> {
        self.reads(self.store.read_stream(query)).await
    }

    async fn read_log(&self, query: LogQuery) -> Result<EventPage, StoreError> {
        self.reads(self.store.read_log(query)).await
    }

    async fn work(&self, key: &Key) -> Result<Option<WorkRow>, StoreError> {
        self.reads(self.store.work(key)).await
    }

    async fn works(&self, filter: &WorkFilter, page: Page) -> Result<PageOf<WorkRow>, StoreError> {
        self.reads(self.store.works(filter, page)).await
    }

    async fn count_work(&self, filter: &WorkFilter) -> Result<u64, StoreError> {
        self.reads(self.store.count_work(filter)).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.reads(self.store.now()).await
    }
}
