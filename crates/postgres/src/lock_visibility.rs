//! Only here: rejection of engines whose `pg_locks` does not show advisory locks.
//!
//! Readers learn from `pg_locks` which positions writers are about to commit (see the book, decision 12). Some engines
//! with PostgreSQL's protocol accept advisory locks and list none. Their readers would skip events without an error.

use tidelock_core::store::{StoreError, StoreErrorKind};
use tokio_postgres::{Client, GenericClient};

use crate::error;
use crate::rows::get;

const WHAT: &str = "opening the PostgreSQL store";

/// Advertises a position on one connection exactly as writers do, and looks for it on the other exactly as readers do.
///
/// Without a second connection the first one does both. Behind a pooler with few server connections, openers that each
/// hold one connection and wait for another would deadlock.
///
/// # Errors
/// [`StoreErrorKind::UnsupportedEngine`] when the advertisement is not visible.
pub(crate) async fn verify(
    writer: &mut Client,
    reader: Option<&Client>,
    schema: &str,
) -> Result<(), StoreError> {
    let s = schema;
    // The position that a writer would advertise now: it holds no reader back.
    let advertise = format!(
        "SELECT last, pg_advisory_xact_lock_shared('{s}.positions'::regclass::oid::int, last::bit(32)::int) \
         FROM (SELECT coalesce(pg_sequence_last_value('{s}.positions'), -1) AS last) p"
    );
    let failed = |e: tokio_postgres::Error| error::map(WHAT, &e);
    let transaction = writer.transaction().await.map_err(failed)?;
    let rows = transaction.query_typed(&advertise, &[]).await.map_err(failed)?;
    let position = rows.first().map_or(Ok(-1), |row| get::<i64>(row, 0))?;
    let seen = match reader {
        Some(reader) => sees(reader, schema, position).await?,
        None => sees(&transaction, schema, position).await?,
    };
    transaction.rollback().await.map_err(failed)?;
    if seen {
        return Ok(());
    }
    let detail = "the server takes advisory locks and does not show them in pg_locks, so that readers would skip \
                  events; it is not PostgreSQL, or its catalog was changed";
    Err(StoreError::new(StoreErrorKind::UnsupportedEngine, WHAT, detail))
}

/// Returns whether the connection sees the position among the advertisements, by the conditions of `ceiling()`.
async fn sees(reader: &impl GenericClient, schema: &str, position: i64) -> Result<bool, StoreError> {
    let sql = format!(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' \
             AND classid = '{schema}.positions'::regclass::oid AND objsubid = 2 \
             AND objid::bigint::bit(32)::int = {position}::bigint::bit(32)::int \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
    );
    let rows = reader.query_typed(&sql, &[]).await.map_err(|e| error::map(WHAT, &e))?;
    Ok(rows.first().map_or(Ok(false), |row| get(row, 0))?)
}
