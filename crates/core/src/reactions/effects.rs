//! What a handler answers: effects, or why there are none.

use std::error::Error;
use std::fmt;

use crate::clock::Due;
use crate::store::Batch;

/// What a handler does in the store: appends, documents, work. It is committed in one batch with the progress of the
/// reaction or the record of the task, under its lease: all of it once, or nothing.
///
/// A handler may answer a [`Batch`] or `()` as well. The operation id of a batch does not count here: the position of the
/// reaction says whether it was applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects(pub(crate) Batch);

impl Effects {
    /// No effect in the store.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }
}

impl From<Batch> for Effects {
    fn from(batch: Batch) -> Self {
        Self(batch)
    }
}

impl From<()> for Effects {
    fn from((): ()) -> Self {
        Self::none()
    }
}

/// Why a handler has no effects.
///
/// Any error becomes a [`Retry`](Self::Retry) with `?`. This type is no `std::error::Error` itself, because then it could
/// not be made from all others.
#[derive(Debug)]
pub enum ReactionError {
    /// It failed, and may succeed when it is tried again. The attempt counts.
    Retry(Box<dyn Error + Send + Sync>),
    /// It failed, and will fail again: the key is blocked, or the event parked, at once.
    NonRetryable(Box<dyn Error + Send + Sync>),
    /// Not now. It comes again at that time, and the attempt does not count.
    Defer(Due),
}

impl ReactionError {
    /// A failure that may be tried again, from an error or a text.
    #[must_use]
    pub fn retry(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Retry(error.into())
    }

    /// A failure that is not to be tried again, from an error or a text: `.map_err(ReactionError::non_retryable)?`.
    #[must_use]
    pub fn non_retryable(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::NonRetryable(error.into())
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for ReactionError {
    fn from(error: E) -> Self {
        Self::Retry(Box::new(error))
    }
}

impl fmt::Display for ReactionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry(error) | Self::NonRetryable(error) => f.write_str(&told(&**error)),
            Self::Defer(due) => write!(f, "deferred: {due:?}"),
        }
    }
}

/// An error with its causes, as far as it does not tell them itself.
pub(crate) fn told(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the order cannot be sent")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn errors_tell_their_causes_once() {
        let failed =
            || -> Result<(), ReactionError> { Err(Outer(std::io::Error::other("the wire is cut")))? };
        let error = failed().unwrap_err();
        assert!(matches!(error, ReactionError::Retry(_)));
        assert_eq!(error.to_string(), "the order cannot be sent: the wire is cut");
        assert_eq!(ReactionError::non_retryable("no").to_string(), "no");
    }
}
