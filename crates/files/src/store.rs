//! The public store type: passes every call to a thread that acquires the lock, and waits for the result.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tidelock_core::clock::{Clock, Timestamp};
use tidelock_core::id::{Epoch, OpId, QueueName};
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::store::report;
use tidelock_core::store::{
    ApplyError, Batch, Claim, Claimed, Durability, EventPage, Get, HistoryCut, LogQuery, NextReady, Page,
    PageOf, Receipt, Resolution, RowSet, Store, StoreError, StoreErrorKind, StoreInfo, StoredDocument,
    StreamInfo, StreamQuery, Sweep, Swept, Watch, Watcher, WorkFilter, WorkRow, limits,
};

use crate::directory::{DirectoryLayout, Folder};
use crate::error::Failure;
use crate::lock::{self, FileLockGuard, Mode};
use crate::queue::Queue;
use crate::session::{self, LongKeys, Marker, Session};
use crate::unsupported::unsupported;
use crate::{FilesOptions, journal, open, unsupported, watch};

/// A store of documents in a directory. Cloning returns another handle; its threads end with the last one.
///
/// # Cancel safety
/// As in the contract: a call that is dropped after its first poll may still be executed.
///
/// # Crash safety
/// A process that dies leaves whole documents. It may have committed a batch of several documents without putting them
/// in place. The next process that opens, reads or writes completes that batch before anything else.
#[derive(Clone, Debug)]
pub struct FilesStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    directory: Arc<Directory>,
    writes: Queue,
    reads: Queue,
    watcher: Arc<Watcher>,
}

/// The state that both threads share.
#[derive(Debug)]
struct Directory {
    disk: DirectoryLayout,
    clock: Arc<dyn Clock>,
    patience: Duration,
    long_keys: LongKeys,
    epoch: AtomicU64,
}

impl Directory {
    fn session<'a>(&'a self, held: &'a FileLockGuard) -> Session<'a> {
        let (disk, now, epoch) = (&self.disk, self.clock.now(), &self.epoch);
        Session { disk, held, now, long_keys: &self.long_keys, epoch }
    }

    /// Runs a function under the exclusive lock, with nothing left to recover.
    fn exclusively<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Session<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let held = lock::take(self.disk.root(), Mode::Exclusive, self.patience)?;
        journal::recover(&self.disk)?;
        work(&self.session(&held))
    }

    /// Runs a function under the shared lock. Uses the exclusive lock if something must be written before it can be
    /// read.
    fn reading<T>(&self, work: impl Fn(&Session<'_>) -> Result<T, Failure>) -> Result<T, StoreError> {
        let held = lock::take(self.disk.root(), Mode::Shared, self.patience)?;
        if !journal::is_pending(&self.disk) {
            match work(&self.session(&held)) {
                Ok(found) => return Ok(found),
                Err(Failure::Store(error)) => return Err(error),
                Err(Failure::NeedsExclusive) => {}
            }
        }
        drop(held);
        self.exclusively(|session| work(session).map_err(session::exclusive))
    }
}

impl FilesStore {
    /// Opens a directory, and makes it a store where needed. The parent must exist.
    ///
    /// # Errors
    /// [`StoreError`] when the directory cannot be opened or written, holds something else, was created by a newer
    /// program, or is damaged.
    ///
    /// # Cancel safety
    /// If the future is dropped, it may leave an empty store behind.
    pub async fn open(path: impl AsRef<Path>, options: FilesOptions) -> Result<Self, StoreError> {
        let path: PathBuf = path.as_ref().to_owned();
        let no_thread = |e: std::io::Error| {
            StoreError::new(StoreErrorKind::CannotOpen, "starting a thread of the files store", e.to_string())
        };
        let writes = Queue::start("tidelock-write", options.queue).map_err(no_thread)?;
        let reads = Queue::start("tidelock-read", options.queue).map_err(no_thread)?;
        let (clock, patience) = (Arc::clone(&options.clock), options.busy_timeout);
        let opening = path.clone();
        let opened = writes.run(move || open::directory(&opening, &options)).await;
        let disk = opened.unwrap_or_else(|| Err(closed(&path)))?;
        let watcher = Arc::new(Watcher::default());
        watch::start(disk.folder(Folder::Documents), &watcher).map_err(no_thread)?;
        let epoch = AtomicU64::new(Marker::read(&disk)?.map_or(0, |marker| marker.epoch));
        let directory = Arc::new(Directory { disk, clock, patience, long_keys: LongKeys::default(), epoch });
        Ok(Self { shared: Arc::new(Shared { directory, writes, reads, watcher }) })
    }

