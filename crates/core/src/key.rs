//! Keys: a kind and typed arguments, compared structurally.
//!
//! The same type names streams, documents, work rows, locks and leases. A key *is* its canonical text (see
//! [`encoding`]), which every backend stores unchanged. Equal keys have equal text, and text order is key order.

pub mod encoding;
mod into_key;
mod readable;
pub mod reserved;

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::InvalidInput;

pub use into_key::{IntoArg, IntoKey};

/// One argument of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arg {
    /// Text: any Unicode, the empty text included.
    Str(String),
    /// A UUID.
    Uuid(Uuid),
    /// A whole number.
    Int(i64),
}

impl From<&str> for Arg {
    fn from(text: &str) -> Self {
        Self::Str(text.to_owned())
    }
}

impl From<String> for Arg {
    fn from(text: String) -> Self {
        Self::Str(text)
    }
}

impl From<&String> for Arg {
    fn from(text: &String) -> Self {
        Self::Str(text.clone())
    }
}

impl From<Uuid> for Arg {
    fn from(id: Uuid) -> Self {
        Self::Uuid(id)
    }
}

impl From<i64> for Arg {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<i32> for Arg {
    fn from(number: i32) -> Self {
        Self::Int(number.into())
    }
}

impl From<u32> for Arg {
    fn from(number: u32) -> Self {
        Self::Int(number.into())
    }
}

/// Writes the argument as plain text, without quotes.
impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Str(text) => f.write_str(text),
            Self::Uuid(id) => id.fmt(f),
            Self::Int(number) => number.fmt(f),
        }
    }
}

/// The kind of documents that index other documents: the name of the index, the sort order, the indexed key. Backends
/// skip the tombstones of this kind when they list or count a range.
pub const INDEX_KIND: &str = "tidelock.index";

/// The maximum length of a key's canonical text, in bytes. It fits a B-tree entry of every backend.
pub const MAX_KEY_BYTES: usize = 1024;

