//! How a value is kept in a record, and when it need not be written.

use std::marker::PhantomData;

use super::State;
use crate::payload::Payload;

/// What can be drafted: copies are cheap enough to be thrown away.
pub(super) trait Value: Clone + Send + Sync + 'static {}

impl<T: Clone + Send + Sync + 'static> Value for T {}

/// What a draft means for the record.
pub(super) enum Content {
    /// The record stays as it was found.
    AsFound,
    /// The record has this value.
    Is(Payload),
    /// There is no record.
    Gone,
}

/// Why a record does not read.
pub(super) enum Misread {
    /// It does not fit the type.
    Misfit(String),
    /// It was written under a newer schema.
    Newer { found: u64, known: u64 },
}

/// Reads and writes drafts of one type.
pub(super) trait Codec<T>: Send + Sync {
    /// The draft of a record that does not exist.
    fn absent(&self) -> T;
    /// The draft of a record.
    fn read(&self, value: &Payload) -> Result<T, Misread>;
    /// What a draft means for the record.
    fn write(&self, draft: &T) -> Result<Content, String>;
    /// The draft is in the record now.
    fn settle(&self, _draft: &mut T) {}
}

/// The value as it is.
pub(super) struct Plain<T>(PhantomData<fn() -> T>);

impl<T> Plain<T> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: State> Codec<T> for Plain<T> {
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