    /// Executes the queued calls. Later calls fail as closed.
    pub async fn close(&self) {
        for queue in [&self.shared.writes, &self.shared.reads] {
            queue.run(|| ()).await;
            queue.close();
        }
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.shared.directory.disk.root()
    }

    async fn reading<T: Send + 'static>(
        &self,
        work: impl Fn(&Session<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        let directory = Arc::clone(&self.shared.directory);
        let answer = self.shared.reads.run(move || directory.reading(work)).await;
        answer.unwrap_or_else(|| Err(closed(self.path())))
    }
}

fn closed(path: &Path) -> StoreError {
    let what = format!("using the directory {}", path.display());
    StoreError::new(StoreErrorKind::Closed, what, "the store was closed")
}

/// The reason why a batch was not applied.
enum Unapplied {
    /// The directory could not be locked or recovered: the batch was not decided.
    Undecided(StoreError),
    /// The batch was decided.
    Decided(ApplyError),
}

impl From<StoreError> for Unapplied {
    fn from(error: StoreError) -> Self {
        Self::Undecided(error)
    }
}

#[async_trait]
impl Store for FilesStore {
    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        batch.validate()?;
        unsupported::check(&batch).map_err(ApplyError::not_applied)?;
        let op_id = batch.id();
        let batch = batch.submitted_in(self.epoch());
        let directory = Arc::clone(&self.shared.directory);
        let watcher = Arc::clone(&self.shared.watcher);
        let work = move || {
            let done = directory.exclusively(|session| session.apply(&batch).map_err(Unapplied::Decided));
            watcher.hint();
            done.map_err(|unapplied| match unapplied {
                Unapplied::Undecided(error) => ApplyError::not_decided(error, op_id),
                Unapplied::Decided(error) => error,
            })
        };
        let began = Instant::now();
        let answer = self.shared.writes.run(work).await;
        let answer = answer.unwrap_or_else(|| Err(ApplyError::not_decided(closed(self.path()), op_id)));
        report::applied(began, &answer);
        answer
    }

    async fn claim(&self, _: Claim) -> Result<Claimed, StoreError> {
        Err(unsupported("claiming work"))
    }

    async fn next_ready(&self, _: &[QueueName]) -> Result<NextReady, StoreError> {
        Err(unsupported("reading when work is ready"))
    }

    async fn resolve(&self, id: OpId) -> Result<Resolution, StoreError> {
        let directory = Arc::clone(&self.shared.directory);
        let work = move || directory.exclusively(|session| session.resolve(id));
        let answer = self.shared.writes.run(work).await;
        answer.unwrap_or_else(|| Err(closed(self.path())))
    }

    async fn read(&self, gets: &[Get]) -> Result<RowSet, StoreError> {
        limits::within("the number of rows", "a read", gets.len(), limits::READ_ROWS)?;
        for get in gets {
            match get {
                Get::Document(_) | Get::Operation(_) => {}
                Get::Stream(key) => return Err(unsupported(format!("reading the stream {key}"))),
                Get::Work(key) => return Err(unsupported(format!("reading the work row {key}"))),
            }
        }
        let gets = gets.to_vec();
        self.reading(move |session| session.rows(&gets)).await
    }

    async fn operation(&self, id: OpId) -> Result<Option<Receipt>, StoreError> {
        let known = self.reading(move |session| Ok(session.operation(id)?)).await?;
        Ok(known.and_then(Resolution::into_receipt))
    }

    async fn document(&self, key: &Key) -> Result<Option<StoredDocument>, StoreError> {
        let key = key.clone();
        self.reading(move |session| session.document(&key)).await
    }

    async fn documents(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StoredDocument>, StoreError> {
        let (prefix, limit) = (prefix.clone(), page.rows()?);
        self.reading(move |session| session.documents(&prefix, &page, limit)).await
    }

    async fn count_documents(&self, prefix: &KeyPrefix) -> Result<u64, StoreError> {
        let (prefix, mut page, mut count) = (prefix.clone(), Page::first(limits::PAGE_ROWS), 0);
        loop {
            let found = self.documents(&prefix, page).await?;
            count += found.rows.len() as u64;
            match found.next {
                Some(next) => page = Page::after(&next, limits::PAGE_ROWS),
                None => return Ok(count),
            }
        }
    }

    async fn stream(&self, key: &Key) -> Result<Option<StreamInfo>, StoreError> {
        Err(unsupported(format!("reading the stream {key}")))
    }

    async fn streams(&self, _: &KeyPrefix, _: Page) -> Result<PageOf<StreamInfo>, StoreError> {
        Err(unsupported("listing streams"))
    }

    async fn read_stream(&self, query: StreamQuery) -> Result<EventPage, StoreError> {
        Err(unsupported(format!("reading events of {}", query.stream)))
    }

    async fn read_log(&self, _: LogQuery) -> Result<EventPage, StoreError> {
        Err(unsupported("reading the log of events"))
    }

    async fn work(&self, key: &Key) -> Result<Option<WorkRow>, StoreError> {
        Err(unsupported(format!("reading the work row {key}")))
    }

    async fn works(&self, _: &WorkFilter, _: Page) -> Result<PageOf<WorkRow>, StoreError> {
        Err(unsupported("listing work rows"))
    }

    async fn count_work(&self, _: &WorkFilter) -> Result<u64, StoreError> {
        Err(unsupported("counting work rows"))
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        let directory = Arc::clone(&self.shared.directory);
        let watcher = Arc::clone(&self.shared.watcher);
        let work = move || {
            let swept = directory.exclusively(|session| session.sweep(&sweep));
            watcher.hint();
            swept
        };
        let answer = self.shared.writes.run(work).await;
        answer.unwrap_or_else(|| Err(closed(self.path())))
    }

    fn epoch(&self) -> Epoch {
        Epoch(self.shared.directory.epoch.load(Ordering::Acquire))
    }

    async fn declare_cut(&self, reason: &str) -> Result<HistoryCut, StoreError> {
        let directory = Arc::clone(&self.shared.directory);
        let (watcher, reason) = (Arc::clone(&self.shared.watcher), reason.to_owned());
        let work = move || {
            let cut = directory.exclusively(|session| session.declare_cut(&reason));
            watcher.hint();
            cut
        };
        let answer = self.shared.writes.run(work).await;
        answer.unwrap_or_else(|| Err(closed(self.path())))
    }

    fn watch(&self) -> Watch {
        self.shared.watcher.listen()
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.shared.directory.clock.now())
    }

    fn estimated_now(&self) -> Timestamp {
        self.shared.directory.clock.now()
    }

    async fn info(&self) -> Result<StoreInfo, StoreError> {
        let marker = self
            .reading(|session| {
                for folder in [Folder::Root, Folder::Documents] {
                    open::check_writable(&session.disk.folder(folder))?;
                }
                Ok(session.marker()?)
            })
            .await?;
        Ok(StoreInfo {
            backend: "files".to_owned(),
            location: self.path().display().to_string(),
            durability: Durability::Full,
            schema: marker.schema,
            epoch: Epoch(marker.epoch),
            engine: format!("tidelock-files {}", env!("CARGO_PKG_VERSION")),
        })
    }
}
