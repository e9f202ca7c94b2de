//! Checkpoints off the commit path: a background thread moves the log into the database while the writer goes on.
//!
//! The background pass never catches the very end of a log that is being written, so when it is done the writer
//! moves the short rest itself, between two groups, and the log starts over in the same blocks: a flush that
//! overwrites is cheaper than one that grows the file. If the process dies, the log is simply longer.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use rusqlite::hooks::Wal;
use tidelock_core::store::StoreError;

use crate::{error, open};

/// The length of the log, in pages, at which a background pass begins: 16 MiB.
const BEGIN_PAGES: i32 = 4096;

#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<Ring>,
    heard: Condvar,
    /// The background pass is done and the rest is short.
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
    /// The pages in the log after the last commit, as SQLite told.
    pages: Arc<AtomicI32>,
    /// The length at which the next pass begins.
    begin_at: i32,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the background thread with a connection of its own.
    pub(crate) fn start(
        path: &Path,
        writer: &mut Connection,
        busy_timeout: Duration,
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
        Ok(Self { bell, pages, begin_at: BEGIN_PAGES, thread: Some(thread) })
    }

    /// Looks after the log between two groups.
    pub(crate) fn after_group(&mut self, writer: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if self.bell.nearly_done.swap(false, Ordering::AcqRel) {
            checkpoint(writer);
            // A reader that holds an old page keeps the log from starting over: wait for as much again.
            self.begin_at = pages.saturating_add(BEGIN_PAGES);
        } else if pages < BEGIN_PAGES {
            self.begin_at = BEGIN_PAGES;
        } else if pages >= self.begin_at {
            self.begin_at = i32::MAX;
            self.ring(Ring::Checkpoint);
        }
    }

    fn ring(&self, what: Ring) {
        *self.bell.rung.lock() = what;
        self.bell.heard.notify_one();
    }
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
        checkpoint(connection);
        bell.nearly_done.store(true, Ordering::Release);
    }
}

/// Moves what can be moved without waiting for anybody. A failure only means a longer log, and is reported.
fn checkpoint(connection: &Connection) {
    let moved = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
    });
    match moved {
        Ok((_, log, done)) => tracing::trace!(log, done, "checkpoint"),
        Err(e) => tracing::warn!(error = %e, "a checkpoint failed; the log grows until one succeeds"),
    }
}
