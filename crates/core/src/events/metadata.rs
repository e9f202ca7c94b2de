//! Metadata of events: correlation, causation, trace and notes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::InvalidInput;
use crate::id::EventId;
use crate::payload::Payload;
use crate::store::{Event, NewEvent};
use crate::telemetry;

/// The correlation id, the cause, the request trace and the notes of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventMetadata {
    correlation: Option<String>,
    causation: Option<EventId>,
    trace: Option<String>,
    notes: Map<String, Value>,
}

/// The encoding of a context in the `meta` of an event.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Meta {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    causation: Option<EventId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
    #[serde(default, skip_serializing_if = "is_first")]
    pub(super) schema: Option<u32>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    notes: Map<String, Value>,
}

#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
fn is_first(schema: &Option<u32>) -> bool {
    schema.is_none_or(|schema| schema <= 1)
}

/// Returns the metadata of an event that was converted to another shape. Foreign metadata is left unchanged.
pub(super) fn restamped(meta: &Payload, schema: u32) -> Result<Payload, InvalidInput> {
    match meta.parse::<Meta>() {
        Ok(meta) => Payload::of(&Meta { schema: Some(schema), ..meta }),
        Err(_) => Ok(meta.clone()),
    }
}

impl EventMetadata {
    /// Creates a context with a correlation id.
    #[must_use]
    pub fn correlated(id: impl Into<String>) -> Self {
        Self { correlation: Some(id.into()), ..Self::default() }
    }

    /// Creates the context for consequences of an event. It has the same correlation id, or the event's id if there is
    /// none. The event is the cause, and the trace continues.
    #[must_use]
    pub fn caused_by(event: &Event) -> Self {
        let meta: Meta = event.meta.parse().unwrap_or_default();
        Self {
            correlation: event.correlation.clone().or_else(|| Some(event.id.to_string())),
            causation: Some(event.id),
            trace: meta.trace,
            notes: Map::new(),
        }
    }

    /// Sets the trace of a request: the text of a W3C `traceparent` header.
    #[must_use]
    pub fn trace(mut self, traceparent: impl Into<String>) -> Self {
        self.trace = Some(traceparent.into());
        self
    }

    /// Adds a note.
    #[must_use]
    pub fn note(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.notes.insert(name.into(), value.into());
        self
    }

    /// Returns the context of an event. Foreign metadata is omitted.
    #[must_use]
    pub fn of(event: &Event) -> Self {
        let Meta { causation, trace, notes, .. } = event.meta.parse().unwrap_or_default();
        Self { correlation: event.correlation.clone(), causation, trace, notes }
    }

    /// Returns the correlation id.
    #[must_use]
    pub fn correlation(&self) -> Option<&str> {
        self.correlation.as_deref()
    }

    /// Returns the id of the event that is the cause.
    #[must_use]
    pub fn causation(&self) -> Option<EventId> {
        self.causation
    }

    /// Returns the trace of the request.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.trace.as_deref()
    }

    /// Returns the notes.
    #[must_use]
    pub fn notes(&self) -> &Map<String, Value> {
        &self.notes
    }

    /// Stamps an event with this context and the version of its shape.
    pub(crate) fn stamp(&self, mut event: NewEvent, schema: u32) -> Result<NewEvent, InvalidInput> {
        event.correlation.clone_from(&self.correlation);
        // The current span is closer to the write than the trace of the context.
        let trace = telemetry::current_trace().or_else(|| self.trace.clone());
        let bare = self.causation.is_none() && trace.is_none() && self.notes.is_empty();
        if !bare || schema > 1 {
            let Self { causation, notes, .. } = self.clone();
            event.meta = Payload::of(&Meta { causation, trace, schema: Some(schema), notes })?;
        }
        Ok(event)
    }
}
