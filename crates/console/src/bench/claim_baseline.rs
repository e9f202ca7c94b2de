//! The driver baseline of claims: a jobs table with handwritten SQL.
//!
//! A turn is three commits, like the store's: claim a row, delete it, and insert it again.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rusqlite::Connection;
use tokio_postgres::{Client, Statement};

use super::statistics::per_second;
use crate::connection::connect;
use crate::server_url::ServerUrl;

/// The worker's name in claimed rows.
const OWNER: &str = "bench-0";
/// The payload of every job.
const PAYLOAD: &str = r#"{"order":"o-0000017","carrier":"north","parcels":1}"#;

/// A jobs table in a SQLite file.
#[derive(Debug)]
pub struct SqliteJobs(Connection);

impl SqliteJobs {
    /// Creates a table with `rows` jobs.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(path: &Path, rows: u32) -> Result<Self> {
        let db = Connection::open(path)?;
        db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.execute_batch(
            "CREATE TABLE jobs (id INTEGER PRIMARY KEY, owner TEXT, payload TEXT NOT NULL);
             CREATE INDEX jobs_free ON jobs (id) WHERE owner IS NULL;
             BEGIN IMMEDIATE",
        )?;
        for _ in 0..rows {
            db.prepare_cached("INSERT INTO jobs (payload) VALUES (?1)")?.execute([PAYLOAD])?;
        }
        db.execute_batch("COMMIT")?;
        Ok(Self(db))
    }

    /// Returns turns per second of one worker.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn slice(&self, length: Duration) -> Result<f64> {
        let (started, mut turns) = (Instant::now(), 0);
        while started.elapsed() < length {
            self.turn()?;
            turns += 1;
        }
        Ok(per_second(turns, started.elapsed()))
    }

    fn turn(&self) -> Result<()> {
        const CLAIM: &str = "UPDATE jobs SET owner = ?1 \
            WHERE id = (SELECT id FROM jobs WHERE owner IS NULL ORDER BY id LIMIT 1) RETURNING id";
        let id: i64 = self.0.prepare_cached(CLAIM)?.query_one([OWNER], |row| row.get(0))?;
        self.0.prepare_cached("DELETE FROM jobs WHERE id = ?1")?.execute([id])?;
        self.0.prepare_cached("INSERT INTO jobs (payload) VALUES (?1)")?.execute([PAYLOAD])?;
        Ok(())
    }
}

/// A jobs table on a PostgreSQL server, claimed with `FOR UPDATE SKIP LOCKED`.
#[derive(Debug)]
pub struct PostgresJobs {
    client: Client,
    claim: Statement,
    delete: Statement,
    insert: Statement,
}

impl PostgresJobs {
    /// Creates a table with `rows` jobs in an existing schema.
    ///
    /// # Errors
    /// When the server rejects the connection or a statement.
    pub async fn create(url: &ServerUrl, schema: &str, rows: u32) -> Result<Self> {
        let client = connect(url).await?;
        client
            .batch_execute(&format!(
                "SELECT set_config('synchronous_commit', 'on', false)
                     WHERE current_setting('synchronous_commit') = 'off';
                 CREATE TABLE {schema}.jobs (
                     id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, owner text, payload text NOT NULL);
                 CREATE INDEX ON {schema}.jobs (id) WHERE owner IS NULL;
                 INSERT INTO {schema}.jobs (payload) SELECT '{PAYLOAD}' FROM generate_series(1, {rows});"
            ))
            .await?;
        let claim = format!(
            "UPDATE {schema}.jobs SET owner = $1 WHERE id = (
                 SELECT id FROM {schema}.jobs WHERE owner IS NULL ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1)
             RETURNING id"
        );
        Ok(Self {
            claim: client.prepare(&claim).await?,
            delete: client.prepare(&format!("DELETE FROM {schema}.jobs WHERE id = $1")).await?,
            insert: client.prepare(&format!("INSERT INTO {schema}.jobs (payload) VALUES ($1)")).await?,
            client,
        })
    }

    /// Returns turns per second of one worker.
    ///
    /// # Errors
    /// When the server fails.
    pub async fn slice(&self, length: Duration) -> Result<f64> {
        let (started, mut turns) = (Instant::now(), 0);
        while started.elapsed() < length {
            self.turn().await?;
            turns += 1;
        }
        Ok(per_second(turns, started.elapsed()))
    }

    async fn turn(&self) -> Result<()> {
        let id: i64 = self.client.query_one(&self.claim, &[&OWNER]).await?.try_get(0)?;
        let deleted = self.client.execute(&self.delete, &[&id]).await?;
        ensure!(deleted == 1, "cannot measure claims: job {id} is gone");
        self.client.execute(&self.insert, &[&PAYLOAD]).await?;
        Ok(())
    }
}
