//! Store URLs: `memory:`, `sqlite:PATH`, a plain path, or `postgres://…`.

use std::fmt;
use std::path::PathBuf;

use tidelock_core::error::InvalidInput;

/// The parsed URL of a store. `Debug` shows no password.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// The store of this process, which ends with it.
    Memory,
    /// A SQLite file.
    Sqlite(PathBuf),
    /// A PostgreSQL database.
    Postgres {
        /// The URL for the driver, with the password and without the parameter `schema`.
        url: String,
        /// The schema that the URL names.
        schema: Option<String>,
    },
}

impl StoreUrl {
    /// Parses `memory:`, `sqlite:PATH`, `sqlite://PATH`, a plain path, or a PostgreSQL URL. The parameter `schema` of a
    /// PostgreSQL URL names the schema of the store.
    ///
    /// # Errors
    /// [`InvalidInput::Name`] for another scheme or an empty path. The error does not contain the URL, because it may
    /// contain a password.
    pub fn parse(text: &str) -> Result<Self, InvalidInput> {
        let text = text.trim();
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(postgres(text));
        }
        let path = match text.split_once(':') {
            Some(("memory" | "mem", _)) => return Ok(Self::Memory),
            Some(("sqlite", rest)) => file(rest.strip_prefix("//").unwrap_or(rest))?,
            // Connection settings of libpq, which may contain a password, are no file name.
            None if text
                .split_whitespace()
                .any(|word| word.starts_with("host=") || word.starts_with("password=")) =>
            {
                return Err(invalid(
                    "",
                    "connection settings are not a URL; write postgres://USER:PASSWORD@HOST/DATABASE",
                ));
            }
            // One letter is a Windows drive, not a scheme.
            Some((scheme, rest)) if scheme.len() > 1 && (is_scheme(scheme) || rest.starts_with("//")) => {
                let reason = "expected postgres://…, sqlite:PATH, memory: or a plain path";
                return Err(invalid(scheme, reason));
            }
            _ => text,
        };
        match path {
            "" => Err(invalid("", "the path is empty; write sqlite:PATH or a path")),
            path => Ok(Self::Sqlite(path.into())),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("Memory"),
            Self::Sqlite(path) => f.debug_tuple("Sqlite").field(path).finish(),
            Self::Postgres { schema, .. } => {
                f.debug_struct("Postgres").field("schema", schema).finish_non_exhaustive()
            }
        }
    }
}

/// Returns the path of a SQLite URL. Parameters of other libraries would otherwise become a part of a file name.
fn file(path: &str) -> Result<&str, InvalidInput> {
    match path {
        ":memory:" => Err(invalid(path, "a store in memory is memory:, without a file")),
        path if path.contains('?') => Err(invalid(
            "sqlite",
            "the URL of a file has no parameters; pass options with Tidelock::options(url).sqlite(…)",
        )),
        path => Ok(path),
    }
}

fn is_scheme(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

fn postgres(text: &str) -> StoreUrl {
    let Some((server, parameters)) = text.split_once('?') else {
        return StoreUrl::Postgres { url: text.to_owned(), schema: None };
    };
    let (named, others): (Vec<&str>, Vec<&str>) =
        parameters.split('&').partition(|parameter| parameter.starts_with("schema="));
    let schema = named.last().and_then(|named| named.split_once('=')).map(|(_, name)| name.to_owned());
    let mark = if others.is_empty() { "" } else { "?" };
    StoreUrl::Postgres { url: format!("{server}{mark}{}", others.join("&")), schema }
}

pub(crate) fn invalid(text: &str, reason: &str) -> InvalidInput {
    InvalidInput::Name { what: "store URL", text: text.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_their_backend() {
        let file = |path: &str| StoreUrl::Sqlite(path.into());
        for (text, url) in [
            ("memory:", StoreUrl::Memory),
            ("app.db", file("app.db")),
            ("sqlite:app.db", file("app.db")),
            ("sqlite:///var/app.db", file("/var/app.db")),
            (" sqlite:app.db\n", file("app.db")),
            ("./a:b.db", file("./a:b.db")),
            (r"C:\app.db", file(r"C:\app.db")),
        ] {
            assert_eq!(StoreUrl::parse(text).unwrap(), url, "{text}");
        }
        for text in [
            "",
            "sqlite:",
            "sqlite::memory:",
            "sqlite://app.db?mode=rwc",
            "host=h password=secret dbname=d",
            "mysql://root:secret@host/db",
            "postgresql+ssl://root:secret@host/db",
            "my_sql://root:secret@host",
        ] {
            let error = StoreUrl::parse(text).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn the_schema_is_split_off() {
        for (text, url, schema) in [
            ("postgres://u:p@h/d", "postgres://u:p@h/d", None),
            ("postgres://h/d?schema=shop", "postgres://h/d", Some("shop")),
            ("postgresql://h/d?a=1&schema=shop&b=2", "postgresql://h/d?a=1&b=2", Some("shop")),
        ] {
            let wanted = StoreUrl::Postgres { url: url.to_owned(), schema: schema.map(str::to_owned) };
            assert_eq!(StoreUrl::parse(text).unwrap(), wanted);
            assert!(!format!("{wanted:?}").contains("p@h"));
        }
    }
}
