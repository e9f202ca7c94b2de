//! What can go wrong with outboxes.

use thiserror::Error;

use crate::error::{InvalidInput, Retry, codes, conversions};
use crate::store::{ApplyError, StoreError};

/// Why something that was asked of an outbox was not done.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum OutboxError {
    /// There is no runtime that could send.
    #[error("a sender was started outside of a tokio runtime; start it inside of one that goes on")]
    NoRuntime,
    /// There is no such message.
    #[error(
        "there is no message {message:?} in outbox {outbox:?}; it was delivered or discarded, or never put"
    )]
    Unknown {
        /// The outbox.
        outbox: String,
        /// The id of the message, or what the messages in order have in common.
        message: String,
    },
    /// The message is just being sent.
    #[error(
        "message {message:?} in outbox {outbox:?} is being sent by {by}; nothing was done, ask again when it has ended"
    )]
    UnderWay {
        /// The outbox.
        outbox: String,
        /// The id of the message, or what the messages in order have in common.
        message: String,
        /// Who sends it.
        by: String,
    },
    /// A value or a name can never be accepted.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The store could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store did not take a write.
    #[error(transparent)]
    Write(Box<ApplyError>),
}

conversions! {
    OutboxError {
        ApplyError => Write,
    }
}

codes! {
    OutboxError {
        NoRuntime => "TL1221",
        Unknown => "TL1222",
        UnderWay => ("TL1223", Retry::after_secs(1)),
        Invalid(error) => error,
        Store(error) => error,
        Write(error) => error,
    }
}
