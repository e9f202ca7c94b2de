//! Event schema evolution: conversion of events of older shapes (upcasting).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::metadata::Meta;
use crate::error::InvalidInput;
use crate::id::EventType;
use crate::payload::Payload;
use crate::store::{Event, NewEvent};

type Step = Arc<dyn Fn(Value) -> Result<Value, String> + Send + Sync>;

/// The policy for an event whose type is not in the enum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownEvents {
    /// Loading fails with an error that names the event, so that no command decides on incomplete events.
    #[default]
    Refuse,
    /// The event is skipped.
    Skip,
}

/// The upcasting steps of each event type, from one version of its shape to the next.
///
/// New events are stored with the shape number of their type. The steps run when old events are read; the log is not
/// changed.
///
/// ```
/// use tidelock_core::events::EventSchema;
///
/// let schema = EventSchema::new()
///     .renamed("Bought", "Ordered")
///     .then("Ordered", |mut first| {
///         first["currency"] = "EUR".into();
///         Ok(first)
///     });
/// assert_eq!(schema.version("Ordered"), 2);
/// ```
#[derive(Clone, Default)]
pub struct EventSchema {
    renamed: BTreeMap<String, String>,
    steps: BTreeMap<String, Vec<Step>>,
    unknown: UnknownEvents,
}

impl EventSchema {
    /// Creates a schema without changes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next shape of a type, with the step from the previous one.
    #[must_use]
    pub fn then(
        mut self,
        event_type: &str,
        step: impl Fn(Value) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.steps.entry(event_type.to_owned()).or_default().push(Arc::new(step));
        self
    }

    /// Declares the current name of a renamed type.
    #[must_use]
    pub fn renamed(mut self, old: &str, new: &str) -> Self {
        self.renamed.insert(old.to_owned(), new.to_owned());
        self
    }

    /// Sets the policy for an event whose type is not in the enum.
    #[must_use]
    pub fn unknown(mut self, policy: UnknownEvents) -> Self {
        self.unknown = policy;
        self
    }

    /// Returns the number of a type's current shape; 1 when it never changed.
    #[must_use]
    pub fn version(&self, event_type: &str) -> u32 {
        let steps = self.steps.get(event_type).map_or(0, Vec::len);
        u32::try_from(steps).unwrap_or(u32::MAX).saturating_add(1)
    }

    pub(super) fn policy(&self) -> UnknownEvents {
        self.unknown
    }

    /// Converts an event to its current type and payload.
    pub(super) fn upcast(&self, event: &Event) -> Result<(EventType, Payload), InvalidInput> {
        self.upcast_from(&event.event_type, &event.payload, shape(&event.meta))
    }

    /// Converts an event of this shape to its current type and payload.
    ///
    /// # Errors
    /// Returns [`InvalidInput`] when this program does not know the shape, or a step fails.
    pub(super) fn upcast_from(
        &self,
        event_type: &EventType,
        payload: &Payload,
        shape: u32,
    ) -> Result<(EventType, Payload), InvalidInput> {
        let event_type = self.present_name(event_type)?;
        let refused = |reason: String| InvalidInput::Payload { reason };
        let known = self.version(event_type.as_str());
        if shape > known {
            return Err(refused(format!("it has shape {shape}, and this program knows {known}")));
        }
        let steps = self.steps.get(event_type.as_str()).map_or(&[][..], Vec::as_slice);
        let done = usize::try_from(shape.saturating_sub(1)).unwrap_or(usize::MAX);
        if done >= steps.len() {
            return Ok((event_type, payload.clone()));
        }
        let mut value: Value = payload.parse()?;
        for (step, from) in steps.iter().skip(done).zip(shape..) {
            value = step(value)
                .map_err(|reason| refused(format!("the step from shape {from} failed: {reason}")))?;
        }
        Ok((event_type, Payload::of(&value)?))
    }

    /// Returns the renamed types: the old name and the current one.
    pub(super) fn renames(&self) -> impl Iterator<Item = (&str, &str)> {
        self.renamed.iter().map(|(old, new)| (old.as_str(), new.as_str()))
    }

    /// Returns the types whose shape has changed, with their current shape.
    pub(super) fn versions(&self) -> impl Iterator<Item = (&str, u32)> {
        self.steps.keys().map(|name| (name.as_str(), self.version(name)))
    }

    /// Returns the current name of a type.
    pub(super) fn present_name(&self, event_type: &EventType) -> Result<EventType, InvalidInput> {
        let name = self.renamed.get(event_type.as_str());
        name.map_or_else(|| Ok(event_type.clone()), |name| EventType::new(name.as_str()))
    }
}

/// Returns the shape of an event, from its `meta`.
pub(crate) fn shape(meta: &Payload) -> u32 {
    // Most events have no shape, and most metadata is short.
    if !meta.as_str().contains("\"schema\"") {
        return 1;
    }
    meta.parse::<Meta>().unwrap_or_default().schema.unwrap_or(1)
}

/// Returns the shape in the metadata of a new event, if it has one.
pub(crate) fn stamped_shape(event: &NewEvent) -> Option<u32> {
    event.meta.parse::<Meta>().ok()?.schema
}

impl fmt::Debug for EventSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions: BTreeMap<_, _> = self.steps.keys().map(|name| (name, self.version(name))).collect();
        f.debug_struct("EventSchema")
            .field("renamed", &self.renamed)
            .field("versions", &versions)
            .field("unknown", &self.unknown)
            .finish()
    }
}
