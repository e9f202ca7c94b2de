//! Migrations: embedded, numbered, never edited, and applied under a lock that every opener acquires.
//!
//! Two processes that open at once take turns: the second finds the schema up to date. If the process dies during a
//! migration, the transaction is rolled back. A migration that cannot acquire its locks gives up and leaves no
//! statement running in the server.

use std::time::Instant;

use tidelock_core::clock::Timestamp;
use tidelock_core::store::{StoreError, StoreErrorKind};
use tokio_postgres::Client;

use crate::error::{Failure, Meaning};
use crate::lock_wait::LockWait;
use crate::rows::get;
use crate::{PostgresOptions, error, open, sql};

/// Every migration, in order. The number is the schema version that the migration produces.
const MIGRATIONS: &[(u32, &str, &str)] =
    &[(1, "foundation", include_str!("../migrations/0001_foundation.sql"))];

const WHAT: &str = "migrating the PostgreSQL schema";

/// One migration, and the time at which it was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The schema version that it produces.
    pub version: u32,
    /// The name of the migration.
    pub name: &'static str,
    /// The time at which it was applied, by the server's clock. `None`: it was not applied.
    pub applied_at: Option<Timestamp>,
    /// The program that applied it.
    pub program: Option<String>,
}

/// The migration status of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The schema.
    pub schema: String,
    /// The installed version. `None`: Tidelock has nothing there.
    pub installed: Option<u32>,
    /// The version that this program needs.
    pub newest: u32,
    /// Every migration that this program knows, in order.
    pub migrations: Vec<Migration>,
}

/// The schema version that this program needs.
#[must_use]
pub fn newest() -> u32 {
    MIGRATIONS.last().map_or(0, |(version, _, _)| *version)
}

/// Returns the migration status of a schema. Changes nothing.
///
/// # Errors
/// [`StoreError`] when the server cannot be reached or the schema's name is invalid.
pub async fn status(url: &str, schema: &str) -> Result<Status, StoreError> {
    sql::check_schema(schema)?;
    let client = open::connect(url).await?;
    status_of(&client, schema).await
}

/// Brings a schema up to date, as opening a store does.
///
/// # Errors
/// [`StoreError`] when the server cannot be reached, when this user may not change it, or when its schema is newer than
/// this program. Also when other sessions hold the required locks for longer than the default patience.
pub async fn up(url: &str, schema: &str) -> Result<Status, StoreError> {
    sql::check_schema(schema)?;
    let mut client = open::connect(url).await?;
    run(&mut client, schema, Instant::now() + PostgresOptions::default().patience).await?;
    status_of(&client, schema).await
}

/// Returns the statements that lead from one version to the newest, for manual application.
///
/// # Errors
/// [`StoreError`] when the schema's name is invalid.
pub fn sql(schema: &str, from: u32) -> Result<String, StoreError> {
    sql::check_schema(schema)?;
    let mut script = String::from("BEGIN;\n");
    if from == 0 {
        script.push_str(&preamble(schema));
        script.push('\n');
    }
    for (version, name, text) in MIGRATIONS.iter().filter(|(version, _, _)| *version > from) {
        script.push_str(&text.replace("{schema}", schema));
        script.push_str(&record(schema, *version, name));
        script.push('\n');
    }
    script.push_str("COMMIT;\n");
    Ok(script)
}

fn preamble(schema: &str) -> String {
    format!(
        "-- The owner of a schema may lack the right to create one.
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = '{schema}') THEN
        CREATE SCHEMA {schema};
    END IF;
END $$;
CREATE TABLE {schema}.migrations (
    version    bigint PRIMARY KEY,
    name       text NOT NULL,
    applied_at bigint NOT NULL,
    program    text NOT NULL
);\n"
    )
}

fn record(schema: &str, version: u32, name: &str) -> String {
    let program = concat!("tidelock ", env!("CARGO_PKG_VERSION"));
    format!("INSERT INTO {schema}.migrations VALUES ({version}, '{name}', {schema}.clock(), '{program}');\n")
}

