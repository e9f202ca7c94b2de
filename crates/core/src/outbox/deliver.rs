//! Delivery callback of an outbox.

use async_trait::async_trait;

use super::message::Written;
use crate::failure::Failure;
use crate::payload::Payload;

/// A function that delivers messages. Async functions and closures from [`Delivery`] to `Result<(), Failure>` implement it:
/// `async move |message: Delivery| { … }`. A closure is cloned for each delivery, so its captures should be cheap to clone.
#[async_trait]
pub trait Deliver: Send + Sync + 'static {
    /// Delivers one message. It may be called again with the same message, even after it has succeeded. Pass the
    /// [key](Delivery::key) on, so that the receiver can recognise a duplicate.
    ///
    /// # Cancel safety
    /// The future is dropped on a timeout, at shutdown, and when the lease of the message may have expired.
    async fn deliver(&self, message: Delivery) -> Result<(), Failure>;
}

#[async_trait]
impl<F, Fut> Deliver for F
where
    F: FnOnce(Delivery) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send,
{
    async fn deliver(&self, message: Delivery) -> Result<(), Failure> {
        self.clone()(message).await
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
