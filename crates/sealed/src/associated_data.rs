//! The place of a sealed value, which is part of its associated data.

use std::fmt;

use tidelock_core::key::Key;

use crate::cipher::Context;

/// The place of a sealed value: a stream, or another key, and a field. A value that was sealed for one place does not
/// open at another. The ciphertext of one customer's field therefore cannot replace another customer's.
///
/// The event's version is not part of it, because it is unknown before the event is written. Within its stream and
/// field, an older value may appear in a newer event.
///
/// ```
/// use tidelock_core::key::Key;
/// use tidelock_sealed::AssociatedData;
///
/// let place = AssociatedData::of(&Key::new("customer", ["c-1"])?, "email");
/// assert_eq!(place.to_string(), r#"email of customer("c-1")"#);
/// # Ok::<(), tidelock_core::error::InvalidInput>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AssociatedData {
    key: Key,
    field: String,
}

impl AssociatedData {
    /// Returns the place of a field of the data under a key.
    #[must_use]
    pub fn of(key: &Key, field: impl Into<String>) -> Self {
        Self { key: key.clone(), field: field.into() }
    }

    /// Returns the associated data of a value at this place.
    pub(crate) fn context(&self, subject: &str) -> Context {
        Context::new("tidelock.sealed.value.1", &[subject, self.key.canonical(), &self.field])
    }
}

impl fmt::Display for AssociatedData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.field.escape_debug(), self.key)
    }
}
