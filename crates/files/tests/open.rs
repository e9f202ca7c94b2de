//! Opening a directory: its errors, and the files that it leaves behind.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tidelock_core::clock::SystemClock;
use tidelock_core::error::{Explain as _, Outcome, Retry};
use tidelock_core::id::{Fence, Owner, QueueName, StreamVersion};
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    ApplyError, Batch, Claim, Expect, Lease, LogQuery, NewEvent, NewWork, Page, Store as _, StoreError,
    StoreErrorKind, StreamQuery, WorkFilter,
};
use tidelock_files::{FilesOptions, FilesStore};

fn key() -> Key {
    Key::new("order", ["o-1"]).unwrap()
}

fn put() -> Batch {
    Batch::new().put(&key(), Expect::Any, Payload::null())
}

async fn refused(path: &Path, options: FilesOptions) -> StoreError {
    FilesStore::open(path, options).await.unwrap_err()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn reasons_against_a_store_are_distinguished() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let off = || FilesOptions { create: false, ..FilesOptions::default() };
    assert_eq!(refused(&at("a/b"), FilesOptions::default()).await.kind, StoreErrorKind::CannotOpen);
    assert_eq!(refused(&at("a"), off()).await.kind, StoreErrorKind::CannotOpen);
    fs::write(at("file"), "").unwrap();
    assert_eq!(refused(&at("file"), FilesOptions::default()).await.kind, StoreErrorKind::CannotOpen);
    fs::create_dir(at("empty")).unwrap();
    assert_eq!(refused(&at("empty"), off()).await.kind, StoreErrorKind::CannotOpen);
    fs::create_dir(at("mine")).unwrap();
    fs::write(at("mine").join("thesis.txt"), "").unwrap();
    let error = refused(&at("mine"), FilesOptions::default()).await;
    assert_eq!(error.kind, StoreErrorKind::ForeignDatabase);
    assert!(error.to_string().contains("thesis.txt"), "{error}");
    assert_eq!(fs::read_dir(at("mine")).unwrap().count(), 1, "what is not ours is left alone");
    fs::create_dir(at("new")).unwrap();
    fs::write(at("new").join("tidelock.json"), r#"{"schema": 99, "document_floor": 0}"#).unwrap();
    assert_eq!(refused(&at("new"), FilesOptions::default()).await.kind, StoreErrorKind::SchemaTooNew);
    fs::write(at("new").join("tidelock.json"), "{").unwrap();
    assert_eq!(refused(&at("new"), FilesOptions::default()).await.kind, StoreErrorKind::Corrupt);
}

#[tokio::test]
async fn a_directory_that_may_not_be_written_is_read_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    common::open(&path, SystemClock::shared()).await.close().await;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o500)).unwrap();
    let error = refused(&path, FilesOptions::default()).await;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(error.kind, StoreErrorKind::ReadOnly, "{error}");
}

#[tokio::test]
async fn everything_belongs_to_its_user_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let store = common::open(&path, SystemClock::shared()).await;
    store.apply(put().op_id(tidelock_core::id::OpId::new())).await.unwrap();
    for folder in [path.clone(), path.join("documents"), path.join("operations")] {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap).filter(|e| e.path().is_file()) {
            assert_eq!(mode(&entry.path()), 0o600, "{}", entry.path().display());
        }
    }
}

