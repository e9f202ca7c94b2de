//! Checkpoint of a closing, as one document. The first commit of the closing writes it and the last one deletes it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::id::{DocVersion, StreamVersion};
use crate::key::Key;
use crate::store::StoredDocument;

/// The way in which a stream is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArchiveMode {
    /// It is closed permanently.
    Tombstone,
    /// It restarts from its state.
    Restart,
    /// Its oldest events are removed, and the state after them replaces them.
    Window,
}

impl fmt::Display for ArchiveMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tombstone => "with a tombstone",
            Self::Restart => "with a restart",
            Self::Window => "up to a version",
        })
    }
}

/// How a closing removes events.
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

/// The content of the checkpoint document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) way: ArchiveMode,
    pub(super) removal: Removal,
    /// Events below this version are archived and removed.
    pub(super) cut: StreamVersion,
    /// Events below this version are in the archive.
    pub(super) archived: StreamVersion,
    /// The number of events per page. It is recorded so that a repeated page is identical.
    pub(super) page: usize,
}

/// A checkpoint with its document version.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    pub(super) note: Note,
    pub(super) version: DocVersion,
}

impl Progress {
    pub(super) fn read(document: &StoredDocument) -> Result<Self, InvalidInput> {
        Ok(Self { note: document.value.parse()?, version: document.version })
    }
}

/// Returns the key of the checkpoint document and of the lease of a closing: `tidelock.closing("account", "ann")`.
pub(super) fn name(stream: &Key) -> Result<Key, InvalidInput> {
    stream.beside("tidelock.closing")
}
