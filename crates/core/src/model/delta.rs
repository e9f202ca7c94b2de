//! Deltas: changes to parts of a JSON value that make sense whatever the rest of it is by then.
//!
//! A path is a JSON pointer (RFC 6901): `""` is the whole value, `/stock/apples` a field, `/items/0` an element.
//! Objects on the way that do not exist are created; array elements are not. [`Draft`](super::draft::Draft) applies them.

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delta {
    /// Adds to a number, exactly or not at all; a field that does not exist counts as zero.
    Inc {
        /// Where.
        path: String,
        /// How much.
        by: Number,
    },
    /// Adds an element at the end of an array; a field that does not exist counts as an empty array.
    Push {
        /// Where.
        path: String,
        /// What.
        value: Value,
    },
    /// Sets a field or replaces an element.
    Set {
        /// Where.
        path: String,
        /// To what.
        value: Value,
    },
    /// Removes a field; one that does not exist is as good as removed.
    Remove {
        /// Where.
        path: String,
    },
}

impl Delta {
    /// Adds a whole number.
    #[must_use]
    pub fn inc(path: impl Into<String>, by: i64) -> Self {
        Self::Inc { path: path.into(), by: by.into() }
    }

    /// Adds an element to an array.
    #[must_use]
    pub fn push(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::Push { path: path.into(), value: value.into() }
    }

    /// Sets a field.
    #[must_use]
    pub fn set(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::Set { path: path.into(), value: value.into() }
    }

    /// Removes a field.
    #[must_use]
    pub fn remove(path: impl Into<String>) -> Self {
        Self::Remove { path: path.into() }
    }

    /// The place that is changed.
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
    /// How many steps the path takes.
    pub(super) fn steps(&self) -> usize {
        self.path().matches('/').count()
    }

    /// The value that it brings, if it is one of any shape.
    pub(super) fn value(&self) -> Option<&Value> {
        match self {
            Self::Push { value, .. } | Self::Set { value, .. } => Some(value),
            Self::Inc { .. } | Self::Remove { .. } => None,
        }
    }
}

/// Why a delta does not fit the value that it meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// What the delta needs.
    pub needed: &'static str,
    /// What is there.
    pub found: String,
}
