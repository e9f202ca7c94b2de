//! Delivery callback of an outbox, and its result.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::message::Written;
use crate::payload::Payload;

/// A function that delivers messages. Async closures from [`Delivery`] to `Result<(), Undelivered>` implement it.
#[async_trait]
pub trait Deliver: Send + Sync + 'static {
    /// Delivers one message. It may be called again with the same message, even after it has succeeded. Pass the
    /// [key](Delivery::key) on, so that the receiver can recognise a duplicate.
    ///
    /// # Cancel safety
    /// The future is dropped on a timeout, at shutdown, and when the lease of the message may have expired.
    async fn deliver(&self, message: Delivery) -> Result<(), Undelivered>;
}

#[async_trait]
impl<F, Fut> Deliver for F
where
    F: Fn(Delivery) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Undelivered>> + Send,
{
    async fn deliver(&self, message: Delivery) -> Result<(), Undelivered> {
        self(message).await
    }
}

/// A message to deliver.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    pub(super) outbox: &'static str,
    pub(super) written: Written,
    pub(super) attempt: u32,
}

impl Delivery {
    /// Returns the idempotency key: the outbox and the message id, separated by a colon. It is the same for every attempt.
    /// It is unique across outboxes, because a colon in the outbox name is encoded as `%3A`, and a percent sign as `%25`.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}:{}", self.outbox.replace('%', "%25").replace(':', "%3A"), self.written.id)
    }

    /// Returns the id of the message.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.written.id
    }

    /// Returns the destination.
    #[must_use]
    pub fn destination(&self) -> &str {
        &self.written.destination
    }

    /// Returns the payload.
    #[must_use]
    pub fn payload(&self) -> &Payload {
        &self.written.payload
    }

    /// Returns the attempt number, starting at 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

/// A failed delivery, and whether a retry can help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    pub(super) reason: String,
    pub(super) again: Again,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    Later,
    NotBefore(Duration),
    Never,
}

impl Undelivered {
    /// Creates a temporary failure. The message is retried according to the policy.
    #[must_use]
    pub fn later(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), again: Again::Later }
    }

    /// Creates a temporary failure that is not retried before `wait` has passed, as the receiver asked.
    #[must_use]
    pub fn not_before(wait: Duration, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), again: Again::NotBefore(wait) }
    }

    /// Creates a permanent failure. The message is blocked at once.
    #[must_use]
    pub fn never(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), again: Again::Never }
    }
}

impl fmt::Display for Undelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Undelivered {}
