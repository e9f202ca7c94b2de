//! Why a request is refused before its handler, or instead of it.

use std::time::Duration;

use thiserror::Error;
use tidelock_core::codes;
use tidelock_core::error::{Outcome, Retry};

/// Why a request did not run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The key belongs to a request that says something else.
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
    /// The body is larger than is read.
    #[error(
        "the body of the request has more than {limit} bytes; it cannot be compared with a repetition, so it was not run"
    )]
    TooLarge {
        /// How many bytes are read.
        limit: usize,
    },
    /// It ran before, and its answer was not kept.
    #[error(
        "the request with idempotency key {key:?} was answered with status {status}, and the rest of the answer was too large to keep; it was not run again"
    )]
    NotKept {
        /// The key.
        key: String,
        /// The status.
        status: u16,
    },
    /// The handler did not come to an end.
    #[error("the handler of the request with idempotency key {key:?} panicked; the key is free again")]
    Panicked {
        /// The key.
        key: String,
    },
    /// The signature is missing, or not what it must be.
    #[error(
        "the signature of the webhook is not valid: {reason}; sign \"TIMESTAMP\\nKEY\\nBODY\" with the shared secret"
    )]
    BadSignature {
        /// What is wrong.
        reason: &'static str,
    },
    /// The signature is too old, or of the future.
    #[error(
        "the signature of the webhook was made {away:?} away from now, at most {tolerance:?} are allowed; sign again, and check the clocks"
    )]
    Stale {
        /// How far away.
        away: Duration,
        /// How far it may be.
        tolerance: Duration,
    },
    /// The body broke off.
    #[error("the body of the request could not be read: {reason}; send it again")]
    BrokenOff {
        /// What was found.
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
