//! A sealed value, and the result of opening it.

use std::fmt;
use std::marker::PhantomData;

use serde::{Deserialize, Serialize};
use tidelock_core::clock::Timestamp;

use crate::cipher::Locked;

/// The only format of sealed values so far.
pub(crate) const VERSION: u32 = 1;

/// A `T` that only a [`Vault`](crate::Vault) can read. It replaces the `T` in events and states.
///
/// As JSON it is `{"v": 1, "subject": …, "nonce": …, "ciphertext": …}`. Programs that do not know a version pass it on
/// unchanged, and cannot open it.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Sealed<T> {
    pub(crate) v: u32,
    pub(crate) subject: String,
    pub(crate) nonce: String,
    pub(crate) ciphertext: String,
    #[serde(skip)]
    of: PhantomData<fn() -> T>,
}

impl<T> Sealed<T> {
    pub(crate) fn new(subject: &str, Locked { nonce, ciphertext }: Locked) -> Self {
        Self { v: VERSION, subject: subject.to_owned(), nonce, ciphertext, of: PhantomData }
    }

    /// Returns the subject of the sealed value.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }
}

impl<T> Clone for Sealed<T> {
    fn clone(&self) -> Self {
        let Self { v, subject, nonce, ciphertext, of } = self;
        Self {
            v: *v,
            subject: subject.clone(),
            nonce: nonce.clone(),
            ciphertext: ciphertext.clone(),
            of: *of,
        }
    }
}

/// Two sealed values are equal when their ciphertexts are. Sealing a value twice gives two that are not.
impl<T> PartialEq for Sealed<T> {
    fn eq(&self, other: &Self) -> bool {
        let Self { v, subject, nonce, ciphertext, .. } = self;
        *v == other.v && *subject == other.subject && *nonce == other.nonce && *ciphertext == other.ciphertext
    }
}

impl<T> Eq for Sealed<T> {}

impl<T> fmt::Debug for Sealed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealed")
            .field("subject", &self.subject)
            .field("ciphertext", &format_args!("{} characters", self.ciphertext.len()))
            .finish_non_exhaustive()
    }
}

/// The result of opening a value. Its `Debug` does not show the value, so that it does not end in a log.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use = "a value may have been forgotten"]
pub enum Opened<T> {
    /// The value.
    Value(T),
    /// The subject was forgotten: the value is permanently unreadable.
    Forgotten {
        /// The time, by the clock of the store that had the key.
        at: Timestamp,
    },
}

impl<T> Opened<T> {
    /// Returns the value, unless it was forgotten.
    #[must_use]
    pub fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Forgotten { .. } => None,
        }
    }
}

impl<T> fmt::Debug for Opened<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => f.write_str("Value(..)"),
            Self::Forgotten { at } => f.debug_struct("Forgotten").field("at", at).finish(),
        }
    }
}
