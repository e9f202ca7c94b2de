//! The public store type: passes every call to the writer or to a reader, and waits for the result.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rusqlite::Connection;
use tidelock_core::clock::{Clock, Timestamp};
use tidelock_core::id::{Epoch, OpId, QueueName};
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::store::report;
use tidelock_core::store::{
    ApplyError, Batch, Claim, Claimed, Durability, EventPage, Get, HistoryCut, LogQuery, NextReady, Page,
    PageOf, Receipt, Resolution, RowSet, Store, StoreError, StoreInfo, StoredDocument, StreamInfo,
    StreamQuery, Sweep, Swept, Watch, Watcher, WorkFilter, WorkRow, limits,
};
use tokio::sync::oneshot;

use crate::checkpoint::{Checkpointer, Gate};
use crate::clock::FileClock;
use crate::error::Failure;
use crate::file_identity::FileIdentity;
use crate::index_merge::IndexMerger;
use crate::memtable::Memtable;
use crate::queue::Queue;
use crate::readers::Readers;
use crate::session::{self, Session};
use crate::shutdown::{Closer, Shutdown};
use crate::writer::{Job, Writer, WriterCounters};
use crate::{SqliteOptions, claim, closed, no_thread, open, read, watch};

/// A store in one SQLite file. Cloning returns another handle; dropping the last one closes the file.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    path: PathBuf,
    pub(crate) identity: FileIdentity,
    queue: Arc<Queue<Job>>,
    readers: Readers,
    tail: Arc<Memtable>,
    watcher: Arc<Watcher>,
    pub(crate) clock: Arc<FileClock>,
    durability: Durability,
    schema: u32,
    meter: Arc<WriterCounters>,
    epoch: Arc<AtomicU64>,
    closer: Closer,
    ended: tokio::sync::watch::Receiver<()>,
}

impl Shared {
    fn close(&self) {
        self.queue.close();
        self.readers.close();
        self.closer.close();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

/// Counters of the work of this process's writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SqliteStats {
    /// Transactions that were flushed.
    pub groups: u64,
    /// Batches that were decided in them.
    pub batches: u64,
    /// Claims that were decided in them.
    pub claims: u64,
    /// Groups that were split because one batch broke them.
    pub careful: u64,
    /// The number of times that a write by another connection was detected.
    pub foreign: u64,
}

impl SqliteStore {
    /// Opens a store, creating or migrating the file where needed.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be opened or written, is not a database, belongs to another application, is
    /// newer than this program, or does not accept the settings that durability needs.
    pub async fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let path = path.as_ref().to_owned();
        let options = options.within_reason();
        let (reply, answer) = oneshot::channel();
        let opening = path.clone();
        // SQLite may wait for another process here, so it does not run on the caller's thread.
        std::thread::Builder::new()
            .name("tidelock-write".to_owned())
            .spawn(move || match start(&opening, &options) {
                Ok((shared, writer, ending)) => {
                    if reply.send(Ok(Self { shared: Arc::new(shared) })).is_ok() {
                        writer.run();
                    }
                    drop(ending);
                }
                Err(e) => drop(reply.send(Err(e))),
            })
            .map_err(|e| no_thread(&e))?;
        answer.await.unwrap_or_else(|_| Err(closed(&path)))
    }

