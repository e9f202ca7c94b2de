//! Errors of the HTTP server itself, as opposed to errors of the store.

use std::time::Duration;

use thiserror::Error;
use tidelock_core::codes;
use tidelock_core::error::{Outcome, Retry};

/// The reason why the server refused a request or could not start.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ServerError {
    /// The request has no token, or an unknown one.
    #[error("the request shows no token that is known here; send \"Authorization: Bearer TOKEN\"")]
    NoToken,
    /// The caller lacks the permission, or the server does not allow writes.
    #[error("{method} {path} is not allowed: {reason}")]
    NotAllowed {
        /// The HTTP method.
        method: &'static str,
        /// The route.
        path: &'static str,
        /// The reason and the next step.
        reason: &'static str,
    },
    /// The request names another host.
    #[error(
        "the request is for host {host:?}, which is not a name of this server; use localhost, or add the name to those that it has"
    )]
    OtherHost {
        /// The host that the request names.
        host: String,
    },
    /// A page of another site sent the request.
    #[error(
        "the request comes from another site ({found}); call the server from its own pages, or from no page"
    )]
    CrossSite {
        /// The header that identifies the site.
        found: String,
    },
    /// The content type of the body is not JSON.
    #[error("the content type of the request is {found:?}; send application/json")]
    ContentType {
        /// The content type of the request.
        found: String,
    },
    /// The body exceeds the size limit.
    #[error("the body of the request has more than {limit} bytes; send less at once")]
    TooLarge {
        /// The size limit in bytes.
        limit: usize,
    },
    /// No object or route has this name.
    #[error("there is no {what} {name:?} here")]
    NotFound {
        /// The kind of object.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A part of the request cannot be decoded, or is invalid.
    #[error("{what} of the request cannot be used: {reason}")]
    Unreadable {
        /// The affected part.
        what: &'static str,
        /// The reason.
        reason: String,
    },
    /// A write names no version that it replaces.
    #[error(
        "the request does not say which version of {key} it replaces; send If-Match with the ETag that you have seen, or If-None-Match: *"
    )]
    NoCondition {
        /// The document.
        key: String,
    },
    /// The number of selected rows differs from the number that the caller confirmed.
    #[error(
        "{found} rows are meant, and {confirmed} were confirmed; look at them again, and confirm that number"
    )]
    OtherCount {
        /// The number that the caller confirmed.
        confirmed: u64,
        /// The number of selected rows.
        found: u64,
    },
    /// The maximum number of clients already follows the log.
    #[error("{limit} clients follow the log, which is the most at once; try again later")]
    TooMany {
        /// The maximum number of followers.
        limit: usize,
    },
    /// A part of the program, or its store, is not ready.
    #[error("{what} is not ready: {reason}")]
    NotReady {
        /// The affected part.
        what: String,
        /// The reason.
        reason: String,
    },
    /// The request timed out.
    #[error(
        "the request was not done within {limit:?}; a write may still be carried out, so look before you send it again"
    )]
    TooLong {
        /// The time limit.
        limit: Duration,
    },
    /// A request handler panicked.
    #[error("the server failed while it worked on the request; please report this with what the log says")]
    Panicked,
    /// A token cannot be generated or used.
    #[error("the token cannot be used: {reason}")]
    BadToken {
        /// The reason.
        reason: &'static str,
    },
    /// Other machines can reach the address, and the options do not allow that.
    #[error(
        "the address {address} can be reached from other machines, and {missing}; listen on 127.0.0.1, or serve it with a certificate (--tls-cert, --tls-key) and tokens"
    )]
    Beyond {
        /// The address.
        address: String,
        /// The missing protection or permission.
        missing: &'static str,
    },
    /// A TLS file cannot be used.
    #[error("the {what} in {path} cannot be used: {reason}")]
    Tls {
        /// The expected content of the file.
        what: &'static str,
        /// The file.
        path: String,
        /// The reason, and the expected content.
        reason: String,
    },
    /// A token exceeds its rate limit.
    #[error(
        "the token sends more than {limit} requests in a second; wait for {wait:?}, and send less at once"
    )]
    TooFast {
        /// The rate limit in requests per second.
        limit: u32,
        /// The time until the next request is accepted.
        wait: Duration,
    },
    /// Too many different wrong tokens came from one address.
    #[error("too many wrong tokens were shown from this address; wait for {wait:?}")]
    Guessing {
        /// The time for which unknown tokens from this address are still refused.
        wait: Duration,
    },
    /// The requested duration of a lease exceeds the limit of the HTTP API.
    #[error(
        "the lease was asked for {asked:?}, and over HTTP it is given for {limit:?} at most; ask for less, and renew it before it ends"
    )]
    LeaseTime {
        /// The requested duration.
        asked: Duration,
        /// The maximum duration.
        limit: Duration,
    },
    /// The maximum number of requests was in flight for too long.
    #[error(
        "{limit} requests are worked on, which is the most at once, and none was done within {waited:?}; nothing was begun, try again later"
    )]
    Busy {
        /// The maximum number of requests in flight.
        limit: usize,
        /// The time that this request has waited.
        waited: Duration,
    },
}

codes! {
    ServerError {
        NoToken => "TL1301",
        NotAllowed => "TL1302",
        OtherHost => "TL1303",
        CrossSite => "TL1304",
        ContentType => "TL1305",
        TooLarge => "TL1306",
        NotFound => "TL1307",
        Unreadable => "TL1308",
        NoCondition => "TL1309",
        OtherCount => ("TL1310", Retry::Now),
        TooMany => ("TL1311", Retry::after_secs(5)),
        // The server does not know which effects a handler had before it timed out or panicked.
        TooLong => ("TL1312", Retry::Never, Outcome::Unknown(None)),
        Panicked => ("TL1314", Retry::Never, Outcome::Unknown(None)),
        BadToken => "TL1315",
        Beyond => "TL1316",
        Tls => "TL1317",
        TooFast { wait } => ("TL1318", Retry::After(*wait)),
        Guessing { wait } => ("TL1319", Retry::After(*wait)),
        NotReady => ("TL1320", Retry::after_secs(5)),
        LeaseTime => "TL1321",
        Busy => ("TL1322", Retry::after_secs(5)),
    }
}
