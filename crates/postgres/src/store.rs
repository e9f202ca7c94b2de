//! The public store type: passes every call to the committers or to a reader, and waits for the result.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tidelock_core::clock::{Clock as _, SystemClock, Timestamp};
use tidelock_core::id::{Epoch, OpId, Position, QueueName};
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::store::report;
use tidelock_core::store::{
    ApplyError, Batch, Claim, Claimed, EventPage, Get, HistoryCut, LogQuery, NextReady, Page, PageOf,
    Receipt, Resolution, RowSet, Store, StoreError, StoreInfo, StoredDocument, StreamInfo, StreamQuery,
    Sweep, Swept, Watch, Watcher, WorkFilter, WorkRow, limits,
};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use crate::claim;
use crate::clock::Time;
use crate::connect::{self, Hosts};
use crate::connect_options::ConnectOptions;
use crate::epoch::Epochs;
use crate::open::{self, Server};
use crate::queue::Queue;
use crate::readers::Readers;
use crate::row_cache::RowCache;
use crate::sql::{self, Sql};
use crate::unreadable::Unreadable;
use crate::watch::{Hints, Stop, Telling};
use crate::writer::{self, Claiming, Engine, Job, WriterCounters, not_decided};
use crate::{PostgresOptions, closed, log_blockers};

/// Runs a query on a reader's connection, and retries if the connection turns out to be dead.
macro_rules! reading {
    ($store:expr, |$reader:ident| $query:expr) => {{
        let mut attempts = $store.shared.readers.attempts(&$store.shared.engine.sql);
        loop {
            let lease = match attempts.lease().await {
                Ok(lease) => lease,
                Err(error) => break Err(error),
            };
            let answer = {
                let $reader = lease.reader($store.shared.engine.time.fixed());
                lease.answer(attempts.left(), $query).await
            };
            if let Some(answer) = attempts.judge(lease, answer).await {
                break answer;
            }
        }
    }};
}

/// Connections in addition to those of the committers, for batches that run in their own transactions.
const ALONE: usize = 8;

/// A store on PostgreSQL. Cloning returns another handle; dropping the last one closes the connections.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: Arc<Engine>,
    readers: Readers,
    watcher: Arc<Watcher>,
    location: String,
    server: Server,
    /// Stopped when the store is dropped.
    _telling: Stop,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.engine.queue.close();
        self.readers.close();
    }
}

/// Counters of the work of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PostgresStats {
    /// Groups of batches that were executed.
    pub groups: u64,
    /// Batches in them.
    pub batches: u64,
    /// Claims that were executed.
    pub claims: u64,
    /// Groups that were split because one batch would have held up the others.
    pub isolated: u64,
    /// Groups that were decided again because another writer had changed their rows.
    pub stale: u64,
    /// Failed attempts to connect.
    pub reconnects: u64,
}

/// A transaction that readers of the log wait for: it has drawn positions and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBlocker {
    /// The server process that runs it; 0 for a prepared transaction, which has no process.
    pub pid: i32,
    /// Its application name.
    pub application: String,
    /// Its state, as the server reports it: `active`, `idle in transaction`, …; `prepared`, or `hidden` from this user.
    pub state: String,
    /// How long ago it began.
    pub since: Duration,
    /// Readers see nothing above this position until it ends.
    pub floor: Position,
}

