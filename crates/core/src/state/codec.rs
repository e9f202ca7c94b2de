//! Codecs between values and records, with detection of unchanged values.

use std::marker::PhantomData;

use super::StateValue;
use crate::payload::Payload;

/// A value that can be drafted. Clones must be cheap enough to be discarded.
pub(super) trait Value: Clone + Send + Sync + 'static {}

impl<T: Clone + Send + Sync + 'static> Value for T {}

/// The record content that a draft encodes to.
pub(super) enum Content {
    /// The record stays as it was found.
    AsFound,
    /// The record gets this value.
    Is(Payload),
    /// The record is deleted.
    Gone,
}

/// The reason why a record cannot be decoded.
pub(super) enum Misread {
    /// The record does not fit the type.
    Misfit(String),
    /// A newer schema wrote the record.
    Newer { found: u64, known: u64 },
}

/// Decodes and encodes drafts of one type.
pub(super) trait Codec<T>: Send + Sync {
    /// Returns the draft of a record that does not exist.
    fn absent(&self) -> T;
    /// Decodes the draft of a record.
    fn read(&self, value: &Payload) -> Result<T, Misread>;
    /// Encodes a draft.
    fn write(&self, draft: &T) -> Result<Content, String>;
    /// Marks the draft as written.
    fn mark_written(&self, _draft: &mut T) {}
}

/// A codec that stores the value unchanged.
pub(super) struct Plain<T>(PhantomData<fn() -> T>);

impl<T> Plain<T> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: StateValue> Codec<T> for Plain<T> {
    fn absent(&self) -> T {
        T::default()
    }

    fn read(&self, value: &Payload) -> Result<T, Misread> {
        value.parse().map_err(|error| Misread::Misfit(error.to_string()))
    }

    fn write(&self, draft: &T) -> Result<Content, String> {
        Payload::of(draft).map(Content::Is).map_err(|error| error.to_string())
    }
}
