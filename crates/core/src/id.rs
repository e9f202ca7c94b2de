//! Newtypes for numbers and names, so that a fencing token is never passed as a version.
//!
//! They do not depend on stores. Names are validated once, at construction.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::InvalidInput;

/// Declares a number with its own type.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// Returns the next number.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// The position of an event in the whole log. Positions rise in commit order. A store may leave gaps, but never
    /// reuses a position.
    Position
}
number! {
    /// The position of an event in its stream, counted from 0 without gaps.
    StreamVersion
}
number! {
    /// The version of a document. It starts at 1, or above the versions of swept tombstones. A key that is created
    /// again after its deletion continues counting.
    DocVersion
}
number! {
    /// The fencing token of one lease on one work row. It is higher than those of all earlier grants.
    Fence
}

number! {
    /// A generation of a store's history. It changes when the history may have been cut, and never repeats.
    Epoch
}

/// Declares a UUID with its own type.
macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// Creates a new id: a UUID v7, which is unique and rises with time. That keeps indexes narrow.
            #[must_use]
            #[expect(clippy::new_without_default, reason = "a default that differs every time would surprise")]
            pub fn new() -> Self {
                Self(crate::process::uuid())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidInput;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text)
                    .map(Self)
                    .map_err(|e| InvalidInput::name(stringify!($name), text, format!("not a UUID: {e}")))
            }
        }
    };
}

uuid_id! {
    /// The id of an event. The author of the event chooses it, so that a second append of it is recognised.
    EventId
}
uuid_id! {
    /// The id of a batch. The author of the batch chooses it, and the batch is applied at most once under it.
    OpId
}

/// Declares a short name with a validated form.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Validates and wraps a name: 1 to 200 bytes, no control characters.
            ///
            /// # Errors
            /// [`InvalidInput::Name`] when the text is empty, too long or contains a control character.
            pub fn new(text: impl Into<Arc<str>>) -> Result<Self, InvalidInput> {
                let text = text.into();
                check_name(stringify!($name), &text)?;
                Ok(Self(text))
            }

            /// Returns the name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidInput;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidInput;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }
    };
}

name! {
    /// The owner of a lease: one name per worker, unique among the processes on a store.
    Owner
}
name! {
    /// A queue of work rows that workers claim from.
    QueueName
}
name! {
    /// The type name of an event, for example `OrderPlaced`.
    EventType
}

/// The maximum length of an [`Owner`], [`QueueName`] or [`EventType`], in bytes.
pub const MAX_NAME_BYTES: usize = 200;

fn check_name(what: &'static str, text: &str) -> Result<(), InvalidInput> {
    if text.is_empty() {
        return Err(InvalidInput::name(what, text, "it is empty"));
    }
    if text.len() > MAX_NAME_BYTES {
        let why = format!("it has {} bytes, at most {MAX_NAME_BYTES} are allowed", text.len());
        return Err(InvalidInput::name(what, text, why));
    }
    if text.chars().any(char::is_control) {
        return Err(InvalidInput::name(what, text, "it holds a control character"));
    }
    Ok(())
}

/// The priority of work: 0 (last) to 9 (first); 5 is the default. A small number of levels keeps the cost of a claim
/// constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Priority(u8);

impl Priority {
    /// The default priority.
    pub const NORMAL: Self = Self(5);
    /// The lowest priority.
    pub const LAST: Self = Self(0);
    /// The highest priority.
    pub const FIRST: Self = Self(9);

    /// Validates and wraps a level.
    ///
    /// # Errors
    /// [`InvalidInput::Name`] when the level is above 9.
    pub fn new(level: u8) -> Result<Self, InvalidInput> {
        if level > Self::FIRST.0 {
            return Err(InvalidInput::name("Priority", &level.to_string(), "levels go from 0 to 9"));
        }
        Ok(Self(level))
    }

    /// Returns the level as a number.
    #[must_use]
    pub const fn level(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::NORMAL
    }
}

impl TryFrom<u8> for Priority {
    type Error = InvalidInput;

    fn try_from(level: u8) -> Result<Self, Self::Error> {
        Self::new(level)
    }
}

impl From<Priority> for u8 {
    fn from(priority: Priority) -> Self {
        priority.0
    }
}
