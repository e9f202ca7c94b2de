//! Errors of idempotency keys.

use thiserror::Error;

use crate::clock::Timestamp;
use crate::error::{InvalidInput, Retry, codes, conversions};
use crate::key::Key;
use crate::lease::LeaseError;
use crate::store::{ApplyError, StoreError};
use crate::worker::LostReason;

/// The reason why a key was not reserved, or a response was not stored.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum IdempotencyError {
    /// The key, or its scope, is invalid.
    #[error("idempotency key {key:?} is not valid: {reason}; a random UUID for each request is a good key")]
    BadKey {
        /// The beginning of the key.
        key: String,
        /// The reason.
        reason: String,
    },
    /// A request with the key is in flight.
    #[error(
        "idempotency key {key:?} is in flight: {by} has it since {since}; if that process died, the key is free at {until}"
    )]
    InFlight {
        /// The key.
        key: String,
        /// The process that runs the request.
        by: String,
        /// The start of the request, by the store's clock.
        since: Timestamp,
        /// The expiry of the lease, unless it is renewed.
        until: Timestamp,
    },
    /// The reservation was lost. Nothing of the batch was applied.
    #[error(
        "idempotency key {key:?}: the reservation is lost, {reason}; nothing was committed, and another request may run with the key"
    )]
    Lost {
        /// The key.
        key: String,
        /// The reason.
        reason: LostReason,
    },
    /// The reservation was already committed or released.
    #[error("idempotency key {key:?}: the reservation was {how} before; nothing more was done")]
    Over {
        /// The key.
        key: String,
        /// The end of the reservation.
        how: &'static str,
    },
    /// The response exceeds the limits of a record. Nothing of the batch was applied.
    #[error(
        "idempotency key {key:?}: the {what} of the answer has {found} bytes, at most {limit} are kept; answer with a reference, or complete with its status only"
    )]
    AnswerTooLarge {
        /// The key.
        key: String,
        /// The part of the response.
        what: &'static str,
        /// The size of the part.
        found: usize,
        /// The maximum size.
        limit: usize,
    },
    /// There is no record of the key.
    #[error(
        "idempotency key {key:?} is not known in scope {scope:?}; it was never used, was forgotten, or its time is over"
    )]
    Unknown {
        /// The scope of the key.
        scope: String,
        /// The key.
        key: String,
    },
    /// The record cannot be decoded.
    #[error("record {key} does not read: {reason}; forget the key if its request may run again")]
    Damaged {
        /// The document.
        key: Key,
        /// The reason.
        reason: String,
    },
    /// A value or a name is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store rejected or failed the batch. [`Explain::outcome`](crate::error::Explain::outcome) returns whether it was
    /// applied.
    #[error(transparent)]
    Write(Box<ApplyError>),
    /// The lease of the reservation failed.
    #[error(transparent)]
    Lease(Box<LeaseError>),
}

conversions! {
    IdempotencyError {
        ApplyError => Write,
        LeaseError => Lease,
    }
}

codes! {
    IdempotencyError {
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
