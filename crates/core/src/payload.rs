//! JSON payloads: text that is validated once and then passed on without being parsed again.
//!
//! Stores keep the text unchanged, so that users of `sqlite3` and `psql` can read and query it.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::InvalidInput;

pub(crate) mod decimal;
pub(crate) mod numbers;
pub(crate) mod parts;
#[cfg(test)]
mod tests;
pub mod text;

/// One JSON value as text. Cloning shares the text.
#[derive(Clone, Debug)]
pub struct Payload(Arc<str>);

impl Payload {
    /// Returns JSON `null`, the payload of an event or a work row without data.
    #[must_use]
    pub fn null() -> Self {
        Self(Arc::from("null"))
    }

    /// Serialises a value.
    ///
    /// # Errors
    /// [`InvalidInput::Payload`] when the value cannot be written as JSON, for example a map whose keys are not text.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, InvalidInput> {
        match serde_json::to_string(value) {
            Ok(text) => Ok(Self(text.into())),
            Err(e) => Err(InvalidInput::Payload { reason: e.to_string() }),
        }
    }

    /// Wraps JSON text after checking that it is exactly one JSON value.
    ///
    /// # Errors
    /// [`InvalidInput::Payload`] with the position at which the text stops being JSON.
    pub fn from_json(text: impl Into<Arc<str>>) -> Result<Self, InvalidInput> {
        let text = text.into();
        match serde_json::from_str::<&RawValue>(&text) {
            Ok(_) => Ok(Self(text)),
            Err(e) => Err(InvalidInput::Payload { reason: e.to_string() }),
        }
    }

    /// Wraps text that a store wrote earlier, without validating it again.
    #[must_use]
    pub fn trusted(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Deserialises the value.
    ///
    /// # Errors
    /// [`InvalidInput::Payload`] when the JSON does not have the shape of `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, InvalidInput> {
        serde_json::from_str(&self.0).map_err(|e| InvalidInput::Payload { reason: e.to_string() })
    }

    /// Returns the JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the JSON text, shared with this payload.
    pub(crate) fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }

    /// Returns the length of the text in bytes, which limits apply to.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the text is empty. A validated payload never is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self::null()
    }
}

/// Two payloads are equal when they are the same JSON value, whatever their spacing and the order of their fields. If
/// one contains a number that parsing would round, only identical text is equal.
impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        if self.0 == other.0 {
            return true;
        }
        if numbers::first_rounded(&self.0).is_some() || numbers::first_rounded(&other.0).is_some() {
            return false;
        }
        let read = |p: &Self| serde_json::from_str::<serde_json::Value>(&p.0).ok();
        matches!((read(self), read(other)), (Some(a), Some(b)) if a == b)
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A payload inside a larger JSON document appears as the value itself, not as quoted text.
impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serde_json::from_str::<&RawValue>(&self.0) {
            Ok(raw) => raw.serialize(serializer),
            Err(e) => Err(serde::ser::Error::custom(e)),
        }
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(Arc::from(raw.get())))
    }
}
