//! Opening a store by its URL.

use std::sync::Arc;

use tidelock_core::store::{MemoryStore, SharedStore};

use crate::url::{StoreUrl, invalid};
use crate::{Error, Tidelock};

/// The store behind a handle, with what closes it.
#[derive(Clone, Debug)]
pub(crate) enum Backend {
    #[cfg(feature = "sqlite")]
    Sqlite(tidelock_sqlite::SqliteStore),
    #[cfg(feature = "postgres")]
    Postgres(tidelock_postgres::PostgresStore),
    /// A store that needs no closing, or that its owner closes.
    Other,
}

impl Backend {
    pub(crate) async fn close(&self) {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.close().await,
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.close().await,
            Self::Other => {}
        }
    }
}

/// Options of a store that is about to be opened, see [`Tidelock::options`].
#[must_use = "nothing is opened before open() is awaited"]
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    url: String,
    schema: Option<String>,
    #[cfg(feature = "sqlite")]
    sqlite: tidelock_sqlite::SqliteOptions,
    #[cfg(feature = "postgres")]
    postgres: tidelock_postgres::PostgresOptions,
}

impl OpenOptions {
    pub(crate) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
    }

    /// Sets the schema of a PostgreSQL store. It overrides the schema in the URL; the default is `tidelock`.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// Sets the options of a SQLite store.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(mut self, options: tidelock_sqlite::SqliteOptions) -> Self {
        self.sqlite = options;
        self
    }

    /// Sets the options of a PostgreSQL store.
    #[cfg(feature = "postgres")]
    pub fn postgres(mut self, options: tidelock_postgres::PostgresOptions) -> Self {
        self.postgres = options;
        self
    }

    /// Opens the store, and creates a missing file, schema or table.
    ///
    /// # Errors
    /// [`Error`] when the URL is invalid, its backend is not compiled in, or the store cannot be opened.
    pub async fn open(self) -> Result<Tidelock, Error> {
        match StoreUrl::parse(&self.url)? {
            StoreUrl::Memory => Ok(MemoryStore::new().into()),
            #[cfg(feature = "sqlite")]
            StoreUrl::Sqlite(path) => {
                Ok(tidelock_sqlite::SqliteStore::open(&path, self.sqlite).await?.into())
            }
            #[cfg(not(feature = "sqlite"))]
            StoreUrl::Sqlite(_) => Err(missing("sqlite").into()),
            #[cfg(feature = "postgres")]
            StoreUrl::Postgres { url, schema } => {
                let mut options = self.postgres;
                if let Some(schema) = self.schema.or(schema) {
                    options.schema = schema;
                }
                Ok(tidelock_postgres::PostgresStore::open(&url, options).await?.into())
            }
            #[cfg(not(feature = "postgres"))]
            StoreUrl::Postgres { .. } => Err(missing("postgres").into()),
        }
    }
}

/// Returns the error for a backend that is not compiled in.
#[cfg(not(all(feature = "sqlite", feature = "postgres")))]
fn missing(feature: &str) -> tidelock_core::error::InvalidInput {
    let reason = format!(
        "this program is built without that backend; add features = [\"{feature}\"] to its dependency on tidelock"
    );
    invalid(feature, &reason)
}

/// The variables that name the store, in order of precedence.
const VARIABLES: [&str; 2] = ["TIDELOCK_STORE", "DATABASE_URL"];

/// Returns the URL that the environment names.
pub(crate) fn from_env(read: impl Fn(&str) -> Option<String>) -> Result<String, Error> {
    let found = VARIABLES.iter().find_map(|name| read(name).filter(|url| !url.is_empty()));
    found.ok_or_else(|| invalid("", "neither TIDELOCK_STORE nor DATABASE_URL is set; set one of them").into())
}

impl From<MemoryStore> for Tidelock {
    fn from(store: MemoryStore) -> Self {
        Self::over(Arc::new(store), Backend::Other)
    }
}

impl From<SharedStore> for Tidelock {
    fn from(store: SharedStore) -> Self {
        Self::over(store, Backend::Other)
    }
}

#[cfg(feature = "sqlite")]
impl From<tidelock_sqlite::SqliteStore> for Tidelock {
    fn from(store: tidelock_sqlite::SqliteStore) -> Self {
        Self::over(Arc::new(store.clone()), Backend::Sqlite(store))
    }
}

#[cfg(feature = "postgres")]
impl From<tidelock_postgres::PostgresStore> for Tidelock {
    fn from(store: tidelock_postgres::PostgresStore) -> Self {
        Self::over(Arc::new(store.clone()), Backend::Postgres(store))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_the_store() {
        let both = |name: &str| Some(format!("of {name}"));
        assert_eq!(from_env(both).unwrap(), "of TIDELOCK_STORE");
        let other = |name: &str| Some(if name == "DATABASE_URL" { "d" } else { "" }.to_owned());
        assert_eq!(from_env(other).unwrap(), "d");
        assert!(from_env(|_| None).unwrap_err().to_string().contains("DATABASE_URL"));
    }
}
