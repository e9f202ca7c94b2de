//! D2 and D3 on SQLite: a file that was copied or restored begins a new epoch, also while it is open.
#![allow(clippy::restriction, reason = "a test fails by panicking")]

mod common;

use std::path::Path;

use tidelock_core::clock::SystemClock;
use tidelock_core::id::{EventType, Position};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{Batch, Delta, Expect, LogQuery, NewEvent, Store as _, StoreErrorKind};
use tidelock_sqlite::SqliteStore;

async fn open(path: &Path) -> SqliteStore {
    common::open(path, SystemClock::shared()).await
}

fn stream() -> Key {
    Key::single("epoch").unwrap()
}

async fn append(store: &SqliteStore) -> Position {
    let event = NewEvent::new(EventType::new("Happened").unwrap(), Payload::null());
    let receipt = store.apply(Batch::new().append(&stream(), Expect::Any, [event])).await.unwrap();
    receipt.appended[0].last_position
}

async fn after(store: &SqliteStore, position: Position) -> Result<usize, StoreErrorKind> {
    let page = store.read_log(LogQuery::after(position, 100)).await;
    page.map(|page| page.events.len()).map_err(|error| error.kind)
}

/// Copies the file of a store that is closed.
fn copy(from: &Path, to: &Path) {
    for path in [to.to_owned(), to.with_extension("db-wal"), to.with_extension("db-shm")] {
        let _ = std::fs::remove_file(path);
    }
    std::fs::copy(from, to).unwrap();
}

#[tokio::test]
async fn d3_a_file_that_was_replaced_by_its_backup_begins_a_new_epoch() {
    let directory = tempfile::tempdir().unwrap();
    let (path, backup) = (directory.path().join("live.db"), directory.path().join("backup.db"));
    let store = open(&path).await;
    let (first, kept) = (store.epoch(), append(&store).await);
    store.close().await;
    copy(&path, &backup);
    let store = open(&path).await;
    assert_eq!(store.epoch(), first, "the same file is the same history");
    let lost = append(&store).await;
    store.close().await;
    copy(&backup, &path);
    let store = open(&path).await;
    assert!(store.epoch() > first);
    assert_eq!(after(&store, lost).await, Err(StoreErrorKind::PositionLost));
    assert_eq!(after(&store, kept).await, Ok(0));
    let new = append(&store).await;
    assert!(new > lost);
    assert_eq!(after(&store, kept).await, Ok(1));
}

#[tokio::test]
async fn d2_an_open_store_notices_that_its_rows_went_back() {
    let directory = tempfile::tempdir().unwrap();
    let (path, backup) = (directory.path().join("live.db"), directory.path().join("backup.db"));
    let counter = Key::single("counter").unwrap();
    let add = |n: i64| Batch::new().merge_or_create(&counter, Payload::of(&0).unwrap(), [Delta::inc("", n)]);
    let store = open(&path).await;
    store.apply(add(0)).await.unwrap();
    let kept = append(&store).await;
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute("VACUUM INTO ?1", [backup.display().to_string()]).unwrap();
    let before = store.epoch();
    store.apply(add(10)).await.unwrap();
    let lost = append(&store).await;
    common::write_back(&path, &backup);
    store.apply(add(1)).await.unwrap();
    assert!(store.epoch() > before);
    assert_eq!(store.document(&counter).await.unwrap().unwrap().value, Payload::of(&1).unwrap());
    assert!(append(&store).await > lost);
    assert_eq!(after(&store, lost).await, Err(StoreErrorKind::PositionLost));
    assert_eq!(after(&store, kept).await, Ok(1));
    assert_eq!(store.stream(&stream()).await.unwrap().unwrap().head.map(|head| head.0), Some(1));
}

#[tokio::test]
async fn d2_nothing_is_written_to_a_file_that_was_replaced_while_open() {
    let directory = tempfile::tempdir().unwrap();
    let (path, other) = (directory.path().join("live.db"), directory.path().join("other.db"));
    let store = open(&path).await;
    append(&store).await;
    std::fs::copy(&path, &other).unwrap();
    std::fs::rename(&other, &path).unwrap();
    let event = NewEvent::new(EventType::new("Happened").unwrap(), Payload::null());
    let refused = store.apply(Batch::new().append(&stream(), Expect::Any, [event])).await.unwrap_err();
    assert!(refused.to_string().contains("the file was replaced while the store was open"), "{refused}");
}