/// The name of one entity: a kind and its arguments, such as `cart("user-17")`.
///
/// `f("a,b")` and `f("a", "b")` are different keys, and so are `f(5)` and `f("5")`. Cloning shares the text.
///
/// ```
/// use tidelock_core::key::Key;
///
/// let cart = Key::new("cart", ["user-17"])?;
/// assert_eq!(cart.to_string(), r#"cart("user-17")"#);
/// assert_eq!(cart, r#"cart("user-17")"#.parse()?);
/// # Ok::<(), tidelock_core::error::InvalidInput>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// Builds a key from a kind and arguments of one type. For mixed types, use [`Key::of`].
    ///
    /// # Errors
    /// [`InvalidInput`] when the kind is empty or the key is longer than [`MAX_KEY_BYTES`].
    pub fn new<A: Into<Arg>>(kind: &str, args: impl IntoIterator<Item = A>) -> Result<Self, InvalidInput> {
        let args: Vec<Arg> = args.into_iter().map(Into::into).collect();
        Self::of(kind, &args)
    }

    /// Builds a key from a kind and any arguments.
    ///
    /// # Errors
    /// [`InvalidInput`] when the kind is empty or the key is longer than [`MAX_KEY_BYTES`].
    pub fn of(kind: &str, args: &[Arg]) -> Result<Self, InvalidInput> {
        if kind.is_empty() {
            return Err(InvalidInput::Key { text: String::new(), reason: "the kind is empty".to_owned() });
        }
        let text = encoding::encode(kind, args);
        if text.len() > MAX_KEY_BYTES {
            return Err(InvalidInput::Limit {
                what: "the key length in bytes",
                subject: format!("a key of kind {:?}", kind.chars().take(40).collect::<String>()),
                found: text.len(),
                limit: MAX_KEY_BYTES,
            });
        }
        Ok(Self(text.into()))
    }

    /// Builds a key without arguments.
    ///
    /// # Errors
    /// [`InvalidInput`] when the kind is empty or too long.
    pub fn single(kind: &str) -> Result<Self, InvalidInput> {
        Self::of(kind, &[])
    }

    /// Parses a key from its canonical text, as a backend stores it.
    ///
    /// # Errors
    /// [`InvalidInput::Key`] when the text is not the canonical text of any key.
    pub fn from_canonical(text: impl Into<Arc<str>>) -> Result<Self, InvalidInput> {
        let text = text.into();
        let (kind, args) = encoding::decode(&text)?;
        let again = Self::of(&kind, &args)?;
        if again.0 != text {
            return Err(encoding::malformed(&text, "it is not in canonical form"));
        }
        Ok(again)
    }

    /// Wraps canonical text that a store wrote earlier, without validating it again.
    #[must_use]
    pub fn trusted(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the canonical text, which backends store, compare and sort by.
    #[must_use]
    pub fn canonical(&self) -> &str {
        &self.0
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> String {
        encoding::decode(&self.0).map_or_else(|_| self.0.as_ref().to_owned(), |(kind, _)| kind)
    }

    /// Returns the arguments.
    #[must_use]
    pub fn args(&self) -> Vec<Arg> {
        encoding::decode(&self.0).map_or_else(|_| Vec::new(), |(_, args)| args)
    }

    /// Returns the key of a companion of this one: `snapshot("stock", "apples")` for `stock("apples")`.
    ///
    /// # Errors
    /// [`InvalidInput`] when the companion key would be too long.
    pub fn beside(&self, kind: &str) -> Result<Self, InvalidInput> {
        let mut args = vec![Arg::from(self.kind())];
        args.extend(self.args());
        Self::of(kind, &args)
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match encoding::decode(&self.0) {
            Ok((kind, args)) => readable::write(f, &kind, &args),
            Err(_) => write!(f, "{:?}", self.0),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses the form that [`Display`](fmt::Display) writes: `kind`, `kind()`, `kind("text", 42, 0190….)`.
impl FromStr for Key {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, args) = readable::key(text)?;
        Self::of(&kind, &args)
    }
}

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A contiguous range of keys with a common prefix. Every character is literal: there are no wildcards.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyPrefix {
    from: String,
    below: Option<String>,
}

impl KeyPrefix {
    /// Covers all keys.
    #[must_use]
    pub fn all() -> Self {
        Self { from: String::new(), below: None }
    }

    /// Covers all keys of a kind, whatever their arguments.
    #[must_use]
    pub fn kind(kind: &str) -> Self {
        Self::under(kind, &[])
    }

    /// Covers the key with exactly these arguments, and every key that has more after them.
    #[must_use]
    pub fn under(kind: &str, args: &[Arg]) -> Self {
        let from = encoding::encode(kind, args);
        let below = Some(encoding::end_of_component(&from));
        Self { from, below }
    }

    /// Covers every key with these arguments followed by a text argument that begins with `start`.
    #[must_use]
    pub fn starting(kind: &str, args: &[Arg], start: &str) -> Self {
        let mut args = args.to_vec();
        args.push(Arg::Str(start.to_owned()));
        let from = encoding::encode(kind, &args);
        let below = encoding::successor(&from);
        Self { from, below }
    }

    /// Covers every key whose canonical text begins with `start`.
    #[must_use]
    pub(crate) fn of_text(start: &str) -> Self {
        Self { from: start.to_owned(), below: encoding::successor(start) }
    }

    /// Returns the first canonical text that may belong to the range.
    #[must_use]
    pub fn from(&self) -> &str {
        &self.from
    }

    /// Returns the first canonical text after the range; `None` when the range has no end.
    #[must_use]
    pub fn below(&self) -> Option<&str> {
        self.below.as_deref()
    }

    /// Returns whether the key lies in the range.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        let text = key.canonical();
        text >= self.from.as_str() && self.below.as_deref().is_none_or(|below| text < below)
    }
}

/// Parses the text that a user types for a range of keys: a kind (`session`), or a key with its first arguments
/// (`session("s-1")`). The text may end inside a text argument: `session("s-` covers every session whose id begins with
/// `s-`.
impl FromStr for KeyPrefix {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        readable::prefix(text)
    }
}

#[cfg(test)]
mod tests;
