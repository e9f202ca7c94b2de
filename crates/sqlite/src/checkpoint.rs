//! WAL checkpoints off the commit path: a background thread moves the log into the database while the writer continues.
//!
//! Only here: PostgreSQL checkpoints automatically.
//!
//! The background pass never reaches the very end of a log that is being written. When the pass is done, the writer
//! moves the short rest itself, between two groups. Readers are blocked for that moment: a reader of an older snapshot
//! would keep the log from restarting. Then the log begins again in the same blocks, and a flush that overwrites is
//! cheaper than one that grows the file. If the process dies, the log is merely longer.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use rusqlite::Connection;
use rusqlite::hooks::Wal;
use tidelock_core::store::StoreError;

use crate::{error, open};

/// The longest log, in pages, before a background pass begins: 16 MiB.
const MOST_PAGES: i32 = 4096;
/// The shortest: while the database is small, so is its log, and it does not fill a small device.
const FEWEST_PAGES: i32 = 512;
/// When the log could not restart, the next attempt follows after this many more pages, or a quarter of its length if
/// that is more.
const AGAIN_PAGES: i32 = 512;
/// How long the writer waits for readers to finish before it lets the log grow instead.
const READERS: Duration = Duration::from_millis(20);

/// Held by every read, and by the writer for the moment in which the log restarts.
pub(crate) type Gate = Arc<RwLock<()>>;

#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<Ring>,
    heard: Condvar,
    /// Whether the background pass is done and the rest is short.
    nearly_done: AtomicBool,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Ring {
    #[default]
    Silent,
    Checkpoint,
    End,
}

/// The writer's side.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    bell: Arc<Bell>,
    gate: Gate,
    /// The pages in the log after the last commit, as SQLite reports them.
    pages: Arc<AtomicI32>,
    /// The length at which the next pass begins.
    begin_at: i32,
    /// Whether a background pass is in flight.
    waiting: bool,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the background thread with its own connection.
    pub(crate) fn start(
        path: &Path,
        writer: &mut Connection,
        busy_timeout: Duration,
        gate: Gate,
    ) -> Result<Self, StoreError> {
        let pages = Arc::new(AtomicI32::new(0));
        let count = Arc::clone(&pages);
        writer
            .wal_hook(Some(move |_: &mut Wal, pages| {
                count.store(pages, Ordering::Relaxed);
                Ok(())
            }))
            .map_err(|e| error::map("watching the log of the SQLite database", &e))?;
        let connection = open::helper(path, busy_timeout)?;
        let bell = Arc::new(Bell::default());
        let theirs = Arc::clone(&bell);
        let thread = std::thread::Builder::new()
            .name("tidelock-checkpoint".to_owned())
            .spawn(move || work(&theirs, &connection))
            .map_err(|e| crate::no_thread(&e))?;
        Ok(Self { bell, gate, pages, begin_at: FEWEST_PAGES, waiting: false, thread: Some(thread) })
    }

    /// Maintains the log between two groups.
    pub(crate) fn after_group(&mut self, writer: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if self.bell.nearly_done.swap(false, Ordering::AcqRel) {
            self.waiting = false;
            self.begin_at = if self.start_over(writer) {
                length_for(writer)
            } else {
                pages + (pages / 4).max(AGAIN_PAGES)
            };
        } else if !self.waiting && pages >= self.begin_at {
            self.waiting = true;
            self.ring(Ring::Checkpoint);
        }
    }

    /// Makes room at once: the device is full, and the log may hold pages that the database already has.
    pub(crate) fn make_room(&mut self, writer: &Connection) {
        let _quiet = self.gate.try_write_for(READERS);
        checkpoint(writer, "PRAGMA wal_checkpoint(TRUNCATE)");
    }

    /// Moves the rest of the log while no reader is active. The next commit then begins a new log.
    fn start_over(&self, writer: &Connection) -> bool {
        let quiet = self.gate.try_write_for(READERS);
        let moved = checkpoint(writer, "PRAGMA wal_checkpoint(PASSIVE)");
        quiet.is_some() && moved
    }

    fn ring(&self, what: Ring) {
        *self.bell.rung.lock() = what;
        self.bell.heard.notify_one();
    }
}

/// Returns the length of the database itself, within limits.
fn length_for(writer: &Connection) -> i32 {
    let pages: i64 = writer.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap_or(0);
    i32::try_from(pages).unwrap_or(MOST_PAGES).clamp(FEWEST_PAGES, MOST_PAGES)
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.ring(Ring::End);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint thread panicked");
        }
    }
}

fn work(bell: &Bell, connection: &Connection) {
    loop {
        let mut rung = bell.rung.lock();
        while *rung == Ring::Silent {
            bell.heard.wait(&mut rung);
        }
        if *rung == Ring::End {
            return;
        }
        *rung = Ring::Silent;
        drop(rung);
        checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)");
        bell.nearly_done.store(true, Ordering::Release);
    }
}

/// Moves as much as possible. Returns `true` when that was everything. A failure only means a longer log, and is
/// reported.
fn checkpoint(connection: &Connection, sql: &str) -> bool {
    let moved = connection
        .query_row(sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)));
    match moved {
        Ok((busy, log, done)) => {
            tracing::trace!(busy, log, done, "checkpoint");
            log == done
        }
        Err(e) => {
            tracing::warn!(error = %e, "a checkpoint failed; the log grows until one succeeds");
            false
        }
    }
}
