//! Errors of requests that are rejected before their handler, or instead of it.

use std::time::Duration;

use thiserror::Error;
use tidelock_core::codes;
use tidelock_core::error::{Outcome, Retry};

/// The reason why a request did not run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The key belongs to a request with another payload.
    #[error(
        "idempotency key {key:?} belongs to a request with another method, path or body; send that one again, or take a new key"
    )]
    OtherPayload {
        /// The key.
        key: String,
    },
    /// A key is required.
    #[error(
        "the request has no header {header}, and needs one here; send a random UUID, and the same one again with each repetition"
    )]
    MissingKey {
        /// The header.
        header: String,
    },
    /// The body exceeds the size limit.
    #[error(
        "the body of the request has more than {limit} bytes; it cannot be compared with a repetition, so it was not run"
    )]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The request ran before, and its response was not stored.
    #[error(
        "the request with idempotency key {key:?} was answered with status {status}, and the rest of the answer was too large to keep; it was not run again"
    )]
    NotKept {
        /// The key.
        key: String,
        /// The status.
        status: u16,
    },
    /// The handler panicked.
    #[error("the handler of the request with idempotency key {key:?} panicked; the key is free again")]
    Panicked {
        /// The key.
        key: String,
    },
    /// The signature is missing or invalid.
    #[error(
        "the signature of the webhook is not valid: {reason}; sign \"TIMESTAMP\\nKEY\\nBODY\" with the shared secret"
    )]
    BadSignature {
        /// The defect of the signature.
        reason: &'static str,
    },
    /// The signature is too old, or lies in the future.
    #[error(
        "the signature of the webhook was made {away:?} away from now, at most {tolerance:?} are allowed; sign again, and check the clocks"
    )]
    Stale {
        /// The distance of the signature from now.
        away: Duration,
        /// The permitted distance.
        tolerance: Duration,
    },
    /// The body ended prematurely.
    #[error("the body of the request could not be read: {reason}; send it again")]
    BrokenOff {
        /// The cause.
        reason: String,
    },
}

codes! {
    RequestError {
        OtherPayload => "TL1211",
        MissingKey => "TL1212",
        TooLarge => "TL1213",
        NotKept => "TL1214",
        // The effects of the handler are not known here.
        Panicked => ("TL1215", Retry::after_secs(1), Outcome::Unknown(None)),
        BadSignature => "TL1216",
        Stale => "TL1217",
        BrokenOff => ("TL1218", Retry::after_secs(1)),
    }
}
