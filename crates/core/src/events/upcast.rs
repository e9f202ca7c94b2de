//! Upcasting wherever events are read: by the kind of their stream, with the schema of the aggregate that has it.

use std::collections::BTreeMap;
use std::fmt;

use super::aggregate::Aggregate;
use super::context::restamped;
use super::schema::{EventSchema, shape};
use crate::error::InvalidInput;
use crate::id::EventType;
use crate::store::Event;

/// The schemas of aggregates, by the kind of their streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Upcasters(BTreeMap<String, EventSchema>);

/// Why an event cannot be read in its present shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UpcastError {
    /// It was written by a newer program.
    Newer { event_type: EventType, shape: u32, known: u32 },
    /// A step failed.
    Invalid(InvalidInput),
}

impl UpcastError {
    pub(crate) fn is_newer(&self) -> bool {
        matches!(self, Self::Newer { .. })
    }
}

impl fmt::Display for UpcastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer { event_type, shape, known } => write!(
                f,
                "cannot read event {event_type}: it has shape {shape}, and this program knows {known}; update the program"
            ),
            Self::Invalid(error) => error.fmt(f),
        }
    }
}

impl From<UpcastError> for InvalidInput {
    fn from(error: UpcastError) -> Self {
        match error {
            UpcastError::Invalid(error) => error,
            newer @ UpcastError::Newer { .. } => Self::Payload { reason: newer.to_string() },
        }
    }
}

impl Upcasters {
    /// The same, with the schema of one more aggregate.
    pub(crate) fn with<A: Aggregate>(mut self) -> Self {
        self.0.insert(A::KIND.to_owned(), A::schema());
        self
    }

    /// Types and the names that they had before: what stands in the store.
    pub(crate) fn stored_names(&self, mut types: Vec<EventType>) -> Result<Vec<EventType>, InvalidInput> {
        for (old, new) in self.0.values().flat_map(EventSchema::renames) {
            if types.iter().any(|name| name.as_str() == new) {
                types.push(EventType::new(old)?);
            }
        }
        Ok(types)
    }

    /// The shapes that are known, by kind of stream and type. Shape 1 is left out.
    pub(crate) fn shapes(&self) -> BTreeMap<String, u32> {
        let all = self.0.iter().flat_map(|(kind, schema)| {
            schema.versions().map(move |(name, version)| (format!("{kind}/{name}"), version))
        });
        all.collect()
    }

    /// The present shape of a type, in whichever schema knows it.
    pub(crate) fn version(&self, event_type: &str) -> u32 {
        self.0.values().map(|schema| schema.version(event_type)).max().unwrap_or(1)
    }

    /// The event in its present shape. Events of other kinds of streams stay as they are.
    pub(crate) fn upcast(&self, event: Event) -> Result<Event, UpcastError> {
        if self.0.is_empty() {
            return Ok(event);
        }
        let Some(schema) = self.0.get(event.stream.kind().as_str()) else { return Ok(event) };
        let shape = shape(&event.meta);
        let known =
            schema.version(schema.present_name(&event.event_type).map_err(UpcastError::Invalid)?.as_str());
        if shape > known {
            return Err(UpcastError::Newer { event_type: event.event_type, shape, known });
        }
        let (event_type, payload) = schema.upcast(&event).map_err(UpcastError::Invalid)?;
        let meta = match known {
            _ if known == shape => event.meta,
            _ => restamped(&event.meta, known).map_err(UpcastError::Invalid)?,
        };
        Ok(Event { event_type, payload, meta, ..event })
    }
}
