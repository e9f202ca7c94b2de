//! Commands and reactions of several processes under stress: every acknowledged write is there, and projections are the
//! fold of the log. `TIDELOCK_STRESS_SECONDS` sets the duration.

mod common;

use tidelock_tck::stress::{self, Ending};

tidelock_tck::child!(crate::common::Postgres::default());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stress_of_a_commit_storm() {
    stress::commit_storm(&common::Postgres::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stress_on_one_stream() {
    stress::same_stream(&common::Postgres::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stress_of_workers_that_come_and_go() {
    stress::drain(&common::Postgres::default(), Ending::Shutdown).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stress_of_workers_that_die() {
    stress::drain(&common::Postgres::default(), Ending::Kill).await;
}
