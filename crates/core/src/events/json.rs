//! JSON representation of events, for the command line and the server.

use serde::Serialize;

use crate::clock::Timestamp;
use crate::id::{EventId, EventType, Position, StreamVersion};
use crate::key::Key;
use crate::payload::Payload;
use crate::store::Event;

/// An event as one JSON object for external programs. The fields are stable.
///
/// ```
/// # use tidelock_core::events::EventJson;
/// # use tidelock_core::store::Event;
/// # fn show(event: &Event) -> Result<String, serde_json::Error> {
/// serde_json::to_string(&EventJson::of(event))
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct EventJson<'a> {
    position: Position,
    stream: &'a Key,
    version: StreamVersion,
    id: EventId,
    #[serde(rename = "type")]
    event_type: &'a EventType,
    recorded_at: Timestamp,
    payload: &'a Payload,
    meta: &'a Payload,
    correlation: Option<&'a str>,
}

impl<'a> EventJson<'a> {
    /// Creates the representation of an event.
    #[must_use]
    pub fn of(event: &'a Event) -> Self {
        let Event { position, stream, version, id, event_type, at, payload, meta, correlation } = event;
        Self {
            position: *position,
            stream,
            version: *version,
            id: *id,
            event_type,
            recorded_at: *at,
            payload,
            meta,
            correlation: correlation.as_deref(),
        }
    }
}
