//! The driver baseline on SQLite: one thread writes the same rows with prepared statements.
//!
//! It uses the store's tables and indexes, transactions as large as the store's commit groups, WAL,
//! `synchronous = FULL` and SQLite's own checkpoints.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rusqlite::Connection;
use tidelock::clock::{Clock as _, SystemClock};
use tidelock::prelude::*;

use super::commit;
use super::statistics::per_second;

const INSERT_EVENT: &str = "INSERT INTO tidelock_events \
    (position, stream, version, id, type, recorded_at, payload, meta, correlation) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL, NULL)";

const INSERT_LOCATOR: &str =
    "INSERT INTO tidelock_stream_index (stream, version, position) VALUES (?1, ?2, ?3)";

/// The size of the store's cache.
const CACHE_KIB: i64 = 64 * 1024;

/// A connection to a database with the store's tables.
#[derive(Debug)]
pub struct DriverBaseline {
    db: Connection,
    /// The id and the next version of each stream.
    streams: Vec<(i64, i64)>,
    next: usize,
    position: i64,
    payload: String,
    clock: SystemClock,
}

impl DriverBaseline {
    /// Creates the tables with the store, and opens the file with the driver.
    ///
    /// # Errors
    /// When the file cannot be opened or written.
    pub async fn new(path: &Path, streams: u32) -> Result<Self> {
        SqliteStore::open(path, SqliteOptions::default()).await?.close().await;
        let db = Connection::open(path)?;
        db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.pragma_update(None, "cache_size", -CACHE_KIB)?;
        let mut numbered = Vec::new();
        db.execute_batch("BEGIN IMMEDIATE")?;
        for n in 0..streams {
            let key = commit::stream_key("many", n)?;
            db.prepare_cached("INSERT INTO tidelock_streams (key) VALUES (?1)")?
                .execute([key.canonical()])?;
            numbered.push((db.last_insert_rowid(), 0));
        }
        db.execute_batch("COMMIT")?;
        let payload = commit::payload_text();
        Ok(Self { db, streams: numbered, next: 0, position: 0, payload, clock: SystemClock::default() })
    }

    /// Returns commits per second, with `group` of them in each transaction.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn slice(&mut self, group: usize, length: Duration) -> Result<f64> {
        let started = Instant::now();
        let mut count = 0;
        while started.elapsed() < length {
            self.transaction(group)?;
            count += group;
        }
        Ok(per_second(count, started.elapsed()))
    }

    fn transaction(&mut self, group: usize) -> Result<()> {
        self.db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let at = self.clock.now().as_micros();
        let mut insert = self.db.prepare_cached(INSERT_EVENT)?;
        let mut locator = self.db.prepare_cached(INSERT_LOCATOR)?;
        for _ in 0..group {
            self.next = (self.next + 1) % self.streams.len().max(1);
            let Some((stream, version)) = self.streams.get_mut(self.next) else { break };
            self.position += 1;
            let id = EventId::new();
            let id = id.0.as_bytes().as_slice();
            insert.execute((self.position, *stream, *version, id, commit::EVENT_TYPE, at, &self.payload))?;
            locator.execute((*stream, *version, self.position))?;
            *version += 1;
        }
        drop((insert, locator));
        self.db.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}
