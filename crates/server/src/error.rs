//! Why the server refuses a request, before anything of the store is asked or beside it.

use std::time::Duration;

use thiserror::Error;
use tidelock::codes;
use tidelock::error::{Outcome, Retry};

/// Why a request was refused, or a server does not run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ServerError {
    /// No token, or one that nobody has.
    #[error("the request shows no token that is known here; send \"Authorization: Bearer TOKEN\"")]
    NoToken,
    /// The caller may not do that.
    #[error("{method} {path} is not allowed: {reason}")]
    NotAllowed {
        /// The method.
        method: &'static str,
        /// The route.
        path: &'static str,
        /// Why not, and what to do.
        reason: &'static str,
    },
    /// The request is meant for another host.
    #[error(
        "the request is for host {host:?}, which is not a name of this server; use localhost, or add the name to those that it has"
    )]
    OtherHost {
        /// The host that it is for.
        host: String,
    },
    /// A page of another site sent the request.
    #[error(
        "the request comes from another site ({found}); call the server from its own pages, or from no page"
    )]
    CrossSite {
        /// Which header says so.
        found: String,
    },
    /// The body is not JSON by its own account.
    #[error("the content type of the request is {found:?}; send application/json")]
    ContentType {
        /// What it is.
        found: String,
    },
    /// The body is larger than is read.
    #[error("the body of the request has more than {limit} bytes; send less at once")]
    TooLarge {
        /// How many bytes are read.
        limit: usize,
    },
    /// There is nothing of that name.
    #[error("there is no {what} {name:?} here")]
    NotFound {
        /// What was looked for.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// Something in the request does not read.
    #[error("{what} of the request cannot be used: {reason}")]
    Unreadable {
        /// Which part.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// A write does not say what it was decided on.
    #[error(
        "the request does not say which version of {key} it replaces; send If-Match with the ETag that you have seen, or If-None-Match: *"
    )]
    NoCondition {
        /// The document.
        key: String,
    },
    /// Another number of rows is meant than was confirmed.
    #[error(
        "{found} rows are meant, and {confirmed} were confirmed; look at them again, and confirm that number"
    )]
    OtherCount {
        /// How many were confirmed.
        confirmed: u64,
        /// How many there are.
        found: u64,
    },
    /// Too many clients follow the log.
    #[error("{limit} clients follow the log, which is the most at once; try again later")]
    TooMany {
        /// How many may.
        limit: usize,
    },
    /// A part of the program, or its store, is of no use at the moment.
    #[error("{what} is not ready: {reason}")]
    NotReady {
        /// Which part.
        what: String,
        /// Why not.
        reason: String,
    },
    /// It took too long.
    #[error(
        "the request was not done within {limit:?}; a write may still be carried out, so look before you send it again"
    )]
    TooLong {
        /// The time limit.
        limit: Duration,
    },
    /// The code of the server failed.
    #[error("the server failed while it worked on the request; please report this with what the log says")]
    Panicked,
    /// A token cannot be made or used.
    #[error("the token cannot be used: {reason}")]
    BadToken {
        /// Why not.
        reason: &'static str,
    },
    /// The server was to be reached from other machines, without that being said.
    #[error(
        "the address {address} can be reached from other machines, and {missing}; listen on 127.0.0.1, or serve it with a certificate (--tls-cert, --tls-key) and tokens"
    )]
    Beyond {
        /// The address.
        address: String,
        /// What would have to be there.
        missing: &'static str,
    },
    /// A file of TLS cannot be used.
    #[error("the {what} in {path} cannot be used: {reason}")]
    Tls {
        /// What should be in it.
        what: &'static str,
        /// The file.
        path: String,
        /// Why not, and what was expected.
        reason: String,
    },
    /// A token sends too much.
    #[error(
        "the token sends more than {limit} requests in a second; wait for {wait:?}, and send less at once"
    )]
    TooFast {
        /// How many are taken.
        limit: u32,
        /// When the next one is.
        wait: Duration,
    },
    /// Somebody guesses tokens.
    #[error("too many wrong tokens were shown from this address; wait for {wait:?}")]
    Guessing {
        /// When the next one is looked at.
        wait: Duration,
    },
    /// A lease was asked for longer than is given over HTTP.
    #[error(
        "the lease was asked for {asked:?}, and over HTTP it is given for {limit:?} at most; ask for less, and renew it before it ends"
    )]
    LeaseTime {
        /// For how long it was asked.
        asked: Duration,
        /// The longest time.
        limit: Duration,
    },
    /// Too much is worked on already.
    #[error(
        "{limit} requests are worked on, which is the most at once, and none was done within {waited:?}; nothing was begun, try again later"
    )]
    Busy {
        /// How many are.
        limit: usize,
        /// How long this one has waited.
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
        // The effects of a handler that timed out or panicked are not known here.
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
