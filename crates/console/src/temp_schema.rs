//! Temporary PostgreSQL schemas with unique names. A killed process leaves them behind.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio_postgres::Client;

use crate::connection::connect;
use crate::output;
use crate::random::Random;
use crate::server_url::ServerUrl;

/// The lock timeout of dropping, in milliseconds.
const LOCK_TIMEOUT_MS: u32 = 30_000;

/// The longest outage of the server that dropping survives.
const OUTAGE: Duration = Duration::from_secs(45);
/// The pause between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(500);

/// Temporary schemas and a connection to their database.
#[derive(Debug)]
pub struct TempSchemas {
    url: ServerUrl,
    admin: Client,
    mark: String,
    names: Vec<String>,
}

impl TempSchemas {
    /// Connects, without any schema so far.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn new(url: &ServerUrl) -> Result<Self> {
        let mark = format!("{:08x}", Random::fresh().next() >> 32);
        Ok(Self { url: url.clone(), admin: connect(url).await?, mark, names: Vec::new() })
    }

    /// Returns a new unique name that begins with `kind`. The caller creates the schema.
    pub fn name(&mut self, kind: &str) -> String {
        let name = format!("{kind}_{}", self.mark);
        self.names.push(name.clone());
        name
    }

    /// Returns the connection.
    #[must_use]
    pub fn admin(&self) -> &Client {
        &self.admin
    }

    /// Returns all names, separated by commas.
    #[must_use]
    pub fn listed(&self) -> String {
        self.names.join(", ")
    }

    /// Runs VACUUM, ANALYZE and CHECKPOINT, so that the server does not run them in the middle of a measurement.
    ///
    /// # Errors
    /// When a table cannot be vacuumed.
    pub async fn run_maintenance(&self) -> Result<()> {
        const TABLES: &str =
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = ANY ($1)";
        for row in self.admin.query(TABLES, &[&self.names]).await? {
            let sql = format!("VACUUM (ANALYZE) {}", row.try_get::<_, String>(0)?);
            self.admin.batch_execute(&sql).await.with_context(|| sql)?;
        }
        // It needs a privilege; without it, the server runs the checkpoint later.
        drop(self.admin.batch_execute("CHECKPOINT").await);
        Ok(())
    }

    /// Drops all schemas on a new connection, because the first one may have ended with its server. Prints a warning with
    /// the statement to run when that fails.
    pub async fn drop_all(self) {
        let drop = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.listed());
        let patient = format!("SET lock_timeout = {LOCK_TIMEOUT_MS}; {drop}");
        if let Err(error) = self.run(&patient).await {
            let error = output::escaped(&format!("{error:#}"));
            eprintln!("warning: schemas stay behind: {error}");
            eprintln!("hint: remove them with `{drop}`");
        }
    }

    /// Runs statements on a new connection, and retries while the server is unreachable.
    async fn run(&self, sql: &str) -> Result<()> {
        let give_up = Instant::now() + OUTAGE;
        loop {
            let attempt = async {
                connect(&self.url).await?.batch_execute(sql).await?;
                anyhow::Ok(())
            };
            let error = match tokio::time::timeout(OUTAGE, attempt).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error,
                Err(_) => anyhow::anyhow!("no answer within {OUTAGE:?}"),
            };
            // The server rejected the statement, so a retry would fail as well.
            let refused =
                error.downcast_ref::<tokio_postgres::Error>().is_some_and(|e| e.as_db_error().is_some());
            if refused || Instant::now() + PAUSE >= give_up {
                return Err(error);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
