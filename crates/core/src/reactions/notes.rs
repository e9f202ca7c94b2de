//! What is noted on a row of a key, in its payload.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::Position;
use crate::payload::Payload;
use crate::store::WorkRow;

/// A note on a row. It counts only while the row is where it was then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub(super) enum RowNote {
    /// Its handler put itself off.
    PutOff {
        /// Until then.
        until: Timestamp,
        /// Where the row was.
        position: Option<Position>,
    },
    /// An operator wants the next event to be set aside.
    Park {
        /// Where the row was.
        position: Option<Position>,
        /// Why it could not go on.
        error: String,
    },
}

impl RowNote {
    /// The note that counts for a row as it is.
    pub(super) fn of(row: &WorkRow) -> Option<Self> {
        let note: Self = row.payload.parse().ok()?;
        let (Self::PutOff { position, .. } | Self::Park { position, .. }) = &note;
        (*position == row.position).then_some(note)
    }

    /// Whether a row has a note, also one that does not count where the row is.
    pub(super) fn is_on(row: &WorkRow) -> bool {
        row.payload.parse::<Self>().is_ok()
    }

    pub(super) fn payload(&self) -> Result<Payload, InvalidInput> {
        Payload::of(self)
    }
}
