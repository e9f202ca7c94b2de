//! Where a sealed value belongs.

use std::fmt;

use tidelock_core::key::Key;

use crate::cipher::Context;

/// Where a sealed value belongs: a stream, or another key, and a field. What was sealed for one place does not open at
/// another, so nobody can pass off the ciphertext of one customer's field as another's.
///
/// The event's version is no part of it, because it is not known before the event is written: within its stream and field an
/// older value may stand in a newer event.
///
/// ```
/// use tidelock_core::key::Key;
/// use tidelock_sealed::Place;
///
/// let place = Place::of(&Key::new("customer", ["c-1"])?, "email");
/// assert_eq!(place.to_string(), r#"email of customer("c-1")"#);
/// # Ok::<(), tidelock_core::error::InvalidInput>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    key: Key,
    field: String,
}

impl Place {
    /// A field of what is kept under a key.
    #[must_use]
    pub fn of(key: &Key, field: impl Into<String>) -> Self {
        Self { key: key.clone(), field: field.into() }
    }

    /// What a value at this place is authenticated with.
    pub(crate) fn context(&self, subject: &str) -> Context {
        Context::new("tidelock.sealed.value.1", &[subject, self.key.canonical(), &self.field])
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.field.escape_debug(), self.key)
    }
}
