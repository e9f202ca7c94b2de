//! Leases between real processes on one file, and under an executor that is blocked.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "a test fails by panicking; it uses a part of what tests share"
)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use tidelock_core::key::Key;
use tidelock_core::lease;
use tidelock_core::payload::Payload;
use tidelock_core::store::{Batch, Expect, SharedStore};
use tidelock_sqlite::{Options, SqliteStore};

tidelock_tck::child!(crate::common::Sqlite::default());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k8_a_process_that_was_stopped_past_its_lease_commits_nothing() {
    tidelock_tck::stop::round(&common::Sqlite::default()).await;
}

#[test]
fn a_blocked_executor_loses_no_lease() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let file = directory.path().join("blocked.db");
        let store: SharedStore = Arc::new(SqliteStore::open(file, Options::default()).await.unwrap());
        let lock = Key::single("blocked").unwrap();
        let held = lease::hold(&store, &lock).ttl(Duration::from_secs(1)).now().await.unwrap();
        // This is what the test is about: the only thread of the executor is blocked for longer than the lease lasts.
        std::thread::sleep(Duration::from_millis(2_500));
        assert!(!held.is_lost());
        let write = held.guard(Batch::new().put(&lock, Expect::Absent, Payload::null())).unwrap();
        store.apply(write).await.unwrap();
        let view = lease::view(&store, &lock).await.unwrap().unwrap();
        assert_eq!((view.takeovers, view.holder.unwrap().fence), (0, held.fence()));
        held.release().await.unwrap();
    });
}
