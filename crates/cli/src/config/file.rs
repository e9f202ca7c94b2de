//! The configuration file `tidelock.toml`: discovery, parsing, and validation against the table of settings.
//! Errors name the line.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::settings::{Kind, SETTINGS, named};
use crate::server_url::ServerUrl;

/// The file name.
pub(crate) const NAME: &str = "tidelock.toml";
/// The maximum size of a configuration file.
const MOST_BYTES: u64 = 1 << 20;

/// A value and its line number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) value: String,
    pub(crate) line: usize,
}

/// A parsed configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) values: BTreeMap<&'static str, Found>,
}

/// An error in the configuration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    Unreadable { file: PathBuf, reason: String },
    /// The file is not valid TOML.
    Syntax { file: PathBuf, line: usize, reason: String },
    /// The key is unknown.
    Unknown { file: PathBuf, line: usize, key: String, nearest: Option<&'static str> },
    /// The value is invalid for the key.
    Unfit { file: PathBuf, line: usize, key: String, expected: String, found: String },
    /// An environment variable has an invalid value.
    Variable { name: &'static str, expected: String, found: String },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { file, reason } => write!(f, "{} cannot be read: {reason}", file.display()),
            Self::Syntax { file, line, reason } => {
                write!(f, "{}:{line}: this is no TOML: {reason}", file.display())
            }
            Self::Unknown { file, line, key, nearest } => {
                write!(f, "{}:{line}: there is no setting {key:?}", file.display())?;
                match nearest {
                    Some(nearest) => write!(f, "; did you mean {nearest}?"),
                    None => write!(f, "; `tidelock config show` lists all of them"),
                }
            }
            Self::Unfit { file, line, key, expected, found } => {
                write!(f, "{}:{line}: {key} must be {expected}, and is {found}", file.display())
            }
            Self::Variable { name, expected, found } => {
                write!(f, "{name} must be {expected}, and is {found:?}")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

/// Returns the nearest file, from a directory upwards.
pub(crate) fn nearest(from: &Path) -> Option<PathBuf> {
    from.ancestors().map(|directory| directory.join(NAME)).find(|file| file.is_file())
}

impl File {
    /// Reads and validates a file.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |reason: String| ConfigError::Unreadable { file: path.to_owned(), reason };
        let length = std::fs::metadata(path).map_err(|e| unreadable(e.to_string()))?.len();
        if length > MOST_BYTES {
            return Err(unreadable(format!("it has more than {MOST_BYTES} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|e| unreadable(e.to_string()))?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let line = |at: usize| text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
            file: path.to_owned(),
            line: line(error.span().map_or(0, |span| span.start)),
            reason: error.message().to_owned(),
        })?;
        let mut file = Self { path: path.to_owned(), values: BTreeMap::new() };
        file.take("", table.get_ref(), &line)?;
        Ok(file)
    }

    /// Collects the members of a table.
    fn take(
        &mut self,
        of: &str,
        table: &DeTable<'_>,
        line: &dyn Fn(usize) -> usize,
    ) -> Result<(), ConfigError> {
        for (name, value) in table {
            let key =
                if of.is_empty() { name.get_ref().to_string() } else { format!("{of}.{}", name.get_ref()) };
            let at = line(name.span().start);
            let inner = value
                .get_ref()
                .as_table()
                .filter(|_| SETTINGS.iter().any(|setting| is_in(setting.key, &key)));
            match (named(&key), inner) {
                (Some(setting), _) => {
                    let found = self.fit(setting.kind, &key, value, at)?;
                    self.values.insert(setting.key, Found { value: found, line: at });
                }
                (None, Some(inner)) => self.take(&key, inner, line)?,
                (None, None) => {
                    return Err(ConfigError::Unknown {
                        file: self.path.clone(),
                        line: at,
                        nearest: near(&key),
                        key,
                    });
                }
            }
        }
        Ok(())
    }

    /// Returns the value as text, if it is valid.
    fn fit(
        &self,
        kind: Kind,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        line: usize,
    ) -> Result<String, ConfigError> {
        let value = value.get_ref();
        match value.as_str() {
            Some(text) if kind.takes(text) => {
                Ok(if kind == Kind::Store { self.based(text) } else { text.to_owned() })
            }
            text => {
                let found = text.map_or_else(|| a(value.type_str()), |text| format!("{text:?}"));
                let (file, key, expected) = (self.path.clone(), key.to_owned(), kind.expected());
                Err(ConfigError::Unfit { file, line, key, expected, found })
            }
        }
    }

    /// Resolves the path of a store against the directory of this file, regardless of the working directory.
    fn based(&self, store: &str) -> String {
        let (scheme, path) = match store.strip_prefix("sqlite:") {
            Some(rest) => ("sqlite:", rest.strip_prefix("//").unwrap_or(rest)),
            None => ("", store),
        };
        let elsewhere = path.contains("://") || path.starts_with("mem:") || path.starts_with("memory:");
        if ServerUrl::is_meant_by(store) || (scheme.is_empty() && elsewhere) || path.is_empty() {
            return store.to_owned();
        }
        let directory = self.path.parent().unwrap_or(Path::new(""));
        format!("{scheme}{}", directory.join(path).display())
    }
}

fn a(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'i']) { "an" } else { "a" };
    format!("{article} {kind}")
}

/// Returns whether a key belongs to a table.
fn is_in(key: &str, table: &str) -> bool {
    key.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'))
}

/// Returns the most similar known key, if one is similar enough.
fn near(key: &str) -> Option<&'static str> {
    let keys = SETTINGS.iter().map(|setting| setting.key);
    // A key in the wrong table still ends in the same word.
    let word = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let distance = |known: &str| changes(known, key).min(changes(&word(known), &word(key)));
    keys.map(|known| (distance(known), known))
        .min()
        .filter(|(changes, _)| *changes <= 2)
        .map(|(_, known)| known)
}

/// Returns the Levenshtein distance of two words.
fn changes(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut corner = i;
        let mut left = i + 1;
        for (cell, b) in row.iter_mut().skip(1).zip(other.chars()) {
            let best = (corner + usize::from(a != b)).min(*cell + 1).min(left + 1);
            (corner, *cell, left) = (*cell, best, best);
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<File, ConfigError> {
        File::parse(Path::new("/shop/tidelock.toml"), text)
    }

    fn refused(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn values_are_read_with_their_lines() {
        let file = parse("# the shop\nstore = \"app.db\"\n\n[serve]\nlisten = \"127.0.0.1:80\"\n").unwrap();
        let store = Found { value: "/shop/app.db".to_owned(), line: 2 };
        let listen = Found { value: "127.0.0.1:80".to_owned(), line: 5 };
        assert_eq!(file.values.into_iter().collect::<Vec<_>>(), [("serve.listen", listen), ("store", store)]);
    }

    #[test]
    fn a_path_counts_from_the_file() {
        let store = |text: &str| parse(&format!("store = {text:?}")).unwrap().values["store"].value.clone();
        for (text, meant) in [
            ("app.db", "/shop/app.db"),
            ("../app.db", "/shop/../app.db"),
            ("/var/app.db", "/var/app.db"),
            ("sqlite://app.db", "sqlite:/shop/app.db"),
            ("postgres://me:secret@db/app", "postgres://me:secret@db/app"),
            ("mysql://db/app", "mysql://db/app"),
            ("mem:", "mem:"),
        ] {
            assert_eq!(store(text), meant, "{text}");
        }
    }

    #[test]
    fn an_error_names_file_line_key_and_expected_value() {
        for (text, told) in [
            ("\nstroe = \"a\"", "/shop/tidelock.toml:2: there is no setting \"stroe\"; did you mean store?"),
            (
                "[serve]\nlissten = \"a\"",
                ":2: there is no setting \"serve.lissten\"; did you mean serve.listen?",
            ),
            ("listen = \"a\"", ":1: there is no setting \"listen\"; did you mean serve.listen?"),
            (
                "[nowhere]\nlistens = 1",
                ":1: there is no setting \"nowhere\"; `tidelock config show` lists all",
            ),
            (
                "store = 7",
                ":1: store must be a text: a path, sqlite://PATH or postgres://…, and is an integer",
            ),
            ("output = \"xml\"", ":1: output must be one of table, json, jsonl, and is \"xml\""),
            ("[top]\nevery = \"soon\"", ":2: top.every must be a text with a span of time"),
            ("[serve]\nlisten = \"here\"", ":2: serve.listen must be a text with an address and a port"),
            ("store = \"a\"\nstore = \"b\"", ":2: this is no TOML: "),
            ("a = ", ":1: this is no TOML: "),
        ] {
            assert!(refused(text).contains(told), "{text:?}: {}", refused(text));
        }
    }

    #[test]
    fn the_nearest_word_is_found() {
        assert_eq!((changes("store", "stroe"), changes("", "abc"), changes("abc", "abc")), (2, 3, 0));
        assert_eq!(near("colour"), Some("color"));
        assert_eq!(near("something else"), None);
    }
}
