//! Leases between real processes on one file, and under an executor that is blocked.
#![cfg(unix)]
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use tidelock_core::key::Key;
use tidelock_core::lease;
use tidelock_core::payload::Payload;
use tidelock_core::store::{Batch, Expect, SharedStore};
use tidelock_sqlite::{SqliteOptions, SqliteStore};

tidelock_tck::child!(crate::common::Sqlite::default());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k8_a_process_that_was_stopped_past_its_lease_commits_nothing() {
    tidelock_tck::sigstop::round(&common::Sqlite::default()).await;
}

#[test]
fn a_blocked_executor_loses_no_lease() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let file = directory.path().join("blocked.db");
        let store: SharedStore = Arc::new(SqliteStore::open(file, SqliteOptions::default()).await.unwrap());
        let lock = Key::single("blocked").unwrap();
        let held = lease::request(&store, &lock).ttl(Duration::from_secs(2)).try_acquire().await.unwrap();
        // The subject of the test: the only thread of the executor is blocked for longer than the lease lasts.
        std::thread::sleep(Duration::from_secs(4));
        assert!(!held.is_lost());
        let write = held.guard(Batch::new().put(&lock, Expect::Absent, Payload::null())).unwrap();
        store.apply(write).await.unwrap();
        let view = lease::view(&store, &lock).await.unwrap().unwrap();
        assert_eq!((view.takeovers, view.holder.unwrap().fence), (0, held.fence()));
        held.release().await.unwrap();
    });
}

#[tokio::test]
async fn k2_a_wait_outlasts_a_file_that_is_locked_for_longer_than_a_write_waits() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("locked.db");
    let options = SqliteOptions { busy_timeout: Duration::from_millis(20), ..SqliteOptions::default() };
    let store: SharedStore = Arc::new(SqliteStore::open(&file, options).await.unwrap());
    let lock = Key::single("locked").unwrap();
    let other = tidelock_sqlite::rusqlite::Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiter = tokio::spawn(lease::request(&store, &lock).acquire());
    // The subject of the test: the file stays locked for many times as long as a write waits for it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiter.is_finished(), "it gave up: {:?}", waiter.await);
    other.execute_batch("COMMIT").unwrap();
    let held = waiter.await.unwrap().unwrap();
    held.release().await.unwrap();
}
