//! Payload of a lease row: the holder's note, and the record of the last theft.

use serde::{Deserialize, Serialize};

use super::keys;
use crate::clock::{Due, Timestamp};
use crate::error::InvalidInput;
use crate::id::{Fence, Owner};
use crate::key::Key;
use crate::payload::Payload;
use crate::store::{NewWork, WorkRow, limits};

/// Sentinel due time of lease rows: the end of the year 9999. A row that is updated while it is held becomes due after
/// the lease, and a lease row must never become due.
pub(crate) const NEVER: Timestamp = Timestamp::from_micros(253_402_128_000_000_000);

/// The record that a lease was taken from its holder by force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stolen {
    /// The new owner.
    pub by: Owner,
    /// The previous owner.
    pub from: Owner,
    /// The fencing token that became stale.
    pub fence: Fence,
    /// The time of the theft, by the store's clock.
    pub at: Timestamp,
    /// The given reason.
    pub reason: String,
}

/// The payload of a lease's row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Said {
    /// The note, and the fencing token of the holder that wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<(Fence, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stolen: Option<Stolen>,
}

impl Said {
    /// Decodes the payload of a row. A payload of another form decodes to an empty value.
    pub(super) fn of(row: &WorkRow) -> Self {
        row.payload.parse().unwrap_or_default()
    }

    /// Returns the note of the holder with that fencing token.
    pub(super) fn note(&self, fence: Fence) -> Option<&str> {
        self.note.as_ref().filter(|(of, _)| *of == fence).map(|(_, note)| note.as_str())
    }

    pub(super) fn set_note(&mut self, fence: Fence, note: &str) {
        self.note = Some((fence, cut(note)));
    }

    /// Returns the effect that writes this payload to the row.
    pub(super) fn written(&self, row: &Key) -> Result<NewWork, InvalidInput> {
        let work = NewWork::standing(row.clone(), keys::queue()?);
        Ok(work.due(Due::At(NEVER)).payload(Payload::of(self)?))
    }
}

/// Truncates a text to the length that is stored.
pub(super) fn cut(text: &str) -> String {
    text.get(..text.floor_char_boundary(limits::ERROR_BYTES)).unwrap_or(text).to_owned()
}
