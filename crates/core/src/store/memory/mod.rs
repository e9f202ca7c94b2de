//! Reference store: the model applied to maps, and the oracle of the differential tests.
//!
//! It loses everything with the process, and reports that ([`Durability::None`]). Several handles to one
//! [`MemoryStore`] behave like connections to one database.

mod read;
mod tables;

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use self::tables::Tables;
use super::{
    ApplyError, Batch, Claim, Claimed, Durability, EventPage, Get, HistoryCut, LogQuery, NextReady, Page,
    PageOf, Receipt, Resolution, RowSet, Store, StoreError, StoreInfo, StoredDocument, StreamInfo,
    StreamQuery, Sweep, Swept, Watch, Watcher, WorkFilter, WorkRow, limits, report,
};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::id::{Epoch, OpId, QueueName};
use crate::key::{Key, KeyPrefix};
use crate::process;

/// A store in memory. Clones share the same data.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

/// A snapshot of the content of a memory store.
#[derive(Clone, Debug)]
pub struct Backup(Tables);

#[derive(Debug)]
struct Shared {
    tables: Mutex<Tables>,
    clock: Arc<dyn Clock>,
    watcher: Watcher,
}

impl MemoryStore {
    /// Creates an empty store on the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(SystemClock::shared())
    }

    /// Creates an empty store on the given clock.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let shared = Shared { tables: Mutex::default(), clock, watcher: Watcher::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Returns a copy of all data in the store, for [`restore`](Self::restore).
    #[must_use]
    pub fn backup(&self) -> Backup {
        Backup(self.shared.tables.lock().clone())
    }

    /// Restores a backup and begins a new epoch, as a restored database does.
    pub fn restore(&self, backup: &Backup) -> HistoryCut {
        self.write(
            |tables, now| {
                let ended = tables.epoch();
                *tables = backup.0.clone();
                tables.counters.epoch = ended;
                tables.declare_cut(now, "restored from a backup")
            },
            |_| true,
        )
    }

    fn with<T>(&self, f: impl FnOnce(&Tables, Timestamp) -> T) -> T {
        let tables = self.shared.tables.lock();
        f(&tables, self.shared.clock.now())
    }

    /// Writes, and wakes the listeners when data changed. An operation without a change wakes no listener.
    fn write<T>(&self, f: impl FnOnce(&mut Tables, Timestamp) -> T, changed: impl FnOnce(&T) -> bool) -> T {
        let done = {
            let mut tables = self.shared.tables.lock();
            f(&mut tables, self.shared.clock.now())
        };
        if changed(&done) {
            self.shared.watcher.hint();
        }
        done
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        let began = process::now();
        let batch = batch.submitted_in(self.epoch());
        let apply = || self.write(|tables, now| tables.apply(&batch, now), Result::is_ok);
        let answer = batch.validate().map_err(Into::into).and_then(|()| apply());
        report::applied(began, &answer);
        answer
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        claim.validate()?;
        let answer =
            Ok(self.write(|tables, now| tables.claim(&claim, now), |claimed| !claimed.grants.is_empty()));
        report::claimed(&answer);
        answer
    }

    async fn next_ready(&self, queues: &[QueueName]) -> Result<NextReady, StoreError> {
        Ok(self.with(|tables, now| NextReady { at: tables.next_ready(queues), now }))
    }

    async fn resolve(&self, id: OpId) -> Result<Resolution, StoreError> {
        Ok(self.write(|tables, now| tables.resolve(id, now), |_| false))
    }

    async fn read(&self, gets: &[Get]) -> Result<RowSet, StoreError> {
        limits::within("the number of rows", "a read", gets.len(), limits::READ_ROWS)?;
        let rows = |tables: &Tables, now| RowSet {
            rows: gets.iter().map(|get| tables.get(get, now)).collect(),
            now,
        };
        Ok(self.with(rows))
    }

    async fn operation(&self, id: OpId) -> Result<Option<Receipt>, StoreError> {
        Ok(self.with(|tables, _| tables.operation(id)).and_then(Resolution::into_receipt))
    }

    async fn document(&self, key: &Key) -> Result<Option<StoredDocument>, StoreError> {
        Ok(self.with(|tables, now| tables.document(key, now)))
    }

    async fn documents(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StoredDocument>, StoreError> {
        let limit = page.rows()?;
        Ok(self.with(|tables, now| tables.documents(prefix, page.after.as_ref(), limit, now)))
    }

    async fn count_documents(&self, prefix: &KeyPrefix) -> Result<u64, StoreError> {
        Ok(self.with(|tables, now| tables.count_documents(prefix, now)))
    }

    async fn stream(&self, key: &Key) -> Result<Option<StreamInfo>, StoreError> {
        Ok(self.with(|tables, _| tables.stream(key)))
    }

    async fn streams(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StreamInfo>, StoreError> {
        let limit = page.rows()?;
        Ok(self.with(|tables, now| tables.streams(prefix, page.after.as_ref(), limit, now)))
    }

    async fn read_stream(&self, query: StreamQuery) -> Result<EventPage, StoreError> {
        let limit = Page::first(query.limit).rows()?;
        Ok(self.with(|tables, now| tables.read_stream(&query, limit, now)))
    }

    async fn read_log(&self, query: LogQuery) -> Result<EventPage, StoreError> {
        let limit = Page::first(query.limit).rows()?;
        self.with(|tables, now| tables.read_log(&query, limit, now))
    }

    async fn work(&self, key: &Key) -> Result<Option<WorkRow>, StoreError> {
        Ok(self.with(|tables, _| tables.work(key)))
    }

    async fn works(&self, filter: &WorkFilter, page: Page) -> Result<PageOf<WorkRow>, StoreError> {
        let limit = page.rows()?;
        Ok(self.with(|tables, now| tables.works(filter, page.after.as_ref(), limit, now)))
    }

    async fn count_work(&self, filter: &WorkFilter) -> Result<u64, StoreError> {
        Ok(self.with(|tables, _| tables.count_work(filter)))
    }

    fn epoch(&self) -> Epoch {
        self.with(|tables, _| tables.epoch())
    }

    async fn declare_cut(&self, reason: &str) -> Result<HistoryCut, StoreError> {
        Ok(self.write(|tables, now| tables.declare_cut(now, reason), |_| true))
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        Ok(self.write(|tables, now| tables.sweep(&sweep, now), |_| true))
    }

    fn watch(&self) -> Watch {
        self.shared.watcher.listen()
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.shared.clock.now())
    }

    fn estimated_now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    async fn info(&self) -> Result<StoreInfo, StoreError> {
        Ok(StoreInfo {
            backend: "memory".to_owned(),
            location: "this process".to_owned(),
            durability: Durability::None,
            schema: 0,
            epoch: self.epoch(),
            engine: format!("tidelock {}", env!("CARGO_PKG_VERSION")),
        })
    }
}
