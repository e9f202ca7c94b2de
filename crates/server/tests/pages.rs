//! The example on the page of each error is the message that programs print.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::time::Duration;

use tidelock::error::Explain as _;
use tidelock::error::pages::{all, example};
use tidelock_server::ServerError;

fn examples() -> Vec<ServerError> {
    vec![
        ServerError::NoToken,
        ServerError::NotAllowed {
            method: "PUT",
            path: "/api/v1/state/{key}",
            reason: "the token is for reading; show one that is for writing",
        },
        ServerError::OtherHost { host: "evil.test".to_owned() },
        ServerError::CrossSite { found: "Origin: https://evil.test".to_owned() },
        ServerError::ContentType { found: "text/plain".to_owned() },
        ServerError::TooLarge { limit: 1_048_576 },
        ServerError::NotFound { what: "document", name: "cart(17)".to_owned() },
        ServerError::Unreadable { what: "limit", reason: "0 is not between 1 and 1000".to_owned() },
        ServerError::NoCondition { key: "cart(17)".to_owned() },
        ServerError::OtherCount { confirmed: 3, found: 5 },
        ServerError::TooMany { limit: 100 },
        ServerError::TooLong { limit: Duration::from_secs(30) },
        ServerError::Panicked,
        ServerError::BadToken { reason: "it has less than 32 characters; let one be made" },
        ServerError::Beyond { address: "0.0.0.0:4000".to_owned(), missing: "nothing is encrypted" },
        ServerError::Tls {
            what: "certificate",
            path: "cert.pem".to_owned(),
            reason: "it holds none; expected -----BEGIN CERTIFICATE----- (PEM)".to_owned(),
        },
        ServerError::TooFast { limit: 500, wait: Duration::from_millis(1) },
        ServerError::Guessing { wait: Duration::from_secs(8) },
        ServerError::NotReady {
            what: "the drain loop".to_owned(),
            reason: "it came round 40 s ago, and should every second".to_owned(),
        },
        ServerError::LeaseTime { asked: Duration::from_secs(86_400), limit: Duration::from_secs(3_600) },
        ServerError::Busy { limit: 32, waited: Duration::from_secs(30) },
    ]
}

#[test]
fn each_example_is_the_real_message() {
    let messages = examples().into_iter().map(|error| (error.code().as_str(), Some(error.to_string())));
    let ours = all().iter().filter(|(code, _)| code.starts_with("TL13"));
    let pages = ours.map(|(code, _)| (*code, example(code).map(str::to_owned)));
    assert_eq!(messages.collect::<Vec<_>>(), pages.collect::<Vec<_>>());
}