    /// Executes the queued jobs and closes the file. Later calls fail as closed.
    pub async fn close(&self) {
        self.shared.close();
        let mut ended = self.shared.ended.clone();
        // Nothing is ever sent: the sender is dropped when the last thread has closed its connection.
        while ended.changed().await.is_ok() {}
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Returns the counters of this process's writer.
    #[must_use]
    pub fn stats(&self) -> SqliteStats {
        let meter = &self.shared.meter;
        SqliteStats {
            groups: meter.groups.load(Ordering::Relaxed),
            batches: meter.batches.load(Ordering::Relaxed),
            claims: meter.claims.load(Ordering::Relaxed),
            careful: meter.careful.load(Ordering::Relaxed),
            foreign: meter.foreign.load(Ordering::Relaxed),
        }
    }

    /// Wakes waiters for changes in this process. Call it after you commit your own transaction that
    /// [`apply_in`](Self::apply_in) took part in. Without it, they notice a few milliseconds later.
    pub fn hint(&self) {
        self.shared.watcher.hint();
    }

    /// Checks the whole file with SQLite's integrity check. An empty list means that it is sound.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be read at all.
    pub async fn integrity_check(&self) -> Result<Vec<String>, StoreError> {
        let lines = self
            .shared
            .readers
            .read(|db| {
                let mut statement = db.prepare("PRAGMA integrity_check")?;
                let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
                Ok(lines.collect::<rusqlite::Result<Vec<_>>>()?)
            })
            .await?;
        Ok(lines.into_iter().filter(|line| line != "ok").collect())
    }

    async fn send(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        batch.validate()?;
        let batch = batch.submitted_in(self.epoch());
        let op_id = batch.id();
        let (reply, answer) = oneshot::channel();
        let job = Job::Apply(Box::new(batch), reply);
        if self.shared.queue.push(job).await.is_err() {
            return Err(ApplyError::not_decided(closed(&self.shared.path), op_id));
        }
        match answer.await {
            Ok(result) => result.map_err(|e| with_op_id(e, op_id)),
            Err(_) => Err(ApplyError::unknown(closed(&self.shared.path), op_id)),
        }
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.shared.queue.push(job(reply)).await.map_err(|_| closed(&self.shared.path))?;
        answer.await.map_err(|_| closed(&self.shared.path))
    }

    /// Runs a query in one snapshot, with the time at which it was taken: no row of it is newer.
    async fn snapshot<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection, Timestamp) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        let clock = Arc::clone(&self.shared.clock);
        let timed = move |db: &Connection| {
            read::take_snapshot(db)?;
            query(db, clock.now())
        };
        self.shared.readers.read(timed).await
    }

    fn tail(&self) -> Arc<Memtable> {
        Arc::clone(&self.shared.tail)
    }
}

fn start(path: &Path, options: &SqliteOptions) -> Result<(Shared, Writer, Shutdown), StoreError> {
    let (ending, ended) = Shutdown::new();
    let closer = ending.closer();
    let gate = Gate::default();
    let (mut connection, schema) = open::writer(path, options)?;
    let identity = FileIdentity::of(path);
    let checkpointer = Checkpointer::start(path, &mut connection, options.busy_timeout, Arc::clone(&gate))?;
    let readers = Readers::start(path, options.readers, options.busy_timeout, &gate, &ending)?;
    let watcher = Arc::new(Watcher::default());
    watch::start(path, &watcher, options.busy_timeout, ending.clone())?;
    let queue = Arc::new(Queue::new(options.queue));
    let meter = Arc::new(WriterCounters::default());
    let tail = Arc::new(Memtable::default());
    let mut session = Session::open(&connection, Arc::clone(&tail)).map_err(StoreError::from)?;
    let clock = Arc::new(FileClock::new(Arc::clone(&options.clock)));
    clock.advance_to(session.time.stored);
    session.known = session.facts.counters;
    let epoch = Arc::new(AtomicU64::new(session.known.epoch.0));
    let shared = Shared {
        path: path.to_owned(),
        identity: identity.clone(),
        queue: Arc::clone(&queue),
        readers,
        tail,
        watcher: Arc::clone(&watcher),
        clock: Arc::clone(&clock),
        durability: options.durability,
        schema,
        meter: Arc::clone(&meter),
        epoch: Arc::clone(&epoch),
        closer,
        ended,
    };
    let writer = Writer {
        connection,
        path: path.to_owned(),
        session,
        queue,
        watcher,
        clock,
        busy_timeout: options.busy_timeout,
        meter,
        checkpointer,
        merger: IndexMerger::new(options.unindexed),
        // Never the version of a database: the first group reads the numbers under the write lock.
        data_version: -1,
        identity,
        epoch,
        last_flush: Duration::ZERO,
    };
    Ok((shared, writer, ending))
}

