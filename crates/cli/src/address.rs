//! Where a store is: what `--store` means, how a store of either kind is opened, and how a child process is told.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tidelock::prelude::*;
use tidelock::store::{Durability, StoreErrorKind};
use tokio::process::Command;

use crate::args::{ChildStore, Flushing, Source};
use crate::exit::{NoFile, WrongUse};
use crate::output;
use crate::server_url::ServerUrl;

/// The schema that a PostgreSQL store has when nobody says otherwise.
const SCHEMA: &str = "tidelock";

/// How long a command with a person in front of it waits for the server. Workers wait longer: see [`PostgresOptions::patience`].
pub(crate) const INTERACTIVE: Duration = Duration::from_secs(10);

/// The variable that tells a child process the server's address. Arguments are seen by everybody on the machine.
pub(crate) const CHILD_URL: &str = "TIDELOCK_CHILD_URL";

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A SQLite file.
    File(PathBuf),
    /// A schema of a PostgreSQL database.
    Schema {
        /// The database.
        url: ServerUrl,
        /// The schema's name.
        schema: String,
    },
}

impl Address {
    /// What a store's name means: a path, `sqlite:` followed by one, or the address of a PostgreSQL database. A schema
    /// that is given counts more than one that the address names.
    pub(crate) fn parse(name: &str, schema: Option<&str>) -> Result<Self> {
        if !ServerUrl::is_meant_by(name) {
            return sqlite_path(name).map(Self::File);
        }
        let (url, named) = ServerUrl::parse(name)?.split_schema();
        let schema = schema.map(str::to_owned).or(named).unwrap_or_else(|| SCHEMA.to_owned());
        Ok(Self::Schema { url, schema })
    }

    /// The store that the parent of this process named.
    pub(crate) fn handed_over(store: &ChildStore) -> Result<Self> {
        match (&store.path, &store.url) {
            (Some(path), _) => Ok(Self::File(path.clone())),
            (None, Some(url)) => Self::parse(url, store.schema.as_deref()),
            (None, None) => Err(WrongUse(format!("no store was named; set --path or {CHILD_URL}")).into()),
        }
    }

    /// Names the store to a child process that is about to be started.
    pub(crate) fn hand_over<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        match self {
            Self::File(path) => command.arg("--path").arg(path),
            Self::Schema { url, schema } => command.args(["--schema", schema]).env(CHILD_URL, url.secret()),
        }
    }

    /// Opens the store for a demonstration or a measurement, on a server that does not flush as well: they kill processes and not
    /// machines, and say what they were measured on. What is missing is made: the file, the schema, its tables.
    pub(crate) async fn open(&self) -> Result<Opened, StoreError> {
        self.open_with(SqliteOptions::default(), PostgresOptions::default()).await
    }

    /// The same for a store that exists; nothing is made.
    pub(crate) async fn open_existing(&self) -> Result<Opened, StoreError> {
        let file = SqliteOptions { create: false, ..SqliteOptions::default() };
        self.open_with(file, PostgresOptions { migrate: false, ..PostgresOptions::default() }).await
    }

    /// Opens the store as a careful program does. A server that does not flush is refused unless the user has said that it will do;
    /// then that is told each time.
    pub(crate) async fn open_carefully(&self, create: bool, flushing: Flushing) -> Result<Opened> {
        let server = PostgresOptions { migrate: create, ..PostgresOptions::default() };
        self.open_as(create, server, flushing).await
    }

    async fn open_as(&self, create: bool, server: PostgresOptions, flushing: Flushing) -> Result<Opened> {
        let file = SqliteOptions { create, ..SqliteOptions::default() };
        let (url, schema) = match self {
            Self::File(path) => {
                let opened = SqliteStore::open(path, file).await;
                return Ok(Opened::File(opened.map_err(|error| unopened(path, error))?));
            }
            Self::Schema { url, schema } => (url, schema),
        };
        let options = PostgresOptions { schema: schema.clone(), ..server };
        match (PostgresStore::open(url.secret(), options.clone()).await, flushing) {
            (Err(error), Flushing::Relaxed) if error.kind == StoreErrorKind::SettingNotInForce => {
                eprintln!(
                    "warning: a power cut may cost what was committed: {}",
                    output::escaped(&error.detail)
                );
                Ok(Opened::Schema(relaxed(url, options).await?))
            }
            (opened, _) => Ok(Opened::Schema(opened?)),
        }
    }

    async fn open_with(&self, file: SqliteOptions, server: PostgresOptions) -> Result<Opened, StoreError> {
        match self {
            Self::File(path) => SqliteStore::open(path, file).await.map(Opened::File),
            Self::Schema { url, schema } => {
                let options = PostgresOptions { schema: schema.clone(), ..server };
                let opened = match PostgresStore::open(url.secret(), options.clone()).await {
                    Err(error) if error.kind == StoreErrorKind::SettingNotInForce => {
                        relaxed(url, options).await
                    }
                    done => done,
                };
                opened.map(Opened::Schema)
            }
        }
    }
}

