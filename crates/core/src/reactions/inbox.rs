//! Copies of events in the inboxes of keys. A copy has all fields of the event and is decoded to the same event.

use serde::{Deserialize, Serialize};

use super::keys::ROUTED;
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::{EventId, EventType, Position, StreamVersion};
use crate::key::Key;
use crate::payload::Payload;
use crate::store::{Event, NewEvent};

/// The metadata of a copy: all fields of the event except its payload and correlation, which the copy has itself.
#[derive(Debug, Serialize, Deserialize)]
struct Origin {
    position: Position,
    stream: Key,
    version: StreamVersion,
    id: EventId,
    #[serde(rename = "type")]
    event_type: EventType,
    at: Timestamp,
    meta: Payload,
}

/// Creates the copy of an event. It has its own id; the event's id is part of the metadata.
pub(super) fn copy(event: &Event) -> Result<NewEvent, InvalidInput> {
    let Event { position, stream, version, id, event_type, at, payload, meta, correlation } = event.clone();
    let origin = Origin { position, stream, version, id, event_type, at, meta };
    let mut copy = NewEvent::new(EventType::new(ROUTED)?, payload);
    copy.meta = Payload::of(&origin)?;
    copy.correlation = correlation;
    Ok(copy)
}

/// Decodes the event from its copy.
pub(super) fn original(copy: &Event) -> Result<Event, InvalidInput> {
    let Origin { position, stream, version, id, event_type, at, meta } = copy.meta.parse()?;
    let (payload, correlation) = (copy.payload.clone(), copy.correlation.clone());
    Ok(Event { position, stream, version, id, event_type, at, payload, meta, correlation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_comes_back_as_it_was() {
        let event = Event {
            position: Position(41),
            stream: r#"order("o-1")"#.parse().unwrap(),
            version: StreamVersion(3),
            id: EventId::new(),
            event_type: EventType::new("OrderPlaced").unwrap(),
            at: Timestamp::from_micros(1_000_000),
            payload: Payload::from_json(r#"{"wide": 123456789012345678901234567890}"#).unwrap(),
            meta: Payload::from_json(r#"{"causation": "x", "n": [1]}"#).unwrap(),
            correlation: Some("c".to_owned()),
        };
        let copied = copy(&event).unwrap();
        assert_eq!(copied.event_type.as_str(), ROUTED);
        assert_ne!(copied.id, event.id);
        let there = Event {
            position: Position(99),
            stream: "inbox".parse().unwrap(),
            version: StreamVersion(0),
            id: copied.id,
            event_type: copied.event_type,
            at: Timestamp::EPOCH,
            payload: copied.payload,
            meta: copied.meta,
            correlation: copied.correlation,
        };
        assert_eq!(original(&there).unwrap(), event);
        let foreign = Event { meta: Payload::null(), ..there };
        assert!(original(&foreign).is_err());
    }
}
