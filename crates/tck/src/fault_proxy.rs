//! Fault proxy: a connection that intercepts writes on their way to the store and back.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tidelock_core::clock::Timestamp;
use tidelock_core::id::{Epoch, OpId, QueueName};
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::store::*;
use tokio::sync::Notify;

use crate::rng::Rng;

/// The hooks of a connection.
#[async_trait]
pub(crate) trait ProxyHooks: Send + Sync + fmt::Debug + 'static {
    /// Runs before the store receives the write.
    async fn there(&self);
    /// Runs before the caller receives the answer.
    async fn back(&self);
    /// Runs after a document was read, before the caller receives it.
    async fn seen(&self) {}
    /// Runs before the request reaches the store. An error replaces the answer.
    async fn asked(&self, _request: Request) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The kinds of requests that leases use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Apply,
    Claim,
    ReadRow,
    ReadPage,
    ReadClock,
}

/// A connection with hooks around its writes.
#[derive(Debug)]
pub(crate) struct Detour<W> {
    inner: Arc<dyn Store>,
    way: Arc<W>,
}

impl<W: ProxyHooks> Detour<W> {
    pub(crate) fn over(way: Arc<W>, inner: &Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Self { inner: Arc::clone(inner), way })
    }
}

/// A hook that yields to other tasks a random number of times.
#[derive(Debug)]
pub(crate) struct Dawdle {
    rng: Mutex<Rng>,
    most: usize,
}

impl Dawdle {
    pub(crate) fn new(seed: u64, most: usize) -> Arc<Self> {
        Arc::new(Self { rng: Mutex::new(Rng::new(seed)), most })
    }

    async fn dawdle(&self) {
        let times = self.rng.lock().unwrap_or_else(PoisonError::into_inner).below(self.most);
        for _ in 0..times {
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl ProxyHooks for Dawdle {
    async fn there(&self) {
        self.dawdle().await;
    }

    async fn back(&self) {
        self.dawdle().await;
    }
}

/// A hook that counts the documents that were read.
#[derive(Debug, Default)]
pub(crate) struct Readings(AtomicUsize);

impl Readings {
    pub(crate) fn so_far(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl ProxyHooks for Readings {
    async fn there(&self) {}

    async fn back(&self) {}

    async fn seen(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A gate that keeps one write from the store until a case opens it.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    arrived: Notify,
    opened: Notify,
}

impl Gate {
    /// Makes the next write wait.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Waits until a write has reached the gate.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Lets the write through.
    pub(crate) fn open(&self) {
        self.opened.notify_one();
    }
}

#[async_trait]
impl ProxyHooks for Gate {
    async fn there(&self) {
        if self.closed.swap(false, Ordering::SeqCst) {
            self.arrived.notify_one();
            self.opened.notified().await;
        }
    }

    async fn back(&self) {}
}

/// A gate that keeps the result of one document read from the reader until a case opens it.
#[derive(Debug, Default)]
pub(crate) struct Blink(Gate);

impl Blink {
    /// Creates a gate at which the next read waits.
    pub(crate) fn closed() -> Arc<Self> {
        let blink = Self::default();
        blink.0.close();
        Arc::new(blink)
    }

    /// Waits until a reader has read the document.
    pub(crate) async fn arrived(&self) {
        self.0.arrived().await;
    }

    /// Returns the result to the reader.
    pub(crate) fn open(&self) {
        self.0.open();
    }
}

#[async_trait]
impl ProxyHooks for Blink {
    async fn there(&self) {}

    async fn back(&self) {}

    async fn seen(&self) {
        self.0.there().await;
    }
}

/// A hook that lets `left` writes through. Before the next one the process dies from the store's view: nothing follows it.
#[derive(Debug)]
pub(crate) struct Fuse {
    left: AtomicUsize,
    died: Notify,
}

impl Fuse {
    pub(crate) fn new(writes: usize) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(writes), died: Notify::new() })
    }

    /// Waits until the process has died.
    pub(crate) async fn died(&self) {
        self.died.notified().await;
    }
}

#[async_trait]
impl ProxyHooks for Fuse {
    async fn there(&self) {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.is_err() {
            self.died.notify_one();
            std::future::pending::<()>().await;
        }
    }

    async fn back(&self) {}
}

#[async_trait]
impl<W: ProxyHooks> Store for Detour<W> {
    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        self.way.asked(Request::Apply).await.map_err(ApplyError::not_applied)?;
        self.way.there().await;
        let answer = self.inner.apply(batch).await;
        self.way.back().await;
        answer
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        self.way.asked(Request::Claim).await?;
        self.inner.claim(claim).await
    }

    async fn next_ready(&self, queues: &[QueueName]) -> Result<NextReady, StoreError> {
        self.inner.next_ready(queues).await
    }

    async fn resolve(&self, id: OpId) -> Result<Resolution, StoreError> {
        self.inner.resolve(id).await
    }

    async fn read(&self, gets: &[Get]) -> Result<RowSet, StoreError> {
        if gets.iter().any(|get| matches!(get, Get::Work(_))) {
            self.way.asked(Request::ReadRow).await?;
        }
        let rows = self.inner.read(gets).await;
        if gets.iter().any(|get| matches!(get, Get::Document(_))) {
            self.way.seen().await;
        }
        rows
    }

    async fn operation(&self, id: OpId) -> Result<Option<Receipt>, StoreError> {
        self.inner.operation(id).await
    }

    async fn document(&self, key: &Key) -> Result<Option<StoredDocument>, StoreError> {
        let document = self.inner.document(key).await;
        self.way.seen().await;
        document
    }

    async fn documents(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StoredDocument>, StoreError> {
        self.inner.documents(prefix, page).await
    }

    async fn count_documents(&self, prefix: &KeyPrefix) -> Result<u64, StoreError> {
        self.inner.count_documents(prefix).await
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
        self.inner.read_log(query).await
    }

    async fn work(&self, key: &Key) -> Result<Option<WorkRow>, StoreError> {
        self.way.asked(Request::ReadRow).await?;
        self.inner.work(key).await
    }

    async fn works(&self, filter: &WorkFilter, page: Page) -> Result<PageOf<WorkRow>, StoreError> {
        self.way.asked(Request::ReadPage).await?;
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
        self.way.asked(Request::ReadClock).await?;
        self.inner.now().await
    }

    fn estimated_now(&self) -> Timestamp {
        self.inner.estimated_now()
    }

    async fn info(&self) -> Result<StoreInfo, StoreError> {
        self.inner.info().await
    }
}
