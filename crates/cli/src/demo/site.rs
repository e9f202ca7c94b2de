//! Where the demo plays: a file, or a schema of its own on a server.

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::tell;
use crate::address::Address;
use crate::args::Demo;
use crate::exit::WrongUse;
use crate::output;
use crate::private_server::{self, PrivateServer};
use crate::schemas::Schemas;
use crate::server_url::ServerUrl;

/// The store, and what is to be tidied up afterwards.
#[derive(Debug)]
pub(crate) struct Site {
    address: Address,
    made: Made,
}

/// What was made for the demo.
#[derive(Debug)]
enum Made {
    /// Nothing: the user named the file.
    Nothing,
    Directory(TempDir),
    /// A schema, and the server if that was made, too.
    Schema(Box<Schemas>, Option<Box<PrivateServer>>),
}

impl Site {
    /// The place that the user named, or a new file.
    pub(crate) async fn choose(options: &Demo) -> Result<Self> {
        match (options.store.as_str(), &options.path) {
            ("sqlite", Some(file)) => Ok(Self { address: Address::File(file.clone()), made: Made::Nothing }),
            ("sqlite", None) => Self::in_new_file(),
            (_, Some(_)) => {
                Err(WrongUse("--path is for --store sqlite; leave one of them out".to_owned()).into())
            }
            ("postgres", None) => Self::on_some_server(options).await,
            (store, None) => Self::on_server(parsed(store)?, None).await,
        }
    }

    fn in_new_file() -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("tidelock-demo-")
            .tempdir()
            .context("a directory for the demo cannot be made; name a file with --path")?;
        let address = Address::File(directory.path().join("demo.db"));
        Ok(Self { address, made: Made::Directory(directory) })
    }

    /// The server of the environment, or one of this program's own.
    async fn on_some_server(options: &Demo) -> Result<Self> {
        if let Ok(url) = std::env::var("DATABASE_URL") {
            return Self::on_server(parsed(&url)?, None).await;
        }
        if options.keep {
            let reason = "a server that is started for the demo is gone afterwards; set DATABASE_URL, or leave out --keep";
            return Err(WrongUse(reason.to_owned()).into());
        }
        tell("DATABASE_URL names no server: starting a private one");
        let (url, server) = private_server::start(None).await?;
        Self::on_server(url, Some(server)).await
    }

    /// A schema that nothing else is in, whatever the database is used for otherwise.
    async fn on_server(url: ServerUrl, server: Option<PrivateServer>) -> Result<Self> {
        let mut schemas = Schemas::new(&url).await?;
        let schema = schemas.name("demo_tidelock");
        tell(format_args!("the demo plays in the schema {schema} of\n{}", output::escaped(&url.to_string())));
        Ok(Self {
            address: Address::Schema { url, schema },
            made: Made::Schema(Box::new(schemas), server.map(Box::new)),
        })
    }

    /// The store.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// What nobody removes if the process ends at once. A server that was started for the demo ends with it.
    pub(crate) fn leftovers(&self) -> Option<String> {
        let place = match (&self.made, &self.address) {
            (Made::Directory(directory), _) => format!("the directory {}", directory.path().display()),
            (Made::Schema(_, None), Address::Schema { url, schema }) => {
                format!("the schema {schema} of {url}")
            }
            _ => return None,
        };
        Some(output::escaped(&place))
    }

    /// Removes what was made, or says where it is.
    pub(crate) async fn leave(self, options: &Demo) -> Result<()> {
        match self.made {
            Made::Directory(directory) if !options.keep => directory.close()?,
            Made::Schema(schemas, server) if !options.keep => {
                schemas.leave().await;
                drop(tokio::task::spawn_blocking(move || drop(server)).await);
            }
            // The directory stays, and the system does not remove it for us.
            Made::Directory(directory) => drop(directory.keep()),
            Made::Schema(..) | Made::Nothing => {}
        }
        let (what, place) = match self.address {
            _ if !options.keep && options.path.is_none() => return Ok(()),
            // It could not be made.
            Address::File(file) if !file.exists() => return Ok(()),
            Address::File(file) => ("file", file.display().to_string()),
            Address::Schema { url, schema } => ("schema", format!("{schema} of {url}")),
        };
        tell(format_args!("the {what} stays at {}", output::escaped(&place)));
        Ok(())
    }
}

/// A server's address that the user gave.
fn parsed(store: &str) -> Result<ServerUrl> {
    match Address::parse(store, None)? {
        Address::Schema { url, .. } => Ok(url),
        Address::File(_) => {
            let reason = "--store wants sqlite, postgres or postgres://…; name a file with --path";
            Err(WrongUse(reason.to_owned()).into())
        }
    }
}