#[tokio::test]
async fn invalid_files_are_rejected_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let store = common::open(&directory.path().join("s"), SystemClock::shared()).await;
    let lease = Lease { key: key(), fence: Fence(1), owner: None };
    let event = NewEvent::new("Placed".parse().unwrap(), Payload::null());
    let queue = QueueName::new("mails").unwrap();
    let batches = [
        (put().append(&key(), Expect::Any, [event]), "appending events to order"),
        (put().close(&key(), Expect::Any), "closing the stream order"),
        (put().guard_stream(&key(), Expect::Exact(StreamVersion(1))), "guarding the stream order"),
        (put().enqueue(NewWork::once(key(), queue.clone())), "enqueuing the work order"),
        (put().ack(&lease), "acknowledging the work order"),
        (put().guard_lease(&lease), "guarding the lease of order"),
    ];
    for (batch, asked) in batches {
        let error = store.apply(batch).await.unwrap_err();
        assert_eq!((error.code().as_str(), error.retry()), ("TL0309", Retry::Never), "{error}");
        assert_eq!(error.outcome(), Outcome::NotApplied);
        assert!(error.to_string().contains(asked) && error.to_string().contains("SQLite"), "{error}");
    }
    assert_eq!(store.document(&key()).await.unwrap(), None, "nothing of a refused batch is there");
    let owner = Owner::new("w").unwrap();
    let reads = [
        store.claim(Claim::queues(&owner, [queue], 1, Duration::from_secs(1))).await.err(),
        store.stream(&key()).await.err(),
        store.streams(&KeyPrefix::all(), Page::first(1)).await.err(),
        store.read_stream(StreamQuery::forward(&key(), 1)).await.err(),
        store.read_log(LogQuery::all(1)).await.err(),
        store.work(&key()).await.err(),
        store.works(&WorkFilter::default(), Page::first(1)).await.err(),
        store.count_work(&WorkFilter::default()).await.err(),
    ];
    for error in reads {
        assert_eq!(error.map(|e| e.kind), Some(StoreErrorKind::Unsupported));
    }
}

#[tokio::test]
async fn a_journal_that_was_damaged_later_stops_everything() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let store = common::open(&path, SystemClock::shared()).await;
    store.apply(put()).await.unwrap();
    fs::write(path.join(".journal"), "0123\n[]").unwrap();
    let errors = [
        store.document(&key()).await.unwrap_err(),
        refused(&path, FilesOptions::default()).await,
        match store.apply(put()).await.unwrap_err() {
            ApplyError::Store { error, outcome } => {
                assert_eq!(outcome, Outcome::NotApplied);
                error
            }
            other => panic!("{other}"),
        },
    ];
    for error in errors {
        assert_eq!(error.kind, StoreErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(".journal"), "{error}");
    }
}

#[tokio::test]
async fn a_write_that_never_began_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let store = common::open(&path, SystemClock::shared()).await;
    for place in [path.join(".new"), path.join("documents").join(".new")] {
        fs::write(place, "half a fi").unwrap();
    }
    store.apply(put()).await.unwrap();
    assert_eq!(store.documents(&KeyPrefix::all(), Page::first(10)).await.unwrap().rows.len(), 1);
}

#[tokio::test]
async fn a_lock_that_lasts_too_long_is_busy() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let options = FilesOptions { busy_timeout: Duration::ZERO, ..FilesOptions::default() };
    let store = FilesStore::open(&path, options).await.unwrap();
    let lock = fs::File::options().write(true).open(path.join(".lock")).unwrap();
    lock.lock().unwrap();
    let error = store.apply(put()).await.unwrap_err();
    assert_eq!((error.code().as_str(), error.outcome()), ("TL0301", Outcome::NotApplied));
    // Removing the file of a held lock takes the lock from its holder, but from no later caller.
    fs::remove_file(path.join(".lock")).unwrap();
    store.apply(put()).await.unwrap();
}

#[tokio::test]
async fn a_directory_that_is_gone_is_no_empty_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let store = common::open(&path, SystemClock::shared()).await;
    store.apply(put()).await.unwrap();
    fs::remove_dir_all(&path).unwrap();
    assert_eq!(store.document(&key()).await.unwrap_err().kind, StoreErrorKind::CannotOpen);
    assert_eq!(store.info().await.unwrap_err().kind, StoreErrorKind::CannotOpen);
}

#[tokio::test]
async fn a_listener_sees_local_and_remote_writes_and_edits() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let here = common::open(&path, SystemClock::shared()).await;
    let elsewhere = common::open(&path, SystemClock::shared()).await;
    let mut watch = here.watch();
    here.apply(put()).await.unwrap();
    assert!(watch.changed().await);
    elsewhere.apply(put()).await.unwrap();
    assert!(watch.changed().await);
    fs::write(path.join("documents").join("hand.json"), r#"{"key": "hand", "value": 1}"#).unwrap();
    assert!(watch.changed().await);
    here.close().await;
    assert_eq!(here.document(&key()).await.unwrap_err().kind, StoreErrorKind::Closed);
    assert_eq!(here.apply(put()).await.unwrap_err().code().as_str(), "TL0306");
}
