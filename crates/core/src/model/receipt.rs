//! What a caller gets for a batch that was applied.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::{DocVersion, Position, StreamVersion};
use crate::key::Key;
use crate::payload::Payload;

/// Proof that a batch was applied, with the numbers it was given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// When, by the store's clock.
    pub at: Timestamp,
    /// One entry for each append of at least one event, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub appended: Vec<Appended>,
    /// One entry for each put, delete and merge, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub documents: Vec<Written>,
    /// For each operator's verb, how many rows changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operated: Vec<u64>,
    /// For each truncate, how many events were removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub truncated: Vec<u64>,
    /// Whether the batch had been applied before and this is the first receipt once more.
    #[serde(default, skip)]
    pub repeated: bool,
}

impl Receipt {
    pub(super) fn new(at: Timestamp) -> Self {
        Self {
            at,
            appended: Vec::new(),
            documents: Vec::new(),
            operated: Vec::new(),
            truncated: Vec::new(),
            repeated: false,
        }
    }

    /// The position of the last event of the batch, for a reader that wants to see it.
    #[must_use]
    pub fn last_position(&self) -> Option<Position> {
        self.appended.iter().map(|a| a.last_position).max()
    }
}

/// Where the events of one append stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Appended {
    /// The stream.
    pub stream: Key,
    /// The version of the first event.
    pub first_version: StreamVersion,
    /// The version of the last event.
    pub last_version: StreamVersion,
    /// The position of the first event.
    pub first_position: Position,
    /// The position of the last event.
    pub last_position: Position,
}

/// What one put, delete or merge did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Written {
    /// The document.
    pub key: Key,
    /// Its version afterwards.
    pub version: DocVersion,
    /// The value that a merge arrived at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Payload>,
}
