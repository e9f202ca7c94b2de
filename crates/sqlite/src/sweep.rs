//! Sweeping: removes rows that are invisible to every reader.
//!
//! Rows are found in the order of the partial index that holds them, so that a sweep with nothing to do reads nothing.

use rusqlite::Connection;
use tidelock_core::clock::Timestamp;
use tidelock_core::id::DocVersion;
use tidelock_core::store::{Sweep, Swept};

use crate::error::Failure;
use crate::rows::{int, uint};
use crate::session::Session;

const EXPIRE: &str = "UPDATE tidelock_documents SET value = NULL, expires_at = NULL WHERE key IN (
    SELECT key FROM tidelock_documents INDEXED BY tidelock_documents_by_expiry \
    WHERE expires_at IS NOT NULL AND expires_at <= ?1 AND value IS NOT NULL ORDER BY expires_at LIMIT ?2)";

/// The versions that are about to be deleted.
const FORGOTTEN: &str = "SELECT count(*), max(version) FROM (
    SELECT version FROM tidelock_documents INDEXED BY tidelock_documents_deleted \
    WHERE value IS NULL AND updated_at < ?1 ORDER BY updated_at LIMIT ?2)";

const FORGET: &str = "DELETE FROM tidelock_documents WHERE key IN (
    SELECT key FROM tidelock_documents INDEXED BY tidelock_documents_deleted \
    WHERE value IS NULL AND updated_at < ?1 ORDER BY updated_at LIMIT ?2)";

/// Reads no more records than it removes, whatever the order in which they were written.
const FORGET_OPERATIONS: &str = "DELETE FROM tidelock_receipts WHERE id IN (
    SELECT id FROM tidelock_receipts WHERE recorded_at < ?1 ORDER BY recorded_at LIMIT ?2)";

impl Session {
    /// Executes a sweep inside the open transaction. Rows in the working set are dropped, since SQL changed them.
    pub(crate) fn sweep(&mut self, db: &Connection, sweep: &Sweep, now: Timestamp) -> Result<Swept, Failure> {
        self.flush(db)?;
        let limit = int(sweep.limit as u64);
        let expired = db.prepare_cached(EXPIRE)?.execute((now.as_micros(), limit))? as u64;
        let mut swept = Swept { expired, ..Swept::default() };
        if let Some(before) = sweep.tombstones_before {
            swept.tombstones = self.forget_tombstones(db, before, limit)?;
        }
        if let Some(before) = sweep.operations_before {
            let removed = db.prepare_cached(FORGET_OPERATIONS)?.execute((before.as_micros(), limit))?;
            swept.operations = removed as u64;
        }
        self.forget();
        self.flush(db)?;
        Ok(swept)
    }

    /// Deletes old tombstones, and raises the floor above which new documents begin.
    fn forget_tombstones(&mut self, db: &Connection, before: Timestamp, limit: i64) -> Result<u64, Failure> {
        let parameters = (before.as_micros(), limit);
        let (count, highest): (i64, Option<i64>) =
            db.prepare_cached(FORGOTTEN)?.query_row(parameters, |row| Ok((row.get(0)?, row.get(1)?)))?;
        if let Some(highest) = highest {
            let floor = &mut self.facts.counters.document_floor;
            *floor = (*floor).max(DocVersion(uint(highest)));
            db.prepare_cached(FORGET)?.execute(parameters)?;
        }
        Ok(uint(count))
    }
}
