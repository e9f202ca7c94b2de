//! Migrations: embedded, numbered, never edited, and applied under the write lock at open.
//!
//! Two processes that open at once take turns: the second finds the schema up to date. If the process dies during a
//! migration, the transaction is rolled back.

use rusqlite::{Connection, TransactionBehavior};
use tidelock_core::clock::Timestamp;
use tidelock_core::store::{StoreError, StoreErrorKind};

use crate::error;

/// Every migration, in order. The number is the schema version that the migration produces.
const MIGRATIONS: &[(u32, &str, &str)] =
    &[(1, "foundation", include_str!("../migrations/0001_foundation.sql"))];

const WHAT: &str = "migrating the SQLite database";

/// The schema version that this program needs.
pub(crate) fn newest() -> u32 {
    MIGRATIONS.last().map_or(0, |(version, _, _)| *version)
}

/// Brings the schema up to date and returns its version.
pub(crate) fn run(connection: &mut Connection, shared: bool, now: Timestamp) -> Result<u32, StoreError> {
    if installed(connection)? == Some(newest()) {
        return Ok(newest());
    }
    let failed = |e: rusqlite::Error| match error::map(WHAT, &e) {
        full if full.kind == StoreErrorKind::Full => full,
        other => StoreError::new(StoreErrorKind::Migration, WHAT, other.detail),
    };
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(|e| error::map(WHAT, &e))?;
    let from = installed(&transaction)?;
    if from.is_none() {
        refuse_foreign(&transaction, shared)?;
        transaction
            .execute_batch(
                "CREATE TABLE tidelock_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL,
                 applied_at INTEGER NOT NULL, program TEXT NOT NULL) STRICT;",
            )
            .map_err(failed)?;
    }
    let from = from.unwrap_or(0);
    for (version, name, sql) in MIGRATIONS.iter().filter(|(version, _, _)| *version > from) {
        transaction.execute_batch(sql).map_err(failed)?;
        transaction
            .execute(
                "INSERT INTO tidelock_migrations (version, name, applied_at, program) VALUES (?1, ?2, ?3, ?4)",
                (version, name, now.as_micros(), concat!("tidelock ", env!("CARGO_PKG_VERSION"))),
            )
            .map_err(failed)?;
    }
    transaction.commit().map_err(|e| error::map(WHAT, &e))?;
    Ok(newest())
}

/// Returns the schema version in the file. `None`: Tidelock never wrote to it.
fn installed(connection: &Connection) -> Result<Option<u32>, StoreError> {
    let mapped = |e: rusqlite::Error| error::map(WHAT, &e);
    let exists: bool = connection
        .query_row(
            "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'tidelock_migrations')",
            [],
            |row| row.get(0),
        )
        .map_err(mapped)?;
    if !exists {
        return Ok(None);
    }
    let (version, program): (u32, Option<String>) = connection
        .query_row("SELECT coalesce(max(version), 0), program FROM tidelock_migrations", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .map_err(mapped)?;
    if version > newest() {
        let detail = format!(
            "the schema has version {version}, written by {}; this program knows versions up to {}",
            program.unwrap_or_else(|| "an unknown program".to_owned()),
            newest()
        );
        return Err(StoreError::new(StoreErrorKind::SchemaTooNew, WHAT, detail));
    }
    Ok(Some(version))
}

/// Rejects another application's database unless sharing is enabled.
fn refuse_foreign(connection: &Connection, shared: bool) -> Result<(), StoreError> {
    let table: Option<String> = connection
        .query_row("SELECT min(name) FROM sqlite_schema WHERE type = 'table'", [], |row| row.get(0))
        .map_err(|e| error::map(WHAT, &e))?;
    match table {
        Some(name) if !shared => {
            let detail = format!(
                "the file holds another application's tables, {name:?} among them, and none of Tidelock's; \
                 SqliteOptions::shared puts both into one file"
            );
            Err(StoreError::new(StoreErrorKind::ForeignDatabase, WHAT, detail))
        }
        _ => Ok(()),
    }
}
