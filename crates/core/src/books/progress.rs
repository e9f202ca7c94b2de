//! How far a closing has come: one document, written with the commit that begins it and deleted with the one that ends it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::id::{DocVersion, StreamVersion};
use crate::key::Key;
use crate::store::Document;

/// What becomes of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// It is closed for ever.
    Tombstone,
    /// It begins anew with its state.
    Restart,
    /// Its oldest events go, and the state of that moment stands for them.
    Window,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tombstone => "with a tombstone",
            Self::Restart => "to begin anew",
            Self::Window => "up to a version",
        })
    }
}

/// What becomes of the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Removal {
    /// They are archived before they are removed.
    Archive,
    /// They are removed.
    Discard,
}

impl Removal {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Archive => Self::Discard,
            Self::Discard => Self::Archive,
        }
    }
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Archive => "archives",
            Self::Discard => "discards",
        })
    }
}

/// What is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) way: Way,
    pub(super) removal: Removal,
    /// Events below this version are archived and removed.
    pub(super) cut: StreamVersion,
    /// Events below this version are in the archive.
    pub(super) archived: StreamVersion,
    /// How many events a page has. It is kept, so that a page that comes again is the same.
    pub(super) page: usize,
}

/// A note as it was read or written.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    pub(super) note: Note,
    pub(super) version: DocVersion,
}

impl Progress {
    pub(super) fn read(document: &Document) -> Result<Self, InvalidInput> {
        Ok(Self { note: document.value.parse()?, version: document.version })
    }
}

/// The name of the note about a stream, and of the lease of whoever closes it: `tidelock.closing("account", "ann")`.
pub(super) fn name(stream: &Key) -> Result<Key, InvalidInput> {
    stream.beside("tidelock.closing")
}
