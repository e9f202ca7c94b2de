//! Dead letters: parked events, each in a document.

use serde::{Deserialize, Serialize};

use super::keys;
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::key::Key;
use crate::model::limits::PAYLOAD_BYTES;
use crate::payload::Payload;
use crate::store::{Batch, Event, Expect, SharedStore, StoreError, StreamQuery};

/// The content of the document of a parked event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) event: Event,
    /// Whether the event is complete. An event that is too large for a document is read from its stream again.
    pub(super) whole: bool,
    pub(super) error: String,
    pub(super) attempts: u32,
    pub(super) at: Timestamp,
    /// The number of failed replays.
    #[serde(default)]
    pub(super) replays: u32,
    /// Whether no key could be chosen for the event. It is then parked under its stream.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unrouted: bool,
}

/// The approximate size of a note without the event and the error.
const ENVELOPE_BYTES: usize = 4 * 1024;

impl Note {
    pub(super) fn new(event: &Event, error: &str, attempts: u32, at: Timestamp) -> Self {
        let mut event = event.clone();
        let error = cut(error);
        let whole =
            event.payload.len() + event.meta.len() + 2 * error.len() + ENVELOPE_BYTES <= PAYLOAD_BYTES;
        if !whole {
            (event.payload, event.meta) = (Payload::null(), Payload::null());
        }
        Self { event, whole, error, attempts, at, replays: 0, unrouted: false }
    }

    /// Marks the event as one for which no key could be chosen.
    pub(super) fn unrouted(self) -> Self {
        Self { unrouted: true, ..self }
    }

    /// Records another failure of the same event.
    pub(super) fn again(mut self, error: &str, at: Timestamp) -> Self {
        self.error = cut(error);
        self.at = at;
        self.replays = self.replays.saturating_add(1);
        self
    }

    /// Adds the document to a batch.
    pub(super) fn written(&self, batch: Batch, reaction: &str, key: &Key) -> Result<Batch, InvalidInput> {
        let document = keys::parked(reaction, key, self.event.position)?;
        Ok(batch.put(&document, Expect::Any, Payload::of(self)?))
    }

    /// Returns the complete event; `None` when its stream no longer contains it.
    pub(super) async fn whole_event(&self, store: &SharedStore) -> Result<Option<Event>, StoreError> {
        if self.whole {
            return Ok(Some(self.event.clone()));
        }
        let query = StreamQuery::forward(&self.event.stream, 1).from(self.event.version);
        let found = store.read_stream(query).await?.events.into_iter().next();
        Ok(found.filter(|event| event.id == self.event.id))
    }
}

/// Truncates an error to the stored length.
fn cut(text: &str) -> String {
    let limit = crate::model::limits::ERROR_BYTES;
    text.get(..text.floor_char_boundary(limit)).unwrap_or(text).to_owned()
}
