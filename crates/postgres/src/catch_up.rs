//! Only here: sequences that lag behind their tables are moved ahead. SQLite keeps its counters in a row of the
//! database.
//!
//! A copy by logical replication and a restored table bring rows, and leave the sequences unchanged. Such a sequence
//! would draw numbers twice.

use std::time::Instant;

use tidelock_core::store::StoreError;
use tokio_postgres::Client;

use crate::error::Failure;
use crate::lock_wait::LockWait;

/// Compares the sequences of a schema with their tables, and moves those that lag.
pub(crate) async fn run(client: &mut Client, schema: &str, give_up: Instant) -> Result<(), StoreError> {
    let s = schema;
    // The highest position has an index. The work table has none for its numbers, so it is read only when its sequence
    // was never used.
    let unused = format!("coalesce(pg_sequence_last_value('{s}.work_seqs'), 0) = 0");
    let sequences =
        [("positions", "position", "events", "true"), ("work_seqs", "seq", "work", unused.as_str())];
    for (sequence, column, table, worth) in sequences {
        let lag = format!(
            "FROM (SELECT CASE WHEN {worth} THEN (SELECT max({column}) FROM {s}.{table}) END AS highest) h \
             WHERE coalesce(highest, 0) > coalesce(pg_sequence_last_value('{s}.{sequence}'), -1)"
        );
        let found = client.query_typed(&format!("SELECT highest {lag}"), &[]).await.map_err(Failure::from)?;
        if found.is_empty() {
            continue;
        }
        // Fences of expired leases are recorded nowhere. The sequence continues from the clock, which is far above all
        // fences that were ever drawn.
        let fences = format!("greatest(coalesce(pg_sequence_last_value('{s}.fences'), 0), {s}.clock())");
        let moved = format!(
            "SELECT setval('{s}.{sequence}', coalesce(highest, 0)), setval('{s}.fences', {fences}) {lag}"
        );
        let mut wait = LockWait::until(give_up);
        while let Err(failure) = move_ahead(client, &format!("{s}.{table}, {s}.work"), &moved, &wait).await {
            if !wait.again(&failure).await {
                return Err(failure.into());
            }
        }
        tracing::warn!(sequence, "a sequence lagged behind its table and was moved on");
    }
    Ok(())
}

/// Moves a sequence while its tables are locked against writers, so that it never moves back.
async fn move_ahead(client: &mut Client, tables: &str, moved: &str, wait: &LockWait) -> Result<(), Failure> {
    let transaction = wait.begin(client).await?;
    transaction.batch_execute(&format!("LOCK TABLE {tables} IN EXCLUSIVE MODE")).await?;
    transaction.query_typed(moved, &[]).await?;
    Ok(transaction.commit().await?)
}
