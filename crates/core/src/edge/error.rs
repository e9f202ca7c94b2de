//! What can go wrong with idempotency keys.

use thiserror::Error;

use crate::clock::Timestamp;
use crate::error::{Code, Explain, InvalidInput, Outcome, Retry};
use crate::key::Key;
use crate::lease::LeaseError;
use crate::store::{ApplyError, StoreError};
use crate::worker::LostReason;

/// Why a key was not reserved, or an answer was not kept.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum EdgeError {
    /// The key, or its scope, is out of its form.
    #[error("idempotency key {key:?} is not valid: {reason}; a random UUID for each request is a good key")]
    BadKey {
        /// The beginning of the key.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// A request with the key is under way.
    #[error(
        "idempotency key {key:?} is in flight: {by} has it since {since}; if that process died, the key is free at {until}"
    )]
    InFlight {
        /// The key.
        key: String,
        /// The process that runs the request.
        by: String,
        /// Since when, by the store's clock.
        since: Timestamp,
        /// Until when, unless it is renewed.
        until: Timestamp,
    },
    /// The reservation is not its holder's any more. Nothing of the batch was applied.
    #[error(
        "idempotency key {key:?}: the reservation is lost, {reason}; nothing was committed, and another request may run with the key"
    )]
    Lost {
        /// The key.
        key: String,
        /// Why.
        reason: LostReason,
    },
    /// The reservation was committed or released before.
    #[error("idempotency key {key:?}: the reservation was {how} before; nothing more was done")]
    Over {
        /// The key.
        key: String,
        /// How it ended.
        how: &'static str,
    },
    /// The answer is larger than a record may be. Nothing of the batch was applied.
    #[error(
        "idempotency key {key:?}: the {what} of the answer has {found} bytes, at most {limit} are kept; answer with a reference, or complete with its status only"
    )]
    AnswerTooLarge {
        /// The key.
        key: String,
        /// Which part of it.
        what: &'static str,
        /// How large it is.
        found: usize,
        /// How large it may be.
        limit: usize,
    },
    /// There is no record of the key.
    #[error(
        "idempotency key {key:?} is not known in scope {scope:?}; it was never used, was forgotten, or its time is over"
    )]
    Unknown {
        /// Whose key.
        scope: String,
        /// The key.
        key: String,
    },
    /// The record is none.
    #[error("record {key} does not read: {reason}; forget the key if its request may run again")]
    Damaged {
        /// The document.
        key: Key,
        /// What was found.
        reason: String,
    },
    /// A value or a name can never be accepted.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The store could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store did not take the batch. [`Explain::outcome`] says whether it was applied.
    #[error(transparent)]
    Write(Box<ApplyError>),
    /// The reservation could not be kept.
    #[error(transparent)]
    Lease(Box<LeaseError>),
}

impl From<ApplyError> for EdgeError {
    fn from(error: ApplyError) -> Self {
        Self::Write(Box::new(error))
    }
}

impl From<LeaseError> for EdgeError {
    fn from(error: LeaseError) -> Self {
        Self::Lease(Box::new(error))
    }
}

impl Explain for EdgeError {
    fn code(&self) -> Code {
        Code(match self {
            Self::BadKey { .. } => "TL1201",
            Self::InFlight { .. } => "TL1202",
            Self::Lost { .. } => "TL1203",
            Self::Over { .. } => "TL1204",
            Self::AnswerTooLarge { .. } => "TL1205",
            Self::Unknown { .. } => "TL1206",
            Self::Damaged { .. } => "TL1207",
            Self::Invalid(error) => return error.code(),
            Self::Store(error) => return error.code(),
            Self::Write(error) => return error.code(),
            Self::Lease(error) => return error.code(),
        })
    }

    fn retry(&self) -> Retry {
        match self {
            Self::InFlight { .. } => Retry::After(std::time::Duration::from_secs(1)),
            Self::Store(error) => error.retry(),
            Self::Write(error) => error.retry(),
            Self::Lease(error) => error.retry(),
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
