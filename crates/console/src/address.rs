//! Store addresses: parsing `--store`, opening either backend, and passing the address to a child process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use tidelock::error::{Explain, Explanation};
use tidelock::prelude::*;
use tidelock::store::{Durability, StoreError, StoreErrorKind};
use tokio::process::Command;

use crate::output;
use crate::server_url::ServerUrl;
use crate::usage::UsageError;

/// The default schema of a PostgreSQL store.
const SCHEMA: &str = "tidelock";

/// The connection timeout of interactive commands. Workers wait longer, see [`PostgresOptions::patience`].
pub const INTERACTIVE: Duration = Duration::from_secs(10);

/// The variable that passes the server's address to a child process. Arguments would show the password in process lists.
pub const CHILD_URL: &str = "TIDELOCK_CHILD_URL";

/// The address of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
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
    /// Parses a path, `sqlite:` followed by a path, or the URL of a PostgreSQL database. `schema` overrides a schema in
    /// the URL.
    ///
    /// # Errors
    /// [`UsageError`] for any other text.
    pub fn parse(name: &str, schema: Option<&str>) -> Result<Self> {
        if !ServerUrl::is_meant_by(name) {
            return sqlite_path(name).map(Self::File);
        }
        let (url, named) = ServerUrl::parse(name)?.split_schema();
        let schema = schema.map(str::to_owned).or(named).unwrap_or_else(|| SCHEMA.to_owned());
        Ok(Self::Schema { url, schema })
    }

    /// Returns the address that the parent process passed.
    ///
    /// # Errors
    /// [`UsageError`] when it passed none.
    pub fn handed_over(store: &ChildStore) -> Result<Self> {
        match (&store.path, &store.url) {
            (Some(path), _) => Ok(Self::File(path.clone())),
            (None, Some(url)) => Self::parse(url, store.schema.as_deref()),
            (None, None) => Err(UsageError(format!("no store was named; set --path or {CHILD_URL}")).into()),
        }
    }

    /// Passes the address to a child process.
    pub fn hand_over<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        match self {
            Self::File(path) => command.arg("--path").arg(path),
            Self::Schema { url, schema } => command.args(["--schema", schema]).env(CHILD_URL, url.secret()),
        }
    }

    /// Opens the store for a demo or a benchmark and creates a missing file, schema or table. Accepts a server that does not
    /// flush: a demo kills processes rather than machines, and a benchmark reports the server's settings.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub async fn open(&self) -> Result<Opened, StoreError> {
        self.open_with(SqliteOptions::default(), PostgresOptions::default()).await
    }

    /// Opens an existing store like [`open`](Self::open), and creates nothing.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub async fn open_existing(&self) -> Result<Opened, StoreError> {
        let file = SqliteOptions { create: false, ..SqliteOptions::default() };
        self.open_with(file, PostgresOptions { migrate: false, ..PostgresOptions::default() }).await
    }

    /// Opens the store as an application does. Rejects a server that does not flush, unless `flushing` is relaxed; then it
    /// prints a warning.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub async fn open_carefully(&self, create: bool, flushing: Flushing) -> Result<Opened> {
        let server = PostgresOptions { migrate: create, ..PostgresOptions::default() };
        self.open_as(create, server, flushing).await
    }

    /// Opens the store with options for either backend.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub async fn open_as(&self, create: bool, server: PostgresOptions, flushing: Flushing) -> Result<Opened> {
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

/// Returns the reason why a file was not opened: [`NoFile`] when it does not exist.
pub fn unopened(path: &Path, error: StoreError) -> anyhow::Error {
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

/// The number of writes since a store was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Flushed transactions.
    pub groups: u64,
    /// Batches in them.
    pub batches: u64,
}

/// An open store of either backend. Clones share it.
#[derive(Clone, Debug)]
pub enum Opened {
    /// A SQLite file.
    File(SqliteStore),
    /// A schema of a PostgreSQL database.
    Schema(PostgresStore),
}

impl Opened {
    /// Returns the store behind its trait.
    #[must_use]
    pub fn shared(&self) -> SharedStore {
        match self {
            Self::File(store) => Arc::new(store.clone()),
            Self::Schema(store) => Arc::new(store.clone()),
        }
    }

    /// Returns the number of writes so far.
    #[must_use]
    pub fn written(&self) -> Written {
        let (groups, batches) = match self {
            Self::File(store) => (store.stats().groups, store.stats().batches),
            Self::Schema(store) => (store.stats().groups, store.stats().batches),
        };
        Written { groups, batches }
    }

    /// Closes the store.
    pub async fn close(&self) {
        match self {
            Self::File(store) => store.close().await,
            Self::Schema(store) => store.close().await,
        }
    }
}

/// Parses a path, or `sqlite:` followed by a path.
fn sqlite_path(name: &str) -> Result<PathBuf> {
    let path = match name.split_once(':') {
        Some(("sqlite", rest)) => rest.strip_prefix("//").unwrap_or(rest),
        Some(("mem" | "memory", _)) => {
            let reason = "a memory store is inside its program and ends with it, so no other program can open it; the server of \
                          that program shows it";
            return Err(UsageError(reason.to_owned()).into());
        }
        // One letter is a Windows drive, not a scheme.
        Some((scheme, _)) if scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric()) => {
            let known = "this program opens postgres://…, sqlite://PATH and plain paths";
            return Err(UsageError(format!("a store of kind {scheme:?} cannot be opened; {known}")).into());
        }
        _ => name,
    };
    if path.is_empty() {
        return Err(
            UsageError("the store's name holds no path; write sqlite://PATH or a path".to_owned()).into()
        );
    }
    Ok(path.into())
}

/// The durability that is required of a PostgreSQL server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Flushing {
    /// Flush it: a server that does not is refused with TL0404
    #[default]
    Full,
    /// A server that does not flush is taken too, with a warning: a power cut may cost what was committed last, or everything
    Relaxed,
}

/// The store of a child process.
#[derive(Clone, Debug, Args)]
pub struct ChildStore {
    /// The store's file
    #[arg(long)]
    pub path: Option<PathBuf>,
    /// The store's server
    #[arg(long, env = CHILD_URL, hide_env_values = true)]
    pub url: Option<String>,
    /// The store's schema on the server
    #[arg(long)]
    pub schema: Option<String>,
}

/// A store whose file does not exist, as opposed to one that cannot be opened.
#[derive(Debug)]
pub struct NoFile(pub StoreError);

impl std::fmt::Display for NoFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for NoFile {}

impl Explain for NoFile {
    fn explain(&self) -> Explanation {
        self.0.explain()
    }
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
            assert!(Address::parse(name, None).unwrap_err().is::<UsageError>(), "{name}");
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
