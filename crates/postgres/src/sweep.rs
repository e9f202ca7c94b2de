//! Sweeping: removes rows that are invisible to every reader.
//!
//! Rows are found in the order of the partial index that holds them, so that a sweep with nothing to do reads nothing.
//! They are not locked in the order of keys. A sweep skips locked rows and never waits, so there is no deadlock.

use std::time::Instant;

use tidelock_core::clock::Timestamp;
use tidelock_core::store::{StoreError, Sweep, Swept};
use tokio_postgres::types::Type;

use crate::db::{Call, Db};
use crate::error::Failure;
use crate::rows::{get, int, uint};
use crate::writer::Engine;

impl Engine {
    /// Executes a sweep in three steps, each in its own transaction. If the process dies in between, the next sweep
    /// continues.
    pub(crate) async fn sweep(&self, sweep: &Sweep) -> Result<Swept, StoreError> {
        let client = self.writer(Instant::now() + self.patience).await?;
        let db = self.db(&client);
        let swept = self.bounded(&client, self.steps(&db, sweep)).await;
        // SQL changed rows without an update of the cache.
        self.warm.clear();
        match swept {
            Ok(swept) => Ok(swept),
            Err(failure) => {
                self.roll_back(client, &failure).await;
                Err(failure.into())
            }
        }
    }

    async fn steps(&self, db: &Db<'_>, sweep: &Sweep) -> Result<Swept, Failure> {
        let limit = int(sweep.limit as u64);
        let mut swept = Swept { expired: self.expire(db, limit).await?, ..Swept::default() };
        if let Some(before) = sweep.tombstones_before {
            swept.tombstones = self.forget_tombstones(db, before, limit).await?;
        }
        if let Some(before) = sweep.operations_before {
            // Reads no more records than it removes, whatever the order in which they were written.
            let s = &self.sql.schema;
            let forget = format!(
                "WITH old AS (DELETE FROM {s}.receipts WHERE op_id IN (
                     SELECT op_id FROM {s}.receipts WHERE recorded_at < $1 ORDER BY recorded_at LIMIT $2)
                 RETURNING 1) SELECT count(*) FROM old"
            );
            let call = Call::new(&forget).with(before.as_micros(), Type::INT8).with(limit, Type::INT8);
            swept.operations = count(db, call).await?;
        }
        Ok(swept)
    }

    async fn expire(&self, db: &Db<'_>, limit: i64) -> Result<u64, Failure> {
        let s = &self.sql.schema;
        let expire = format!(
            "WITH gone AS (UPDATE {s}.documents SET value = NULL, expires_at = NULL, deleted_at = updated_at
                 WHERE key = ANY (ARRAY (SELECT key FROM {s}.documents
                     WHERE expires_at <= coalesce($1, (SELECT {s}.clock()))
                     ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))
             RETURNING 1) SELECT count(*) FROM gone"
        );
        let now = self.time.fixed().map(Timestamp::as_micros);
        count(db, Call::new(&expire).with(now, Type::INT8).with(limit, Type::INT8)).await
    }

    /// Deletes old tombstones. The floor above which new documents begin is raised and committed first. A transaction
    /// that finds a key without a row then also finds the new floor.
    async fn forget_tombstones(&self, db: &Db<'_>, before: Timestamp, limit: i64) -> Result<u64, Failure> {
        let s = &self.sql.schema;
        let old =
            format!("SELECT version FROM {s}.documents WHERE deleted_at < $1 ORDER BY deleted_at LIMIT $2");
        let raise = format!(
            "UPDATE {s}.floors SET document = greatest(document, (SELECT max(version) FROM ({old}) old))"
        );
        let parameters = |sql| Call::new(sql).with(before.as_micros(), Type::INT8).with(limit, Type::INT8);
        db.query(parameters(&raise)).await?;
        let forget = format!(
            "WITH gone AS (DELETE FROM {s}.documents WHERE key = ANY (ARRAY (
                 SELECT key FROM {s}.documents WHERE deleted_at < $1 AND version <= (SELECT document FROM {s}.floors)
                 ORDER BY deleted_at LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING 1) SELECT count(*) FROM gone"
        );
        count(db, parameters(&forget)).await
    }
}

async fn count(db: &Db<'_>, call: Call<'_>) -> Result<u64, Failure> {
    let rows = db.query(call).await?;
    Ok(uint(rows.first().map(|row| get(row, 0)).transpose()?.unwrap_or(0)))
}
