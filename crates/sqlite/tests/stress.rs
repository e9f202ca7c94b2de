//! Commands and reactions of several processes under stress: every acknowledged write is there, and projections are the
//! fold of the log. `TIDELOCK_STRESS_SECONDS` sets the duration.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use tidelock_core::clock::SystemClock;
use tidelock_tck::stress::{self, Ending};

tidelock_tck::child!(crate::common::Sqlite::default());

/// Checks the file that a scenario leaves behind.
async fn is_sound(backend: &common::Sqlite) {
    let store = common::open(&backend.last_path(), SystemClock::shared()).await;
    assert_eq!(store.integrity_check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stress_of_a_commit_storm() {
    let backend = common::Sqlite::default();
    stress::commit_storm(&backend).await;
    is_sound(&backend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stress_on_one_stream() {
    let backend = common::Sqlite::default();
    stress::same_stream(&backend).await;
    is_sound(&backend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stress_of_workers_that_come_and_go() {
    let backend = common::Sqlite::default();
    stress::drain(&backend, Ending::Shutdown).await;
    is_sound(&backend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stress_of_workers_that_die() {
    let backend = common::Sqlite::default();
    stress::drain(&backend, Ending::Kill).await;
    is_sound(&backend).await;
}
