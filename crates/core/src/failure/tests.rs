//! Conversions of errors to failures, and the waits that failures ask for.

use std::error::Error;
use std::time::Duration;

use super::{Failure, StepError};
use crate::clock::{Due, Timestamp};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
#[error("the order cannot be sent")]
struct Outer(#[source] Box<dyn Error + Send + Sync>);

fn outer(source: impl Into<Box<dyn Error + Send + Sync>>) -> Outer {
    Outer(source.into())
}

fn declined() -> StepError {
    StepError::Failed { step: "charge".to_owned(), error: "declined".to_owned(), attempts: 5 }
}

#[test]
fn messages_include_each_source_once() {
    let failed = || -> Result<(), Failure> { Err(outer(std::io::Error::other("the wire is cut")))? };
    let failure = failed().unwrap_err();
    assert_eq!(failure.to_string(), "the order cannot be sent: the wire is cut");
    assert!(!failure.is_permanent());
    let repeated = Failure::retry(outer(outer("the order cannot be sent")));
    assert_eq!(repeated.message(), "the order cannot be sent");
}

#[test]
fn texts_and_boxed_errors_convert() {
    let text = || -> Result<(), Failure> { Err("no")? };
    let owned = || -> Result<(), Failure> { Err(String::from("no"))? };
    let boxed = || -> Result<(), Failure> { Err(Box::<dyn Error + Send + Sync>::from("no"))? };
    for failure in [text(), owned(), boxed()].map(Result::unwrap_err) {
        assert_eq!(failure, Failure::new("no"));
    }
    assert_eq!(Failure::permanent("no").message(), "no");
}

#[test]
fn errors_of_steps_keep_their_meaning_also_as_a_source() {
    for failure in [Failure::from(declined()), Failure::from(outer(declined()))] {
        assert!(failure.is_permanent() && !failure.is_cancelled(), "{failure:?}");
        assert_eq!(failure.cause(), Some("charge"));
    }
    let (what, reason) = ("sleep 1".to_owned(), "by an operator".to_owned());
    let cancelled = Failure::from(StepError::Cancelled { what, reason });
    assert!(cancelled.is_cancelled() && cancelled.is_permanent());
    assert!(!Failure::retry(declined()).is_permanent(), "an explicit retry prevails");
}

#[test]
fn waits_are_never_shorter_than_the_policy() {
    let now = Timestamp::from_micros(5_000_000);
    let wait = |failure: Failure, policy| failure.wait(policy, now);
    assert_eq!(wait(Failure::new("no"), SECOND), SECOND);
    assert_eq!(wait(Failure::retry_after(3 * SECOND, "no"), SECOND), 3 * SECOND);
    assert_eq!(wait(Failure::retry_after(SECOND, "no"), 3 * SECOND), 3 * SECOND);
    assert_eq!(wait(Failure::defer(Due::After(2 * SECOND)), SECOND), 2 * SECOND);
    assert_eq!(wait(Failure::defer(Due::At(now.after(4 * SECOND))), SECOND), 4 * SECOND);
    assert_eq!(wait(Failure::defer(Due::At(Timestamp::EPOCH)), SECOND), SECOND);
}

#[test]
fn records_restore_the_failure() {
    let cancelled = StepError::Cancelled { what: "nap".to_owned(), reason: "late".to_owned() };
    let failures = [
        Failure::new("no"),
        Failure::permanent("no"),
        Failure::retry_after(SECOND, "no"),
        Failure::defer(Due::After(SECOND)),
        Failure::from(declined()),
        Failure::from(cancelled),
    ];
    for failure in failures {
        let recorded = serde_json::to_string(&failure).unwrap();
        assert_eq!(serde_json::from_str::<Failure>(&recorded).unwrap(), failure, "{recorded}");
    }
    assert_eq!(serde_json::to_string(&Failure::new("no")).unwrap(), r#"{"message":"no"}"#);
}

#[test]
fn long_messages_are_truncated_between_characters() {
    assert_eq!(Failure::new("añb").truncated(2).message(), "a");
}
