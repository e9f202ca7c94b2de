//! A PostgreSQL server under measurement, with the temporary schemas of the run.

use anyhow::{Context as _, Result};
use tokio_postgres::Client;

use super::machine::Server;
use crate::output;
use crate::server_url::ServerUrl;
use crate::temp_schema::TempSchemas;

/// The settings, in the order of the fields of [`Server`].
const SETTINGS: &str = "SELECT current_setting('server_version'), current_setting('fsync'), \
    current_setting('synchronous_commit'), current_setting('full_page_writes'), \
    current_setting('shared_buffers'), current_setting('max_connections')";

/// A connection to the server, its settings and the schemas of this run.
#[derive(Debug)]
pub struct MeasuredServer {
    url: ServerUrl,
    schemas: TempSchemas,
    settings: Server,
}

impl MeasuredServer {
    /// Connects, and warns when the server does not flush. `private` says that this run started the server.
    ///
    /// # Errors
    /// When the server rejects the connection.
    pub async fn connect(url: ServerUrl, private: bool) -> Result<Self> {
        let schemas = TempSchemas::new(&url).await?;
        let settings =
            settings(schemas.admin(), private).await.context("cannot read the server's settings")?;
        if !settings.is_durable() {
            eprintln!(
                "warning: this server does not flush commits ({settings}); its numbers say little about a disk"
            );
        }
        Ok(Self { url, schemas, settings })
    }

    /// Returns the server's URL.
    #[must_use]
    pub fn url(&self) -> &ServerUrl {
        &self.url
    }

    /// Returns a unique name for a schema of this run.
    pub fn schema(&mut self, kind: &str) -> String {
        self.schemas.name(kind)
    }

    /// Returns the schemas of this run.
    #[must_use]
    pub fn schemas(&self) -> &TempSchemas {
        &self.schemas
    }

    /// Returns the server's settings.
    #[must_use]
    pub fn settings(&self) -> &Server {
        &self.settings
    }

    /// Prints the server and the schemas, so that an operator can remove them after a crash.
    pub fn announce(&self) {
        let url = output::escaped(&self.url.to_string());
        eprintln!("measuring {url}; schemas of this run, dropped afterwards: {}", self.schemas.listed());
    }

    /// Drops the schemas.
    pub async fn drop_schemas(self) {
        self.schemas.drop_all().await;
    }
}

async fn settings(client: &Client, private: bool) -> Result<Server> {
    let row = client.query_one(SETTINGS, &[]).await?;
    Ok(Server {
        version: row.try_get(0)?,
        private,
        fsync: row.try_get(1)?,
        synchronous_commit: row.try_get(2)?,
        full_page_writes: row.try_get(3)?,
        shared_buffers: row.try_get(4)?,
        max_connections: row.try_get(5)?,
    })
}
