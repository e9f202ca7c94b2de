//! Migrations: embedded, numbered, never edited, applied under a lock that every opener takes.
//!
//! Two processes that open at once take turns: the second finds the work done. Killed in the middle, the transaction
//! never happened. A migration that does not get its locks gives up without leaving a statement in the server.

use std::time::Instant;

use tidelock_core::clock::Timestamp;
use tidelock_core::store::{StoreError, StoreErrorKind};
use tokio_postgres::Client;

use crate::error::{Failure, Meaning};
use crate::lock_wait::LockWait;
use crate::rows::get;
use crate::{Options, error, open, sql};

/// Every migration, in order; the number is the schema version that it leads to.
const MIGRATIONS: &[(u32, &str, &str)] = &[
    (1, "foundation", include_str!("../migrations/0001_foundation.sql")),
    (2, "from_sql", include_str!("../migrations/0002_from_sql.sql")),
];

const WHAT: &str = "migrating the PostgreSQL schema";

/// One migration, and when it was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The version that it leads to.
    pub version: u32,
    /// What it is called.
    pub name: &'static str,
    /// When it was applied, by the server's clock; `None` when it was not.
    pub applied_at: Option<Timestamp>,
    /// The program that applied it.
    pub program: Option<String>,
}

/// Where a schema stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The schema.
    pub schema: String,
    /// Its version; `None` when Tidelock has nothing there.
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

/// Where a schema stands. Changes nothing.
///
/// # Errors
/// [`StoreError`] when the server cannot be reached or the schema's name is not a plain one.
pub async fn status(url: &str, schema: &str) -> Result<Status, StoreError> {
    sql::check_schema(schema)?;
    let client = open::connect(url).await?;
    status_of(&client, schema).await
}

/// Brings a schema up to date, as opening a store does.
///
/// # Errors
/// [`StoreError`] when the server cannot be reached, may not be changed by this user, or is newer than this program; and
/// when other sessions hold locks that it needs for longer than the default patience.
pub async fn up(url: &str, schema: &str) -> Result<Status, StoreError> {
    sql::check_schema(schema)?;
    let mut client = open::connect(url).await?;
    run(&mut client, schema, Instant::now() + Options::default().patience).await?;
    status_of(&client, schema).await
}

/// The statements that lead from one version to the newest, for somebody who applies them by hand.
///
/// # Errors
/// [`StoreError`] when the schema's name is not a plain one.
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
        "-- Whoever owns the schema need not be allowed to make one.
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

/// A migration that failed. It is rolled back as a whole.
fn failed(error: tokio_postgres::Error) -> Failure {
    let Failure { error, meaning } = Failure::from(error);
    let kind = match (error.kind, meaning) {
        (_, Meaning::Locked) => StoreErrorKind::Busy,
        (kind @ (StoreErrorKind::Full | StoreErrorKind::Unreachable), _) => kind,
        _ => StoreErrorKind::Migration,
    };
    Failure { error: StoreError::new(kind, WHAT, error.detail), meaning }
}

/// The schema version in the database; `None` when Tidelock never wrote to the schema.
pub(crate) async fn installed(client: &Client, schema: &str) -> Result<Option<u32>, StoreError> {
    installed_in(client, schema).await
}

async fn installed_in(
    client: &impl deadpool_postgres::tokio_postgres::GenericClient,
    schema: &str,
) -> Result<Option<u32>, StoreError> {
    let mapped = |e: tokio_postgres::Error| error::map(WHAT, &e);
    // Asked of the tables themselves: what a connection remembers about names may be older than the lock it waited for.
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
