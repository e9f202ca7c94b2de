//! Return values of handlers: effects and errors.

use std::error::Error;
use std::fmt;

use crate::clock::Due;
use crate::store::Batch;

/// The changes that a handler makes in the store: appends, documents and work. They are committed under the lease in one
/// batch with the progress of the reaction or the record of the task. The batch is applied once, as a whole or not at all.
///
/// A handler may also return a [`Batch`] or `()`. The operation id of a batch is ignored, because the position of the
/// reaction shows whether the batch was applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects(pub(crate) Batch);

impl Effects {
    /// Returns effects that change nothing.
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

/// The reason why a handler produced no effects.
///
/// `?` converts any error to [`Retry`](Self::Retry). This type does not implement `std::error::Error`, because that would
/// conflict with the conversion from any error.
#[derive(Debug)]
pub enum ReactionError {
    /// A failure that may succeed when retried. The attempt counts.
    Retry(Box<dyn Error + Send + Sync>),
    /// A permanent failure. The key is blocked, or the event parked, at once.
    NonRetryable(Box<dyn Error + Send + Sync>),
    /// A deferral. The event is handled again at that time, and the attempt does not count.
    Defer(Due),
}

impl ReactionError {
    /// Creates a retryable failure from an error or a text.
    #[must_use]
    pub fn retry(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Retry(error.into())
    }

    /// Creates a permanent failure from an error or a text: `.map_err(ReactionError::non_retryable)?`.
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

/// Formats an error with those of its causes that its own text does not contain.
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