impl Source {
    /// Opens the store, which must exist.
    pub(crate) async fn open(&self) -> Result<Opened> {
        let address = Address::parse(&self.store, self.schema.as_deref())?;
        let server = PostgresOptions { migrate: false, patience: INTERACTIVE, ..PostgresOptions::default() };
        address.open_as(false, server, self.durability).await
    }
}

/// Why a file was not opened: it may not be there.
pub(crate) fn unopened(path: &Path, error: StoreError) -> anyhow::Error {
    match (error.kind, path.try_exists()) {
        (StoreErrorKind::CannotOpen, Ok(false)) => NoFile(error).into(),
        _ => error.into(),
    }
}

/// Opens a store on a server that does not flush.
async fn relaxed(url: &ServerUrl, options: PostgresOptions) -> Result<PostgresStore, StoreError> {
    let options = PostgresOptions { durability: Durability::Relaxed, ..options };
    PostgresStore::open(url.secret(), options).await
}

/// How much a store has written since it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Transactions that were flushed.
    pub(crate) groups: u64,
    /// Batches in them.
    pub(crate) batches: u64,
}

/// A store that is open, of either kind. Copies are the same store.
#[derive(Clone, Debug)]
pub(crate) enum Opened {
    /// A SQLite file.
    File(SqliteStore),
    /// A schema of a PostgreSQL database.
    Schema(PostgresStore),
}

impl Opened {
    /// The store as most programs hold it.
    pub(crate) fn shared(&self) -> SharedStore {
        match self {
            Self::File(store) => Arc::new(store.clone()),
            Self::Schema(store) => Arc::new(store.clone()),
        }
    }

    /// How much it has written.
    pub(crate) fn written(&self) -> Written {
        let (groups, batches) = match self {
            Self::File(store) => (store.stats().groups, store.stats().batches),
            Self::Schema(store) => (store.stats().groups, store.stats().batches),
        };
        Written { groups, batches }
    }

    /// Ends it.
    pub(crate) async fn close(&self) {
        match self {
            Self::File(store) => store.close().await,
            Self::Schema(store) => store.close().await,
        }
    }
}

/// The file that a store's name means: a path, or `sqlite:` followed by one.
fn sqlite_path(name: &str) -> Result<PathBuf> {
    let path = match name.split_once(':') {
        Some(("sqlite", rest)) => rest.strip_prefix("//").unwrap_or(rest),
        Some(("mem" | "memory", _)) => {
            let reason = "a memory store is inside its program and ends with it, so no other program can open it; the server of \
                          that program shows it";
            return Err(WrongUse(reason.to_owned()).into());
        }
        // One letter is a Windows drive, not a scheme.
        Some((scheme, _)) if scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric()) => {
            let known = "this program opens postgres://…, sqlite://PATH and plain paths";
            return Err(WrongUse(format!("a store of kind {scheme:?} cannot be opened; {known}")).into());
        }
        _ => name,
    };
    if path.is_empty() {
        return Err(
            WrongUse("the store's name holds no path; write sqlite://PATH or a path".to_owned()).into()
        );
    }
    Ok(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_path_or_a_url() {
        let file = |path: &str| Address::File(path.into());
        for (name, address) in [
            ("app.db", file("app.db")),
            ("sqlite:///var/app.db", file("/var/app.db")),
            ("sqlite:app.db", file("app.db")),
        ] {
            assert_eq!(Address::parse(name, None).unwrap(), address);
        }
        for name in ["sqlite://", "", "mysql://host/db", "postgres:db", "mem:", "memory:"] {
            assert!(Address::parse(name, None).unwrap_err().is::<WrongUse>(), "{name}");
        }
    }

    #[test]
    fn a_schema_that_is_given_counts_most() {
        for (name, given, wanted) in [
            ("postgres://host/db", None, "tidelock"),
            ("postgresql://host/db?schema=shop", None, "shop"),
            ("postgres://host/db?schema=shop", Some("bench"), "bench"),
        ] {
            let Address::Schema { url, schema } = Address::parse(name, given).unwrap() else {
                panic!("{name}")
            };
            assert_eq!(schema, wanted);
            assert!(!url.secret().contains("schema"), "{url}");
        }
    }
}
