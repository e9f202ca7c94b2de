//! Tags: indexes of events across streams, for rules that span streams.
//!
//! A tag is a stream with a copy of each tagged event. Its version is the condition. A unit that has read the tag appends
//! to it, or guards it, at the version that it read. So "no new event with this tag since the read" holds at the commit, on
//! every store.

use serde::{Deserialize, Serialize};

use super::aggregate::Aggregate;
use super::codec::decode;
use super::error::EventsError;
use super::load::next;
use super::schema::shape;
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::{EventId, EventType, Position, StreamVersion};
use crate::key::Key;
use crate::key::reserved::TAGGED;
use crate::payload::Payload;
use crate::store::{NewEvent, Store, StreamQuery};

/// The type of the copies.
const COPY: &str = "tidelock.tagged";
/// The number of copies that are read at once.
const PAGE: usize = 1_000;

/// A name that finds events of many streams, such as `username:alice`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tag(String);

impl Tag {
    /// Creates a tag.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// Returns the stream of the copies: `tagged("username:alice")`.
    ///
    /// # Errors
    /// Returns [`InvalidInput`] when the name is too long.
    pub fn stream(&self) -> Result<Key, InvalidInput> {
        Key::new(TAGGED, [self.0.as_str()])
    }
}

/// A tagged event.
#[derive(Clone, Debug, PartialEq)]
pub struct TaggedEvent {
    /// The number of the event within the tag, starting at 0.
    pub number: StreamVersion,
    /// The position of the copy in the log, in the commit of the event; `None` before the commit of the unit that emitted
    /// it.
    pub position: Option<Position>,
    /// When it was committed; `None` before the commit.
    pub at: Option<Timestamp>,
    /// The stream of the event.
    pub stream: Key,
    /// The event's id.
    pub id: EventId,
    /// Its type.
    pub event_type: EventType,
    /// Its payload.
    pub payload: Payload,
    /// The shape of the payload.
    pub shape: u32,
}

impl TaggedEvent {
    /// Decodes the event of an aggregate in its current shape.
    ///
    /// # Errors
    /// Returns [`InvalidInput`] when the aggregate has no such event, or this program does not know its shape.
    pub fn decode<A: Aggregate>(&self) -> Result<A::Event, InvalidInput> {
        let (event_type, payload) = A::schema().upcast_from(&self.event_type, &self.payload, self.shape)?;
        decode(&event_type, &payload)
    }
}

#[derive(Serialize, Deserialize)]
struct Copied {
    stream: Key,
    id: EventId,
    #[serde(rename = "type")]
    event_type: EventType,
    payload: Payload,
    #[serde(default = "first", skip_serializing_if = "is_first")]
    shape: u32,
}

fn first() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference to the field")]
fn is_first(shape: &u32) -> bool {
    *shape <= 1
}

/// Creates the copy of an event for its tags.
pub(super) fn link(stream: &Key, event: &NewEvent) -> Result<NewEvent, InvalidInput> {
    let copied = Copied {
        stream: stream.clone(),
        id: event.id,
        event_type: event.event_type.clone(),
        payload: event.payload.clone(),
        shape: shape(&event.meta),
    };
    Ok(NewEvent::new(EventType::new(COPY)?, Payload::of(&copied)?))
}

/// Returns the tagged event of a copy that is not appended yet.
pub(super) fn pending(copy: &NewEvent, number: StreamVersion) -> Result<TaggedEvent, InvalidInput> {
    let Copied { stream, id, event_type, payload, shape } = copy.payload.parse()?;
    Ok(TaggedEvent { number, position: None, at: None, stream, id, event_type, payload, shape })
}

/// Reads all events of a tag, oldest first.
pub(super) async fn read(store: &dyn Store, tag: &Tag) -> Result<Vec<TaggedEvent>, EventsError> {
    let (stream, mut found) = (tag.stream()?, Vec::<TaggedEvent>::new());
    loop {
        let from = found.last().map_or(StreamVersion(0), |last| next(last.number));
        let page = store.read_stream(StreamQuery::forward(&stream, PAGE).from(from)).await?;
        for event in page.events {
            let undecodable = |error: InvalidInput| EventsError::Undecodable {
                stream: stream.clone(),
                version: event.version,
                event_type: event.event_type.clone(),
                reason: error.to_string(),
            };
            let Copied { stream, id, event_type, payload, shape } =
                event.payload.parse().map_err(undecodable)?;
            let (number, position, at) = (event.version, Some(event.position), Some(event.at));
            found.push(TaggedEvent { number, position, at, stream, id, event_type, payload, shape });
        }
        if page.end {
            return Ok(found);
        }
    }
}
