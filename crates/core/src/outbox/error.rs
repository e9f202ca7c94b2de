//! Errors of outboxes.

use thiserror::Error;

use crate::error::{InvalidInput, Retry, codes, conversions};
use crate::store::{ApplyError, StoreError};

/// The reason why an operation on an outbox failed.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum OutboxError {
    /// No Tokio runtime is available to send messages.
    #[error("cannot start a sender: no Tokio runtime; call start() from a runtime that outlives it")]
    NoRuntime,
    /// There is no such message.
    #[error(
        "there is no message {message:?} in outbox {outbox:?}; it was delivered or discarded, or never put"
    )]
    Unknown {
        /// The outbox.
        outbox: String,
        /// The id of the message, or the name of the order.
        message: String,
    },
    /// The message is being sent.
    #[error(
        "message {message:?} in outbox {outbox:?} is being sent by {by}; nothing was done, ask again when it has ended"
    )]
    UnderWay {
        /// The outbox.
        outbox: String,
        /// The id of the message, or the name of the order.
        message: String,
        /// The owner of the lease.
        by: String,
    },
    /// A value or a name is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store did not accept a write.
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
