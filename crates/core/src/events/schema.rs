//! Events of older shapes, and how they read today.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::context::Meta;
use crate::error::InvalidInput;
use crate::id::EventType;
use crate::payload::Payload;
use crate::store::Event;

type Step = Arc<dyn Fn(Value) -> Result<Value, String> + Send + Sync>;

/// What happens to an event whose type the enum does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unknown {
    /// Loading fails and names it: nothing is decided on half of the facts.
    #[default]
    Refuse,
    /// It is passed over.
    Skip,
}

/// How events of older shapes read today: by type, the steps from one version of its shape to the next.
///
/// New events are written with the number of their type's shape. The steps run when old ones are read; the log stays as it is.
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
    unknown: Unknown,
}

impl EventSchema {
    /// Every event is as it always was.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The next shape of a type, with the step to it from the one before.
    #[must_use]
    pub fn then(
        mut self,
        event_type: &str,
        step: impl Fn(Value) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.steps.entry(event_type.to_owned()).or_default().push(Arc::new(step));
        self
    }

    /// A type that has another name today.
    #[must_use]
    pub fn renamed(mut self, old: &str, new: &str) -> Self {
        self.renamed.insert(old.to_owned(), new.to_owned());
        self
    }

    /// What happens to an event whose type the enum does not have.
    #[must_use]
    pub fn unknown(mut self, policy: Unknown) -> Self {
        self.unknown = policy;
        self
    }

    /// The number of a type's present shape; 1 when it never changed.
    #[must_use]
    pub fn version(&self, event_type: &str) -> u32 {
        let steps = self.steps.get(event_type).map_or(0, Vec::len);
        u32::try_from(steps).unwrap_or(u32::MAX).saturating_add(1)
    }

    pub(super) fn policy(&self) -> Unknown {
        self.unknown
    }

    /// The type and the payload of an event, as they read today.
    pub(super) fn upcast(&self, event: &Event) -> Result<(EventType, Payload), InvalidInput> {
        if self.renamed.is_empty() && self.steps.is_empty() {
            return Ok((event.event_type.clone(), event.payload.clone()));
        }
        let name = self.renamed.get(event.event_type.as_str());
        let event_type =
            name.map_or_else(|| Ok(event.event_type.clone()), |name| EventType::new(name.as_str()))?;
        let Some(steps) = self.steps.get(event_type.as_str()) else {
            return Ok((event_type, event.payload.clone()));
        };
        let written = event.meta.parse::<Meta>().unwrap_or_default().schema.unwrap_or(1);
        let refused = |reason: String| InvalidInput::Payload { reason };
        let known = self.version(event_type.as_str());
        if written > known {
            return Err(refused(format!("it has shape {written}, and this program knows {known}")));
        }
        let done = usize::try_from(written.saturating_sub(1)).unwrap_or(usize::MAX);
        if done >= steps.len() {
            return Ok((event_type, event.payload.clone()));
        }
        let mut value: Value = event.payload.parse()?;
        for (step, from) in steps.iter().skip(done).zip(written..) {
            value = step(value)
                .map_err(|reason| refused(format!("the step from shape {from} failed: {reason}")))?;
        }
        Ok((event_type, Payload::of(&value)?))
    }
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
