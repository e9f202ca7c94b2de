//! Where the demo plays: a file, or a schema of its own on a server.

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::address::Address;
use crate::args::Demo;
use crate::exit::WrongUse;
use crate::output;
use crate::schemas::Schemas;

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
    Schemas(Schemas),
}

impl Site {
    /// The place that the user named, or a new file.
    pub(crate) async fn choose(options: &Demo) -> Result<Self> {
        if let Some(store) = &options.store {
            return Self::on_server(store).await;
        }
        if let Some(file) = &options.path {
            return Ok(Self { address: Address::File(file.clone()), made: Made::Nothing });
        }
        let directory = tempfile::Builder::new()
            .prefix("tidelock-demo-")
            .tempdir()
            .context("a directory for the demo cannot be made; name a file with --path")?;
        let address = Address::File(directory.path().join("demo.db"));
        Ok(Self { address, made: Made::Directory(directory) })
    }

    /// A schema that nothing else is in, whatever the database is used for otherwise.
    async fn on_server(store: &str) -> Result<Self> {
        let Address::Schema { url, .. } = Address::parse(store, None)? else {
            return Err(WrongUse("--store wants postgres://…; name a file with --path".to_owned()).into());
        };
        let mut schemas = Schemas::new(&url).await?;
        let schema = schemas.name("demo_tidelock");
        eprintln!("the demo plays in the schema {schema} of {}", output::escaped(&url.to_string()));
        Ok(Self { address: Address::Schema { url, schema }, made: Made::Schemas(schemas) })
    }

    /// The store.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Removes what was made, or says where it is.
    pub(crate) async fn leave(self, options: &Demo) -> Result<()> {
        match self.made {
            Made::Directory(directory) if !options.keep => directory.close()?,
            Made::Schemas(schemas) if !options.keep => schemas.leave().await,
            // The directory stays, and the system does not remove it for us.
            Made::Directory(directory) => drop(directory.keep()),
            Made::Schemas(_) | Made::Nothing => {}
        }
        let (what, place) = match self.address {
            _ if !options.keep && options.path.is_none() => return Ok(()),
            Address::File(file) => ("file", file.display().to_string()),
            Address::Schema { url, schema } => ("schema", format!("{schema} of {url}")),
        };
        eprintln!("the {what} stays at {}", output::escaped(&place));
        Ok(())
    }
}
