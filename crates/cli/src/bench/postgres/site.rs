//! The server that is measured: the one that was named, or a private one that ends with the run.
//!
//! All that a run makes is in schemas of its own. If the process is killed, those on a server that was named stay, and
//! their names are on the terminal; a private server ends by itself, with its data.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tokio_postgres::Client;

use crate::bench::machine::{Machine, Server};
use crate::exit::WrongUse;
use crate::schemas::Schemas;
use crate::server_url::ServerUrl;
use crate::{output, target};

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
    private: Option<private::Running>,
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
                let (url, running) = start(path.map(Path::to_owned)).await?;
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
        Machine::with_server(self.facts.clone(), self.private.as_ref().map(private::Running::data))
    }

    /// Drops the schemas and ends a private server.
    pub(crate) async fn leave(self) {
        self.schemas.leave().await;
        drop(tokio::task::spawn_blocking(move || drop(self.private)).await);
    }
}

/// Starts a private server and says so.
async fn start(path: Option<PathBuf>) -> Result<(ServerUrl, private::Running)> {
    if let Some(path) = path.as_deref().filter(|path| !path.is_dir()) {
        let shown = path.display();
        return Err(
            WrongUse(format!("{shown} is no directory; name one for the private server's data")).into()
        );
    }
    let directory = path.unwrap_or_else(std::env::temp_dir);
    let shown = output::escaped(&directory.display().to_string());
    eprintln!("neither --url nor DATABASE_URL names a server: starting a private one below {shown}");
    warn_about_memory(&directory, &shown);
    let running = tokio::task::spawn_blocking(move || private::Running::start(directory)).await??;
    Ok((ServerUrl::parse(&running.url())?, running))
}

fn warn_about_memory(directory: &Path, shown: &str) {
    let kind = target::file_system(directory);
    if target::is_memory(&kind) {
        eprintln!("warning: {shown} is on {kind}, where flushes are free; name a disk with --path");
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

/// A server of this program's own.
#[cfg(unix)]
mod private {
    use std::path::{Path, PathBuf};

    use anyhow::Result;
    use tidelock_pgserver::{Options, Server};

    /// The server; it ends when this is dropped.
    #[derive(Debug)]
    pub(super) struct Running(Server);

    impl Running {
        /// Starts it with the settings that a careful operator would choose. Nothing is installed for it.
        pub(super) fn start(directory: PathBuf) -> Result<Self> {
            let options =
                Options { durable: true, install: false, directory: Some(directory), ..Options::default() };
            Ok(Self(Server::start(&options)?))
        }

        pub(super) fn url(&self) -> String {
            self.0.url()
        }

        pub(super) fn data(&self) -> &Path {
            self.0.data_directory()
        }
    }
}

/// Nothing but words: private servers are for Unix.
#[cfg(not(unix))]
mod private {
    use std::path::{Path, PathBuf};

    use anyhow::Result;

    use crate::exit::WrongUse;

    #[derive(Debug)]
    pub(super) enum Running {}

    impl Running {
        pub(super) fn start(_directory: PathBuf) -> Result<Self> {
            let message = "private servers run on Unix only; name a server with --url or DATABASE_URL";
            Err(WrongUse(message.to_owned()).into())
        }

        pub(super) fn url(&self) -> String {
            match *self {}
        }

        pub(super) fn data(&self) -> &Path {
            match *self {}
        }
    }
}
