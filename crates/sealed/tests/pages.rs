//! The example on the page of each error is the message that programs print.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod common;

use common::{email, record_key};
use tidelock_core::clock::Timestamp;
use tidelock_core::error::pages::{all, example};
use tidelock_core::error::{Explain as _, Outcome, Retry};
use tidelock_sealed::{MasterKeyId, SealedError};

fn id(text: &str) -> MasterKeyId {
    serde_json::from_value(text.into()).unwrap()
}

fn examples() -> Vec<SealedError> {
    let subject = || "c-1".to_owned();
    let (place, key) = (|| email("c-1"), || record_key("c-1"));
    vec![
        SealedError::Mismatch { subject: subject(), place: email("c-2") },
        SealedError::Forgotten { subject: subject(), at: Timestamp::from_micros(1_000_000_000_000_000) },
        SealedError::UnknownVersion {
            what: format!("{}: what was sealed for \"c-1\"", place()),
            found: 2,
            known: 1,
        },
        SealedError::WrongType { subject: subject(), place: place(), expected: "alloc::string::String" },
        SealedError::Unwritable { subject: subject(), place: place(), given: "shop::Contact" },
        SealedError::NoKey { subject: subject(), key: key() },
        SealedError::Damaged { key: key(), reason: "it was changed, or belongs to another subject" },
        SealedError::UnknownMaster {
            key: key(),
            found: id("6f1d2c3b4a596877"),
            known: vec![id("0011223344556677")],
        },
        SealedError::BadMaster {
            origin: "master.key".to_owned(),
            reason: "12 characters that are no key".to_owned(),
        },
        SealedError::Exposed { path: "master.key".into(), mode: 0o644 },
        SealedError::NoRandomness { reason: "Operation not permitted (os error 1)".to_owned() },
        SealedError::Contended { key: key(), attempts: 16 },
    ]
}

#[test]
fn each_example_is_the_real_message() {
    let messages = examples().into_iter().map(|error| (error.code().as_str(), Some(error.to_string())));
    let ours = all().iter().filter(|(code, _)| code.starts_with("TL09"));
    let pages = ours.map(|(code, _)| (*code, example(code).map(str::to_owned)));
    assert_eq!(messages.collect::<Vec<_>>(), pages.collect::<Vec<_>>());
    for error in examples() {
        assert_eq!(error.outcome(), Outcome::NotApplied);
        assert_eq!(error.retry() == Retry::Now, error.code().as_str() == "TL0912");
    }
}
