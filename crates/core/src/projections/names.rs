//! The names that projections have in the store.

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::key::{Arg, Key, KeyPrefix};

/// The document that says which version of a projection is read: `tidelock.projection("sold")`.
pub(super) fn pointer(name: &str) -> Result<Key, InvalidInput> {
    Key::new("tidelock.projection", [name])
}

/// The kind of the rows of a version: `sold/v2`.
pub(super) fn kind(name: &str, version: u32) -> String {
    format!("{name}/v{version}")
}

/// The rows of a version.
pub(super) fn rows(name: &str, version: u32) -> KeyPrefix {
    KeyPrefix::kind(&kind(name, version))
}

/// A row of a version.
pub(super) fn row(name: &str, version: u32, args: &[Arg]) -> Result<Key, InvalidInput> {
    Key::of(&kind(name, version), args)
}

/// The reaction that makes the rows of a version.
pub(super) fn reaction(name: &str, version: u32) -> String {
    format!("projection:{}", kind(name, version))
}

/// The version whose rows a reaction makes, if it is one of this projection.
pub(super) fn version_of(name: &str, reaction: &str) -> Option<u32> {
    reaction.strip_prefix("projection:")?.strip_prefix(name)?.strip_prefix("/v")?.parse().ok()
}

/// Which version is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pointer {
    /// The version that is read.
    pub(super) live: u32,
    /// Nothing is left of versions below this one.
    pub(super) cleared: u32,
}
