//! Keys and names of projections in the store.

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::key::{Arg, Key, KeyPrefix};

/// Returns the key of the document that names the live version of a projection: `tidelock.projection("sold")`.
pub(super) fn pointer(name: &str) -> Result<Key, InvalidInput> {
    Key::new("tidelock.projection", [name])
}

/// Returns the kind of the rows of a version: `sold/v2`.
pub(super) fn kind(name: &str, version: u32) -> String {
    format!("{name}/v{version}")
}

/// Returns the range of the rows of a version.
pub(super) fn rows(name: &str, version: u32) -> KeyPrefix {
    KeyPrefix::kind(&kind(name, version))
}

/// Returns the key of a row of a version.
pub(super) fn row(name: &str, version: u32, args: &[Arg]) -> Result<Key, InvalidInput> {
    Key::of(&kind(name, version), args)
}

/// Returns the name of the reaction that writes the rows of a version.
pub(super) fn reaction(name: &str, version: u32) -> String {
    format!("projection:{}", kind(name, version))
}

/// Returns the version whose rows a reaction writes, if it belongs to this projection.
pub(super) fn version_of(name: &str, reaction: &str) -> Option<u32> {
    reaction.strip_prefix("projection:")?.strip_prefix(name)?.strip_prefix("/v")?.parse().ok()
}

/// The content of the document that names the live version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pointer {
    /// The version that readers read.
    pub(super) live: u32,
    /// The version below which all versions are deleted.
    pub(super) cleared: u32,
}
