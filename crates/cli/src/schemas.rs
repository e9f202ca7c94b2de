//! Schemas that exist for one run only. If the process is killed, they stay; their names say whose they are.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio_postgres::Client;

use crate::connection::connect;
use crate::output;
use crate::random::Random;
use crate::server_url::ServerUrl;

/// How long dropping waits for whoever still holds something in a schema, in milliseconds.
const PATIENCE_MS: u32 = 30_000;

/// How long the server may be away before the schemas stay behind.
const OUTAGE: Duration = Duration::from_secs(45);
/// The pause between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(500);

/// Schemas with names of their own, and a connection to their database.
#[derive(Debug)]
pub(crate) struct Schemas {
    url: ServerUrl,
    admin: Client,
    mark: String,
    names: Vec<String>,
}

impl Schemas {
    /// None so far.
    pub(crate) async fn new(url: &ServerUrl) -> Result<Self> {
        let mark = format!("{:08x}", Random::fresh().next() >> 32);
        Ok(Self { url: url.clone(), admin: connect(url).await?, mark, names: Vec::new() })
    }

    /// A new name that begins with `kind`. Whoever uses it makes the schema.
    pub(crate) fn name(&mut self, kind: &str) -> String {
        let name = format!("{kind}_{}", self.mark);
        self.names.push(name.clone());
        name
    }

    /// The connection, for other things that need none of their own.
    pub(crate) fn admin(&self) -> &Client {
        &self.admin
    }

    /// All names, for people.
    pub(crate) fn listed(&self) -> String {
        self.names.join(", ")
    }

    /// Does what the server would do by itself in a while, so that it does not do it in the middle of a measurement:
    /// gathers statistics, clears dead rows, and writes changed pages.
    pub(crate) async fn settle(&self) -> Result<()> {
        const TABLES: &str =
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = ANY ($1)";
        for row in self.admin.query(TABLES, &[&self.names]).await? {
            let sql = format!("VACUUM (ANALYZE) {}", row.try_get::<_, String>(0)?);
            self.admin.batch_execute(&sql).await.with_context(|| sql)?;
        }
        // Not everybody may do this, and then the server does it when it wants to.
        drop(self.admin.batch_execute("CHECKPOINT").await);
        Ok(())
    }

    /// Drops all of them on a new connection: the first one may have ended with its server. Schemas that stay are reported,
    /// with the statement that drops them.
    pub(crate) async fn leave(self) {
        let drop = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.listed());
        let patient = format!("SET lock_timeout = {PATIENCE_MS}; {drop}");
        if let Err(error) = self.run(&patient).await {
            let error = output::escaped(&format!("{error:#}"));
            eprintln!("warning: schemas stay behind: {error}");
            eprintln!("hint: remove them with `{drop}`");
        }
    }

    /// Runs statements on a new connection, again while the server is away.
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
            // The server answers and refuses.
            let refused =
                error.downcast_ref::<tokio_postgres::Error>().is_some_and(|e| e.as_db_error().is_some());
            if refused || Instant::now() + PAUSE >= give_up {
                return Err(error);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
