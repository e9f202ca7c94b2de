//! Opening a store by its URL.

use std::ffi::OsString;
use std::fmt;
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
#[derive(Clone, Default)]
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

impl fmt::Debug for OpenOptions {
    /// Shows no URL, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = StoreUrl::parse(&self.url).map_err(|_| "invalid");
        f.debug_struct("OpenOptions").field("url", &url).field("schema", &self.schema).finish_non_exhaustive()
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
/// The variable that names the schema of a PostgreSQL store.
const SCHEMA: &str = "TIDELOCK_SCHEMA";

/// Returns the options that the environment names.
pub(crate) fn from_env(read: impl Fn(&str) -> Option<OsString>) -> Result<OpenOptions, Error> {
    let text =
        |name: &'static str| match read(name).filter(|value| !value.is_empty()).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(_)) => Err(invalid("", &format!("the value of {name} is not UTF-8; correct it"))),
        };
    for name in VARIABLES {
        if let Some(url) = text(name)? {
            return Ok(OpenOptions { schema: text(SCHEMA)?, ..OpenOptions::new(&url) });
        }
    }
    Err(invalid("", "neither TIDELOCK_STORE nor DATABASE_URL is set; set one of them").into())
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
        let named = |name: &str| Some(OsString::from(format!("of {name}")));
        let both = from_env(named).unwrap();
        assert_eq!(
            (both.url.as_str(), both.schema.as_deref()),
            ("of TIDELOCK_STORE", Some("of TIDELOCK_SCHEMA"))
        );
        let other = |name: &str| Some(if name == "DATABASE_URL" { "d" } else { "" }.into());
        let other = from_env(other).unwrap();
        assert_eq!((other.url.as_str(), other.schema), ("d", None));
        assert!(from_env(|_| None).unwrap_err().to_string().contains("DATABASE_URL"));
    }

    #[cfg(unix)]
    #[test]
    fn a_variable_that_is_not_text_is_not_passed_over() {
        use std::os::unix::ffi::OsStringExt as _;
        let read = |name: &str| {
            Some(if name == "TIDELOCK_STORE" { OsString::from_vec(vec![0xff]) } else { "d".into() })
        };
        assert!(from_env(read).unwrap_err().to_string().contains("TIDELOCK_STORE"));
    }

    #[test]
    fn options_show_no_password() {
        for url in ["postgres://ann:secret@host/db", "mysql://ann:secret@host/db"] {
            let shown = format!("{:?}", OpenOptions::new(url));
            assert!(!shown.contains("secret"), "{shown}");
        }
    }
}
