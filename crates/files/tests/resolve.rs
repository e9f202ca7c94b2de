//! Failures under an id that may have been applied before: the outcome is unknown, and resolving returns it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs::File;
use std::time::Duration;

use rustix::fs::FlockOperation;
use tidelock_core::error::{Explain as _, Outcome};
use tidelock_core::id::OpId;
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{Batch, Delta, Resolution, Store as _, StoreErrorKind};
use tidelock_files::{FilesOptions, FilesStore};

fn deposit() -> Batch {
    let none = Payload::of(&0).unwrap();
    Batch::new().merge_or_create(&Key::single("balance").unwrap(), none, [Delta::inc("", 1)])
}

#[tokio::test]
async fn d4_a_busy_directory_does_not_deny_an_applied_batch() {
    let directory = tempfile::tempdir().unwrap();
    let options = FilesOptions { busy_timeout: Duration::from_millis(20), ..FilesOptions::default() };
    let store = FilesStore::open(directory.path().join("store"), options).await.unwrap();
    let id = OpId::new();
    let first = store.apply(deposit().op_id(id)).await.unwrap();

    let lock = File::open(store.path().join(".lock")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
    let again = store.apply(deposit().op_id(id)).await.unwrap_err();
    assert_eq!((again.code().as_str(), again.outcome()), ("TL0301", Outcome::Unknown(Some(id))), "{again}");
    let without = store.apply(deposit()).await.unwrap_err();
    assert_eq!(without.outcome(), Outcome::NotApplied, "{without}");
    assert_eq!(store.resolve(id).await.unwrap_err().kind, StoreErrorKind::Busy, "it never guesses");
    drop(lock);
    assert_eq!(store.resolve(id).await.unwrap(), Resolution::Applied(first.into_repeated()));
    store.close().await;
    let closed = store.apply(deposit().op_id(id)).await.unwrap_err();
    assert_eq!(closed.outcome(), Outcome::Unknown(Some(id)), "{closed}");
}
