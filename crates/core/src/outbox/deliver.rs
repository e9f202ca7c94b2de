//! What the user's code gets and answers.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::message::Written;
use crate::payload::Payload;

/// Carries messages to where they belong. Async closures from [`Delivery`] to `Result<(), Undelivered>` do.
#[async_trait]
pub trait Deliver: Send + Sync + 'static {
    /// Delivers one message. It may be called again with the same message, also after it has succeeded: give the
    /// [key](Delivery::key) along, so that the other side can tell.
    ///
    /// # Cancel safety
    /// It is dropped when its time is over, when the process shuts down and when the message may be somebody else's by now.
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

/// A message on its way.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    pub(super) outbox: &'static str,
    pub(super) written: Written,
    pub(super) attempt: u32,
}

impl Delivery {
    /// The stable key: the outbox and the id of the message with a colon between them, the same at every attempt. No message of
    /// another outbox has it: a colon in the name of the outbox is `%3A`, and a percent sign `%25`.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}:{}", self.outbox.replace('%', "%25").replace(':', "%3A"), self.written.id)
    }

    /// The id of the message.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.written.id
    }

    /// Where it goes.
    #[must_use]
    pub fn destination(&self) -> &str {
        &self.written.destination
    }

    /// What it says.
    #[must_use]
    pub fn payload(&self) -> &Payload {
        &self.written.payload
    }

    /// Which attempt this is, counted from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

/// Why a message was not delivered, and whether trying again can help.
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
    /// It failed for now: it is tried again, as the policy says.
    #[must_use]
    pub fn later(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), again: Again::Later }
    }

    /// It failed for now, and is not to be tried again before so long: the other side said so.
    #[must_use]
    pub fn not_before(wait: Duration, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), again: Again::NotBefore(wait) }
    }

    /// It can never be delivered as it is: it is blocked at once.
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
