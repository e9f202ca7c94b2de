//! The store of the demo: a file, or a temporary schema on a server.

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::notice;
use crate::address::Address;
use crate::args::Demo;
use crate::exit::UsageError;
use crate::output;
use crate::server_url::ServerUrl;
use crate::temp_schema::TempSchemas;

/// The store, and the resources to clean up afterwards.
#[derive(Debug)]
pub(crate) struct Environment {
    address: Address,
    made: Made,
}

/// The resources created for the demo.
#[derive(Debug)]
enum Made {
    /// None: the user named the file.
    Nothing,
    Directory(TempDir),
    /// A temporary schema on the server.
    Schema(Box<TempSchemas>),
}

impl Environment {
    /// Returns the store that the user named, or a new file.
    pub(crate) async fn choose(options: &Demo) -> Result<Self> {
        match (options.store.as_str(), &options.path) {
            ("sqlite", Some(file)) => Ok(Self { address: Address::File(file.clone()), made: Made::Nothing }),
            ("sqlite", None) => Self::in_new_file(),
            (_, Some(_)) => {
                Err(UsageError("--path is for --store sqlite; leave one of them out".to_owned()).into())
            }
            ("postgres", None) => Self::on_default_server().await,
            (store, None) => Self::on_server(parsed(store)?).await,
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

    /// Uses the server named in the environment.
    async fn on_default_server() -> Result<Self> {
        if let Some(url) = std::env::var("DATABASE_URL").ok().filter(|url| !url.is_empty()) {
            return Self::on_server(parsed(&url)?).await;
        }
        let reason =
            "cannot choose a server: DATABASE_URL is not set; set it, or pass postgres://… with --store";
        Err(UsageError(reason.to_owned()).into())
    }

    /// Creates a schema that nothing else uses, whatever else the database holds.
    async fn on_server(url: ServerUrl) -> Result<Self> {
        let mut schemas = TempSchemas::new(&url).await?;
        let schema = schemas.name("demo_tidelock");
        notice(format_args!(
            "the demo plays in the schema {schema} of\n{}",
            output::escaped(&url.to_string())
        ));
        Ok(Self { address: Address::Schema { url, schema }, made: Made::Schema(Box::new(schemas)) })
    }

    /// Returns the address of the store.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the directory or schema that stays behind if the process exits at once.
    pub(crate) fn leftovers(&self) -> Option<String> {
        let place = match (&self.made, &self.address) {
            (Made::Directory(directory), _) => format!("the directory {}", directory.path().display()),
            (Made::Schema(_), Address::Schema { url, schema }) => {
                format!("the schema {schema} of {url}")
            }
            _ => return None,
        };
        Some(output::escaped(&place))
    }

    /// Removes the created resources, or prints where they are.
    pub(crate) async fn leave(self, options: &Demo) -> Result<()> {
        match self.made {
            Made::Directory(directory) if !options.keep => directory.close()?,
            Made::Schema(schemas) if !options.keep => schemas.drop_all().await,
            // The directory is kept, and `TempDir` does not remove it.
            Made::Directory(directory) => drop(directory.keep()),
            Made::Schema(..) | Made::Nothing => {}
        }
        let (what, place) = match self.address {
            _ if !options.keep && options.path.is_none() => return Ok(()),
            // It could not be created.
            Address::File(file) if !file.exists() => return Ok(()),
            Address::File(file) => ("file", file.display().to_string()),
            Address::Schema { url, schema } => ("schema", format!("{schema} of {url}")),
        };
        notice(format_args!("the {what} stays at {}", output::escaped(&place)));
        Ok(())
    }
}

/// Parses a server address from the user.
fn parsed(store: &str) -> Result<ServerUrl> {
    match Address::parse(store, None)? {
        Address::Schema { url, .. } => Ok(url),
        Address::File(_) => {
            let reason = "--store wants sqlite, postgres or postgres://…; name a file with --path";
            Err(UsageError(reason.to_owned()).into())
        }
    }
}
