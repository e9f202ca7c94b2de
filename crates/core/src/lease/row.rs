//! What the payload of a lease's row says: the note of its holder, and who stole it last.

use serde::{Deserialize, Serialize};

use super::names;
use crate::clock::{Due, Timestamp};
use crate::error::InvalidInput;
use crate::id::{Fence, Owner};
use crate::key::Key;
use crate::payload::Payload;
use crate::store::{NewWork, WorkRow, limits};

/// The end of the year 9999. What is said about a row while it is held makes it due after the lease; it is never to be
/// due, so it is due then.
pub(crate) const NEVER: Timestamp = Timestamp::from_micros(253_402_300_799_000_000);

/// The record that a lease was taken from its holder by force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stolen {
    /// Who took it.
    pub by: Owner,
    /// Who had it.
    pub from: Owner,
    /// The fence that was made stale.
    pub fence: Fence,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// The reason that was given.
    pub reason: String,
}

/// The payload of a lease's row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Said {
    /// The note, and the fence that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<(Fence, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stolen: Option<Stolen>,
}

impl Said {
    /// What a row says. A payload that is something else says nothing.
    pub(super) fn of(row: &WorkRow) -> Self {
        row.payload.parse().unwrap_or_default()
    }

    /// The note of the holder with that fence.
    pub(super) fn note(&self, fence: Fence) -> Option<&str> {
        self.note.as_ref().filter(|(of, _)| *of == fence).map(|(_, note)| note.as_str())
    }

    pub(super) fn set_note(&mut self, fence: Fence, note: &str) {
        self.note = Some((fence, cut(note)));
    }

    /// The effect that writes this onto the row.
    pub(super) fn written(&self, row: &Key) -> Result<NewWork, InvalidInput> {
        let work = NewWork::standing(row.clone(), names::lane()?);
        Ok(work.due(Due::At(NEVER)).payload(Payload::of(self)?))
    }
}

/// A text as it is kept.
pub(super) fn cut(text: &str) -> String {
    text.get(..text.floor_char_boundary(limits::ERROR_BYTES)).unwrap_or(text).to_owned()
}
