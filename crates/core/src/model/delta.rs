//! Deltas: changes to parts of a JSON value that are valid whatever the rest of the value is at commit.
//!
//! A path is a JSON pointer (RFC 6901): `""` is the whole value, `/stock/apples` a field, `/items/0` an element.
//! Missing objects on the path are created, missing array elements are not. [`Draft`](super::draft::Draft) applies
//! deltas.

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

/// A change to one part of a JSON value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delta {
    /// Adds to a number. The sum is exact or the delta fails. A missing field counts as zero.
    Inc {
        /// The path.
        path: String,
        /// The amount.
        by: Number,
    },
    /// Appends an element to an array. A missing field counts as an empty array.
    Push {
        /// The path.
        path: String,
        /// The element.
        value: Value,
    },
    /// Sets a field or replaces an element.
    Set {
        /// The path.
        path: String,
        /// The new value.
        value: Value,
    },
    /// Removes a field. Removing a missing field changes nothing.
    Remove {
        /// The path.
        path: String,
    },
}

impl Delta {
    /// Creates a delta that adds an integer.
    #[must_use]
    pub fn inc(path: impl Into<String>, by: i64) -> Self {
        Self::Inc { path: path.into(), by: by.into() }
    }

    /// Creates a delta that appends an element to an array.
    #[must_use]
    pub fn push(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::Push { path: path.into(), value: value.into() }
    }

    /// Creates a delta that sets a field.
    #[must_use]
    pub fn set(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::Set { path: path.into(), value: value.into() }
    }

    /// Creates a delta that removes a field.
    #[must_use]
    pub fn remove(path: impl Into<String>) -> Self {
        Self::Remove { path: path.into() }
    }

    /// Returns the path of the change.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Inc { path, .. }
            | Self::Push { path, .. }
            | Self::Set { path, .. }
            | Self::Remove { path } => path,
        }
    }
}

impl Delta {
    /// Returns the number of steps in the path.
    pub(super) fn steps(&self) -> usize {
        self.path().matches('/').count()
    }

    /// Returns the value of a push or a set.
    pub(super) fn value(&self) -> Option<&Value> {
        match self {
            Self::Push { value, .. } | Self::Set { value, .. } => Some(value),
            Self::Inc { .. } | Self::Remove { .. } => None,
        }
    }
}

/// The reason why a delta does not fit the current value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaError {
    /// The type that the delta needs.
    pub needed: &'static str,
    /// The type that was found.
    pub found: String,
}
