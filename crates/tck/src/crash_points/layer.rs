//! A connection whose process crashes at a point.

use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// Counts a call while it is in flight.
struct InFlight(Arc<CrashPoint>);

impl InFlight {
    fn new(crash: &Arc<CrashPoint>) -> Self {
        crash.in_flight.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(crash))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug)]
struct Crashing {
    store: SharedStore,
    crash: Arc<CrashPoint>,
}

impl Crashing {
    /// Calls the store, with a point before and after the call.
    async fn changes<T: Send + 'static>(&self, call: impl Future<Output = T> + Send + 'static) -> T {
        self.crash.pass().await;
        let answer = self.sent(call).await;
        self.crash.pass().await;
        answer
    }

    /// Calls the store in a task of its own. A call that a crashed process has sent still arrives, and the driver waits for it.
    async fn sent<T: Send + 'static>(&self, call: impl Future<Output = T> + Send + 'static) -> T {
        let in_flight = InFlight::new(&self.crash);
        let sent = tokio::spawn(async move {
            let answer = call.await;
            drop(in_flight);
            answer
        });
        sent.await.expect("a store does not panic")
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
        let store = Arc::clone(&self.store);
        self.changes(async move { store.apply(batch).await }).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        self.crash.alive().await;
        let store = Arc::clone(&self.store);
        let claimed = self.sent(async move { store.claim(claim).await }).await?;
        self.crash.alive().await;
        if !claimed.grants.is_empty() {
            self.crash.pass().await;
        }
        Ok(claimed)
    }

    async fn resolve(&self, id: OpId) -> Result<Resolution, StoreError> {
        let store = Arc::clone(&self.store);
        self.changes(async move { store.resolve(id).await }).await
    }

    async fn declare_cut(&self, reason: &str) -> Result<HistoryCut, StoreError> {
        let (store, reason) = (Arc::clone(&self.store), reason.to_owned());
        self.changes(async move { store.declare_cut(&reason).await }).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        let store = Arc::clone(&self.store);
        self.changes(async move { store.sweep(sweep).await }).await
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
