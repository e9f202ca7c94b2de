//! Notes in the payload of a key's row.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::Position;
use crate::payload::Payload;
use crate::store::WorkRow;

/// A note on a row. It applies only while the row is at the recorded position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub(super) enum RowNote {
    /// The handler deferred the row.
    PutOff {
        /// The due time of the deferral.
        until: Timestamp,
        /// The position of the row.
        position: Option<Position>,
    },
    /// An operator has asked to park the next event.
    Park {
        /// The position of the row.
        position: Option<Position>,
        /// The reason why the row was blocked.
        error: String,
    },
}

impl RowNote {
    /// Returns the note that applies to a row at its current position.
    pub(super) fn of(row: &WorkRow) -> Option<Self> {
        let note: Self = row.payload.parse().ok()?;
        let (Self::PutOff { position, .. } | Self::Park { position, .. }) = &note;
        (*position == row.position).then_some(note)
    }

    /// Returns whether a row has a note, even one that does not apply at its position.
    pub(super) fn is_on(row: &WorkRow) -> bool {
        row.payload.parse::<Self>().is_ok()
    }

    pub(super) fn payload(&self) -> Result<Payload, InvalidInput> {
        Payload::of(self)
    }
}