/// Brings the schema up to date and returns its version.
pub(crate) async fn run(client: &mut Client, schema: &str, give_up: Instant) -> Result<u32, StoreError> {
    if installed(client, schema).await? == Some(newest()) {
        return Ok(newest());
    }
    let mut wait = LockWait::until(give_up);
    loop {
        match attempt(client, schema, &wait).await {
            Ok(()) => return Ok(newest()),
            Err(failure) if wait.again(&failure).await => {}
            Err(failure) => return Err(failure.into()),
        }
    }
}

async fn attempt(client: &mut Client, schema: &str, wait: &LockWait) -> Result<(), Failure> {
    let transaction = wait.begin(client).await.map_err(failed)?;
    let lock = format!("SELECT pg_advisory_xact_lock(hashtextextended('tidelock migrate {schema}', 0))");
    transaction.batch_execute(&lock).await.map_err(failed)?;
    let from = installed_in(&transaction, schema).await?;
    if from.is_none() {
        transaction.batch_execute(&preamble(schema)).await.map_err(failed)?;
    }
    let from = from.unwrap_or(0);
    for (version, name, text) in MIGRATIONS.iter().filter(|(version, _, _)| *version > from) {
        let text = text.replace("{schema}", schema) + &record(schema, *version, name);
        transaction.batch_execute(&text).await.map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)
}

/// Maps the error of a failed migration. The migration is rolled back as a whole.
fn failed(error: tokio_postgres::Error) -> Failure {
    let Failure { error, meaning } = Failure::from(error);
    let kind = match (error.kind, meaning) {
        (_, Meaning::Locked) => StoreErrorKind::Busy,
        (kind @ (StoreErrorKind::Full | StoreErrorKind::Unreachable), _) => kind,
        _ => StoreErrorKind::Migration,
    };
    Failure { error: StoreError::new(kind, WHAT, error.detail), meaning }
}

/// Returns the schema version in the database. `None`: Tidelock never wrote to the schema.
pub(crate) async fn installed(client: &Client, schema: &str) -> Result<Option<u32>, StoreError> {
    installed_in(client, schema).await
}

async fn installed_in(
    client: &impl deadpool_postgres::tokio_postgres::GenericClient,
    schema: &str,
) -> Result<Option<u32>, StoreError> {
    let mapped = |e: tokio_postgres::Error| error::map(WHAT, &e);
    // Queries the catalogue itself: a connection's cache of names may be older than the lock it waited for.
    let exists = format!(
        "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = '{schema}' AND c.relname = 'migrations')"
    );
    let found = client.query_typed(&exists, &[]).await.map_err(mapped)?;
    if !found.first().map_or(Ok(false), |row| get::<bool>(row, 0))? {
        return Ok(None);
    }
    let newest_row =
        format!("SELECT version, program FROM {schema}.migrations ORDER BY version DESC LIMIT 1");
    let found = client.query_typed(&newest_row, &[]).await.map_err(mapped)?;
    let Some(row) = found.first() else { return Ok(Some(0)) };
    let version = u32::try_from(get::<i64>(row, 0)?).unwrap_or(u32::MAX);
    if version > newest() {
        let detail = format!(
            "the schema {schema} has version {version}, written by {}; this program knows versions up to {}",
            get::<String>(row, 1)?,
            newest()
        );
        return Err(StoreError::new(StoreErrorKind::SchemaTooNew, WHAT, detail));
    }
    Ok(Some(version))
}

async fn status_of(client: &Client, schema: &str) -> Result<Status, StoreError> {
    let installed = installed(client, schema).await?;
    let mut migrations: Vec<Migration> = MIGRATIONS
        .iter()
        .map(|(version, name, _)| Migration { version: *version, name, applied_at: None, program: None })
        .collect();
    if installed.is_some() {
        let all = format!("SELECT version, applied_at, program FROM {schema}.migrations");
        for row in &client.query_typed(&all, &[]).await.map_err(|e| error::map(WHAT, &e))? {
            let version = u32::try_from(get::<i64>(row, 0)?).unwrap_or(u32::MAX);
            if let Some(migration) = migrations.iter_mut().find(|migration| migration.version == version) {
                migration.applied_at = Some(Timestamp::from_micros(get(row, 1)?));
                migration.program = Some(get(row, 2)?);
            }
        }
    }
    Ok(Status { schema: schema.to_owned(), installed, newest: newest(), migrations })
}