impl PostgresStore {
    /// Opens a store, creating or migrating its schema where needed.
    ///
    /// `url` has the format of PostgreSQL's own programs: `postgres://user:password@host:port/database` or
    /// `host=… dbname=…`, with `sslmode` and the other parameters as there. By default, the certificate of a server
    /// that is not on this machine must be valid for its name (`sslmode=verify-full`). `schema=NAME` and
    /// `pooler=transaction` in it set [`PostgresOptions::schema`] and [`PostgresOptions::pooled`].
    ///
    /// Must be called inside a Tokio runtime with timers and I/O, and so must the calls of the store. They may come from
    /// any runtime: the connections belong to a runtime of the library, and the store outlives the one that opened it.
    ///
    /// # Errors
    /// [`StoreError`] when the server cannot be reached, is older than PostgreSQL 14, is a standby, is configured not
    /// to flush acknowledged writes or holds a schema newer than this program. Also when the address is invalid.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let address = ConnectOptions::parse(url)?;
        let options = options.with(&address).within_reason();
        sql::check_schema(&options.schema)?;
        let hosts = Hosts::new(&address)?;
        let epochs = Arc::new(Epochs::new(&options.schema));
        let server = open::prepare(&hosts, &options, &epochs).await?;
        let watcher = Arc::new(Watcher::default());
        let hints = Hints::new(Arc::clone(&watcher));
        let telling = Telling {
            hosts: Arc::clone(&hosts),
            profile: open::bare_session(&options),
            channel: Sql::new(&options.schema).channel(),
            watcher: Arc::clone(&watcher),
            pending: hints.pending(),
            others: hints.others(),
            listens: !options.pooled,
        };
        let readers = open::readers(&hosts, &options, &server, &epochs)?;
        let engine = Arc::new(Engine {
            sql: Sql::new(&options.schema),
            queue: Queue::new(options.queue),
            writers: open::writers(&hosts, &options, &server, ALONE, &epochs)?,
            warm: RowCache::default(),
            time: Time::new(options.clock.clone()),
            epochs: Arc::clone(&epochs),
            hints,
            meter: WriterCounters::default(),
            alone: tokio::sync::Semaphore::new(ALONE),
            tasks: TaskTracker::new(),
            unreadable: Unreadable::default(),
            prepared: !options.pooled,
            patience: options.patience,
            flush_setting: server.commit.filter(|_| options.pooled),
            guesses: server.read_committed,
        });
        for _ in 0..options.committers {
            connect::spawn(engine.tasks.track_future(writer::run(Arc::clone(&engine))))?;
        }
        let shared = Shared {
            readers: Readers::new(readers, hosts.tls(), !options.pooled, options.patience, epochs),
            engine,
            watcher,
            location: format!("{}, schema {}", address.location(), options.schema),
            server,
            _telling: Stop(connect::spawn(telling.run())?),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Executes the queued jobs and closes the connections. Later calls fail as closed.
    pub async fn close(&self) {
        self.shared.engine.queue.close();
        self.shared.engine.tasks.close();
        self.shared.engine.tasks.wait().await;
        self.shared.engine.writers.close();
        self.shared.readers.close();
    }

    /// Returns the counters of this process.
    #[must_use]
    pub fn stats(&self) -> PostgresStats {
        let meter = &self.shared.engine.meter;
        PostgresStats {
            groups: meter.groups.load(Ordering::Relaxed),
            batches: meter.batches.load(Ordering::Relaxed),
            claims: meter.claims.load(Ordering::Relaxed),
            isolated: meter.isolated.load(Ordering::Relaxed),
            stale: meter.stale.load(Ordering::Relaxed),
            reconnects: meter.reconnects.load(Ordering::Relaxed),
        }
    }

    /// Returns the transactions that readers of the log wait for, oldest first. There are always some under load. One
    /// that is seconds old belongs to a program that appended in it and has not ended it.
    ///
    /// # Errors
    /// [`StoreError`] when the server cannot be reached.
    pub async fn stalls(&self) -> Result<Vec<LogBlocker>, StoreError> {
        reading!(self, |reader| log_blockers::all(&reader))
    }

    /// Returns the location of the store: the server, the database and the schema, without secrets.
    #[must_use]
    pub fn location(&self) -> &str {
        &self.shared.location
    }

    /// Wakes waiters for changes, here and in other processes. Call it after you commit your own transaction that
    /// [`apply_in`](Self::apply_in) took part in. Without it, they notice a little later.
    pub fn hint(&self) {
        self.shared.engine.warm.bounds.hint(Instant::now());
        self.shared.engine.hints.changed();
    }

    async fn send(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        batch.validate()?;
        let batch = batch.submitted_in(self.epoch());
        if let Some(answer) = self.shared.engine.lone(&batch).await {
            return answer;
        }
        let op_id = batch.id();
        let (job, answer) = Job::apply(batch);
        if self.shared.engine.queue.push(job).await.is_err() {
            return Err(not_decided(closed(&self.shared.location), op_id));
        }
        match answer.await {
            Ok(result) => result,
            Err(_) => Err(ApplyError::unknown(closed(&self.shared.location), op_id)),
        }
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let closed = || closed(&self.shared.location);
        self.shared.engine.queue.push(job(reply)).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        let began = Instant::now();
        let answer = self.send(batch).await;
        report::applied(began, &answer);
        answer
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        claim.validate()?;
        let job = |reply| Job::Claim(Claiming { claim: Box::new(claim), reply });
        let answer = self.ask(job).await.flatten();
        report::claimed(&answer);
        answer
    }

    async fn next_ready(&self, queues: &[QueueName]) -> Result<NextReady, StoreError> {
        let bounds = &self.shared.engine.warm.bounds;
        let (levels, missing) = bounds.levels(&claim::texts_of(queues), Instant::now());
        let NextReady { at, now } = reading!(self, |reader| reader.next_ready(&levels))?;
        // A scan that may miss rows must be repeated.
        let again = missing.map(|missing| now.after(missing));
        Ok(NextReady { at: at.into_iter().chain(again).min(), now })
    }

    async fn resolve(&self, id: OpId) -> Result<Resolution, StoreError> {
        self.shared.engine.resolve(id).await
    }

    async fn read(&self, gets: &[Get]) -> Result<RowSet, StoreError> {
        limits::within("the number of rows", "a read", gets.len(), limits::READ_ROWS)?;
        reading!(self, |reader| reader.rows(gets))
    }

    async fn operation(&self, id: OpId) -> Result<Option<Receipt>, StoreError> {
        reading!(self, |reader| reader.operation(id))
    }

    async fn document(&self, key: &Key) -> Result<Option<StoredDocument>, StoreError> {
        reading!(self, |reader| reader.document(key))
    }

    async fn documents(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StoredDocument>, StoreError> {
        reading!(self, |reader| reader.documents(prefix, &page))
    }

    async fn count_documents(&self, prefix: &KeyPrefix) -> Result<u64, StoreError> {
        let given = self.shared.engine.time.fixed();
        reading!(self, |reader| reader.count_documents(prefix, given))
    }

    async fn stream(&self, key: &Key) -> Result<Option<StreamInfo>, StoreError> {
        reading!(self, |reader| reader.stream(key))
    }

    async fn streams(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StreamInfo>, StoreError> {
        reading!(self, |reader| reader.streams(prefix, &page))
    }

    async fn read_stream(&self, query: StreamQuery) -> Result<EventPage, StoreError> {
        reading!(self, |reader| reader.read_stream(&query))
    }

    async fn read_log(&self, query: LogQuery) -> Result<EventPage, StoreError> {
        reading!(self, |reader| reader.read_log(&query))
    }

    async fn work(&self, key: &Key) -> Result<Option<WorkRow>, StoreError> {
        reading!(self, |reader| reader.work(key))
    }

    async fn works(&self, filter: &WorkFilter, page: Page) -> Result<PageOf<WorkRow>, StoreError> {
        reading!(self, |reader| reader.works(filter, &page))
    }

    async fn count_work(&self, filter: &WorkFilter) -> Result<u64, StoreError> {
        reading!(self, |reader| reader.count_work(filter))
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        self.ask(|reply| Job::Sweep(sweep, reply)).await?
    }

    fn epoch(&self) -> Epoch {
        self.shared.engine.epochs.current()
    }

    async fn declare_cut(&self, reason: &str) -> Result<HistoryCut, StoreError> {
        self.shared.engine.declare_cut(reason).await
    }

    fn watch(&self) -> Watch {
        self.shared.watcher.listen()
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        match self.shared.engine.time.fixed() {
            Some(now) => Ok(now),
            None => {
                let sent = Instant::now();
                let said = reading!(self, |reader| reader.clock())?;
                Ok(self.shared.engine.time.hear(said, sent))
            }
        }
    }

    fn estimated_now(&self) -> Timestamp {
        let time = &self.shared.engine.time;
        // The store sampled the server's clock when it was opened, unless the estimate has just proved wrong.
        time.now().unwrap_or_else(|| SystemClock::default().now())
    }

    async fn info(&self) -> Result<StoreInfo, StoreError> {
        // Fails when the server cannot be reached.
        reading!(self, |reader| reader.clock())?;
        let server = &self.shared.server;
        Ok(StoreInfo {
            backend: "postgres".to_owned(),
            location: self.shared.location.clone(),
            durability: server.durability,
            schema: server.schema,
            epoch: self.epoch(),
            engine: format!("PostgreSQL {}", server.version),
        })
    }
}
