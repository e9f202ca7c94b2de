//! What can go wrong with idempotency keys.

use thiserror::Error;

use crate::clock::Timestamp;
use crate::error::{InvalidInput, Retry, codes, conversions};
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
    /// The store did not take the batch. [`Explain::outcome`](crate::error::Explain::outcome) says whether it was applied.
    #[error(transparent)]
    Write(Box<ApplyError>),
    /// The reservation could not be kept.
    #[error(transparent)]
    Lease(Box<LeaseError>),
}

conversions! {
    EdgeError {
        ApplyError => Write,
        LeaseError => Lease,
    }
}

codes! {
    EdgeError {
        BadKey => "TL1201",
        InFlight => ("TL1202", Retry::after_secs(1)),
        Lost => "TL1203",
        Over => "TL1204",
        AnswerTooLarge => "TL1205",
        Unknown => "TL1206",
        Damaged => "TL1207",
        Invalid(error) => error,
        Store(error) => error,
        Write(error) => error,
        Lease(error) => error,
    }
}
