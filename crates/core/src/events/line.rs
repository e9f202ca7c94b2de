//! An event as one object of JSON, as the command line and the server show it.

use serde::Serialize;

use crate::clock::Timestamp;
use crate::id::{EventId, EventType, Position, StreamVersion};
use crate::key::Key;
use crate::payload::Payload;
use crate::store::Event;

/// An event as programs get it from outside: one object of JSON, whose fields stay as they are.
///
/// ```
/// # use tidelock_core::events::EventLine;
/// # use tidelock_core::store::Event;
/// # fn show(event: &Event) -> Result<String, serde_json::Error> {
/// serde_json::to_string(&EventLine::of(event))
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct EventLine<'a> {
    position: Position,
    stream: &'a Key,
    version: StreamVersion,
    id: EventId,
    #[serde(rename = "type")]
    event_type: &'a EventType,
    at: Timestamp,
    payload: &'a Payload,
    meta: &'a Payload,
    correlation: Option<&'a str>,
}

impl<'a> EventLine<'a> {
    /// Of an event of the log.
    #[must_use]
    pub fn of(event: &'a Event) -> Self {
        let Event { position, stream, version, id, event_type, at, payload, meta, correlation } = event;
        Self {
            position: *position,
            stream,
            version: *version,
            id: *id,
            event_type,
            at: *at,
            payload,
            meta,
            correlation: correlation.as_deref(),
        }
    }
}
