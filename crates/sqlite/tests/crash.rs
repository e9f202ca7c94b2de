//! Crashes of real processes: every acknowledged batch is there, no batch is there in part, and the file is sound.
#![allow(clippy::restriction, reason = "a test fails by panicking")]

mod common;

use tidelock_core::clock::SystemClock;
use tidelock_core::store::{LogQuery, Store as _};
use tidelock_tck::Backend as _;

tidelock_tck::child!(crate::common::Sqlite::default());

/// The number of processes that the test command kills; the soak test kills more.
const ROUNDS: u64 = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_the_middle_of_group_commits() {
    let first: u64 = std::env::var("TIDELOCK_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let rounds = std::env::var("TIDELOCK_ROUNDS").ok().and_then(|s| s.parse().ok()).unwrap_or(ROUNDS);
    let (mut acknowledged, mut found) = (0, 0);
    for seed in first..first + rounds {
        let backend = common::Sqlite::default();
        let report = tidelock_tck::crash::round(&backend, seed).await;
        let path = backend.last_path();
        let store = common::open(&path, SystemClock::shared()).await;
        assert_eq!(store.integrity_check().await.unwrap(), Vec::<String>::new(), "seed {seed}");
        // This backend guarantees more than the contract: positions without gaps.
        let log = store.read_log(LogQuery::all(10_000)).await.unwrap();
        let dense = log.events.iter().zip(1..).all(|(event, n)| event.position.0 == n);
        assert!(dense && log.end, "seed {seed}: the log has holes");
        acknowledged += report.acknowledged;
        found += report.found;
    }
    let name = common::Sqlite::default().name();
    eprintln!("{rounds} kills on {name}: {acknowledged} acknowledged, {found} found, lost 0");
    assert!(acknowledged > 0, "nothing was acknowledged in any round: the test proves nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_workers_drive_runs() {
    tidelock_tck::kill_workflow::killed(&common::Sqlite::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_transactions_over_many_keys_run() {
    let backend = common::Sqlite::default();
    let (kills, tally) = tidelock_tck::transactions::killed(&backend).await;
    eprintln!("{kills} kills on {}: serializable; {tally}", backend.name());
    assert!(kills > 0 && tally.committed > 0 && tally.dependencies > 0, "this proves nothing: {tally}");
    let store = common::open(&backend.last_path(), SystemClock::shared()).await;
    assert_eq!(store.integrity_check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_two_processes_add_to_one_record() {
    let backend = common::Sqlite::default();
    for report in tidelock_tck::kill_state::rounds(&backend).await {
        eprintln!("{report} on {}", backend.name());
        let store = common::open(&backend.last_path(), SystemClock::shared()).await;
        assert_eq!(store.integrity_check().await.unwrap(), Vec::<String>::new());
    }
}
