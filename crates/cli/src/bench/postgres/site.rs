//! The server that is measured: the one that was named, or a private one that ends with the run.
//!
//! All that a run makes is in schemas of its own. If the process is killed, those on a server that was named stay, and
//! their names are on the terminal; a private server ends by itself, with its data.

use std::path::Path;

use anyhow::{Context as _, Result};
use tokio_postgres::Client;

use crate::bench::machine::{Machine, Server};
use crate::exit::WrongUse;
use crate::output;
use crate::private_server::{self, PrivateServer};
use crate::schemas::Schemas;
use crate::server_url::ServerUrl;

/// Settings as the server reports them, in the order of the fields of [`Server`].
const FACTS: &str = "SELECT current_setting('server_version'), current_setting('fsync'), \
    current_setting('synchronous_commit'), current_setting('full_page_writes'), \
    current_setting('shared_buffers'), current_setting('max_connections')";

/// The server, and the schemas of this run on it.
#[derive(Debug)]
pub(crate) struct Site {
    url: ServerUrl,
    schemas: Schemas,
    facts: Server,
    /// Dropped at the end: whoever is still connected is of no use any more.
    private: Option<PrivateServer>,
}

impl Site {
    /// Connects to the server that was named, or starts one.
    pub(crate) async fn choose(url: Option<&str>, path: Option<&Path>) -> Result<Self> {
        let (url, private) = match (url, path) {
            (Some(_), Some(_)) => {
                let message = "--path is where a private server keeps its data, and a server was named as well; \
                               leave out --path, or leave out --url and unset DATABASE_URL";
                return Err(WrongUse(message.to_owned()).into());
            }
            // The schema that the address may name is not for measurements.
            (Some(url), None) => (ServerUrl::parse(url)?.split_schema().0, None),
            (None, path) => {
                eprintln!("neither --url nor DATABASE_URL names a server: starting a private one");
                let (url, running) = private_server::start(path).await?;
                (url, Some(running))
            }
        };
        let schemas = Schemas::new(&url).await?;
        let facts = facts(schemas.admin(), private.is_some())
            .await
            .context("the server's settings cannot be read")?;
        if !facts.is_durable() {
            eprintln!(
                "warning: this server does not flush what it acknowledges ({facts}); the numbers say little"
            );
        }
        Ok(Self { url, schemas, facts, private })
    }

    /// The server's address.
    pub(crate) fn url(&self) -> &ServerUrl {
        &self.url
    }

    /// A name for a schema of this run.
    pub(crate) fn schema(&mut self, kind: &str) -> String {
        self.schemas.name(kind)
    }

    /// The schemas.
    pub(crate) fn schemas(&self) -> &Schemas {
        &self.schemas
    }

    /// Says where the run works, unless the server is gone afterwards anyway.
    pub(crate) fn announce(&self) {
        if self.private.is_none() {
            let url = output::escaped(&self.url.to_string());
            eprintln!("measuring {url}; schemas of this run, dropped afterwards: {}", self.schemas.listed());
        }
    }

    /// What the numbers were measured on.
    pub(crate) fn machine(&self) -> Machine {
        Machine::with_server(self.facts.clone(), self.private.as_ref().map(PrivateServer::data))
    }

    /// Drops the schemas and ends a private server.
    pub(crate) async fn leave(self) {
        self.schemas.leave().await;
        drop(tokio::task::spawn_blocking(move || drop(self.private)).await);
    }
}

async fn facts(client: &Client, private: bool) -> Result<Server> {
    let row = client.query_one(FACTS, &[]).await?;
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
