//! The example on the page of each error is the message that programs print.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::time::Duration;

use tidelock_core::error::Explain as _;
use tidelock_core::error::pages::{all, example};
use tidelock_http::RequestError;

fn examples() -> Vec<RequestError> {
    let key = || "order-17".to_owned();
    vec![
        RequestError::OtherPayload { key: key() },
        RequestError::MissingKey { header: "idempotency-key".to_owned() },
        RequestError::TooLarge { limit: 1_048_576 },
        RequestError::NotKept { key: key(), status: 200 },
        RequestError::Panicked { key: key() },
        RequestError::BadSignature { reason: "no secret fits it" },
        RequestError::Stale { away: Duration::from_secs(900), tolerance: Duration::from_secs(300) },
        RequestError::BrokenOff { reason: "connection reset".to_owned() },
    ]
}

#[test]
fn each_example_is_the_real_message() {
    let messages = examples().into_iter().map(|error| (error.code().as_str(), Some(error.to_string())));
    let ours = all().iter().filter(|(code, _)| code.starts_with("TL121"));
    let pages = ours.map(|(code, _)| (*code, example(code).map(str::to_owned)));
    assert_eq!(messages.collect::<Vec<_>>(), pages.collect::<Vec<_>>());
}