#[async_trait]
impl Store for SqliteStore {
    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        let began = Instant::now();
        let answer = self.send(batch).await;
        report::applied(began, &answer);
        answer
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        claim.validate()?;
        let answer = self.ask(|reply| Job::Claim(Box::new(claim), reply)).await.flatten();
        report::claimed(&answer);
        answer
    }

    async fn next_ready(&self, queues: &[QueueName]) -> Result<NextReady, StoreError> {
        let queues = queues.to_vec();
        self.snapshot(move |db, now| Ok(NextReady { at: claim::next_ready(db, &queues)?, now })).await
    }

    async fn resolve(&self, id: OpId) -> Result<Resolution, StoreError> {
        self.ask(|reply| Job::Resolve(id, reply)).await?
    }

    async fn read(&self, gets: &[Get]) -> Result<RowSet, StoreError> {
        limits::within("the number of rows", "a read", gets.len(), limits::READ_ROWS)?;
        let (gets, tail) = (gets.to_vec(), self.tail());
        self.snapshot(move |db, now| read::rows(db, &tail, &gets, now)).await
    }

    async fn operation(&self, id: OpId) -> Result<Option<Receipt>, StoreError> {
        let known = self.shared.readers.read(move |db| session::operation(db, id)).await?;
        Ok(known.and_then(Resolution::into_receipt))
    }

    async fn document(&self, key: &Key) -> Result<Option<StoredDocument>, StoreError> {
        let key = key.clone();
        self.snapshot(move |db, now| read::document(db, &key, now)).await
    }

    async fn documents(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StoredDocument>, StoreError> {
        let prefix = prefix.clone();
        self.snapshot(move |db, now| read::documents(db, &prefix, &page, now)).await
    }

    async fn count_documents(&self, prefix: &KeyPrefix) -> Result<u64, StoreError> {
        let prefix = prefix.clone();
        self.snapshot(move |db, now| read::count_documents(db, &prefix, now)).await
    }

    async fn stream(&self, key: &Key) -> Result<Option<StreamInfo>, StoreError> {
        let (key, tail) = (key.clone(), self.tail());
        self.shared.readers.read(move |db| read::stream(db, &tail, &key)).await
    }

    async fn streams(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StreamInfo>, StoreError> {
        let (prefix, tail) = (prefix.clone(), self.tail());
        self.snapshot(move |db, now| read::streams(db, &tail, &prefix, &page, now)).await
    }

    async fn read_stream(&self, query: StreamQuery) -> Result<EventPage, StoreError> {
        let tail = self.tail();
        self.snapshot(move |db, now| read::read_stream(db, &tail, &query, now)).await
    }

    async fn read_log(&self, query: LogQuery) -> Result<EventPage, StoreError> {
        self.snapshot(move |db, now| read::read_log(db, &query, now)).await
    }

    async fn work(&self, key: &Key) -> Result<Option<WorkRow>, StoreError> {
        let key = key.clone();
        self.shared.readers.read(move |db| read::work(db, &key)).await
    }

    async fn works(&self, filter: &WorkFilter, page: Page) -> Result<PageOf<WorkRow>, StoreError> {
        let filter = filter.clone();
        self.snapshot(move |db, now| read::works(db, &filter, &page, now)).await
    }

    async fn count_work(&self, filter: &WorkFilter) -> Result<u64, StoreError> {
        let filter = filter.clone();
        self.shared.readers.read(move |db| read::count_work(db, &filter)).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        self.ask(|reply| Job::Sweep(sweep, reply)).await?
    }

    fn epoch(&self) -> Epoch {
        Epoch(self.shared.epoch.load(Ordering::Acquire))
    }

    async fn declare_cut(&self, reason: &str) -> Result<HistoryCut, StoreError> {
        let reason = reason.to_owned();
        self.ask(|reply| Job::DeclareCut(reason, reply)).await?
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
        let identity = self.shared.identity.clone();
        let engine: String = self
            .shared
            .readers
            .read(move |db| {
                identity.check()?;
                Ok(db.query_row("SELECT sqlite_version()", [], |row| row.get(0))?)
            })
            .await?;
        Ok(StoreInfo {
            backend: "sqlite".to_owned(),
            location: self.shared.path.display().to_string(),
            durability: self.shared.durability,
            schema: self.shared.schema,
            epoch: self.epoch(),
            engine: format!("SQLite {engine}"),
        })
    }
}

/// Adds the caller's id: the writer does not know it once the batch is gone.
fn with_op_id(error: ApplyError, op_id: Option<OpId>) -> ApplyError {
    match error {
        ApplyError::Store { error, outcome: tidelock_core::error::Outcome::Unknown(None) } => {
            ApplyError::unknown(error, op_id)
        }
        other => other,
    }
}
