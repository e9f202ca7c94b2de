//! Upcasting of events by the kind of their stream, with the schema of the aggregate of that kind.

use std::collections::BTreeMap;
use std::fmt;

use super::aggregate::Aggregate;
use super::metadata::restamped;
use super::schema::{EventSchema, shape};
use crate::error::InvalidInput;
use crate::id::EventType;
use crate::store::Event;

/// The schemas of aggregates, by the kind of their streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Upcasters(BTreeMap<String, EventSchema>);

/// The reason why an event cannot be converted to its current shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UpcastError {
    /// A newer program has written it.
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
    /// Adds the schema of an aggregate.
    pub(crate) fn with<A: Aggregate>(mut self) -> Self {
        self.0.insert(A::KIND.to_owned(), A::schema());
        self
    }

    /// Adds the former names of the types, because the store has both.
    pub(crate) fn stored_names(&self, mut types: Vec<EventType>) -> Result<Vec<EventType>, InvalidInput> {
        for (old, new) in self.0.values().flat_map(EventSchema::renames) {
            if types.iter().any(|name| name.as_str() == new) {
                types.push(EventType::new(old)?);
            }
        }
        Ok(types)
    }

    /// Returns the known shapes, by stream kind and event type. Shape 1 is omitted.
    pub(crate) fn shapes(&self) -> BTreeMap<String, u32> {
        let all = self.0.iter().flat_map(|(kind, schema)| {
            schema.versions().map(move |(name, version)| (format!("{kind}/{name}"), version))
        });
        all.collect()
    }

    /// Returns the current shape of a type, from any schema that knows it.
    pub(crate) fn version(&self, event_type: &str) -> u32 {
        self.0.values().map(|schema| schema.version(event_type)).max().unwrap_or(1)
    }

    /// Converts an event to its current shape. Events of other stream kinds are left unchanged.
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
