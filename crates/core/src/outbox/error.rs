//! What can go wrong with outboxes.

use thiserror::Error;

use crate::error::{Code, Explain, InvalidInput, Outcome, Retry};
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

impl From<ApplyError> for OutboxError {
    fn from(error: ApplyError) -> Self {
        Self::Write(Box::new(error))
    }
}

impl Explain for OutboxError {
    fn code(&self) -> Code {
        Code(match self {
            Self::NoRuntime => "TL1221",
            Self::Unknown { .. } => "TL1222",
            Self::UnderWay { .. } => "TL1223",
            Self::Invalid(error) => return error.code(),
            Self::Store(error) => return error.code(),
            Self::Write(error) => return error.code(),
        })
    }

    fn retry(&self) -> Retry {
        match self {
            Self::UnderWay { .. } => Retry::After(std::time::Duration::from_secs(1)),
            Self::Store(error) => error.retry(),
            Self::Write(error) => error.retry(),
            _ => Retry::Never,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Write(error) => error.outcome(),
            _ => Outcome::NotApplied,
        }
    }
}
