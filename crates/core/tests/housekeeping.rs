//! Housekeeping: it runs without a caller, in pages, and does not interfere with a sweep of another process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use tidelock_core::clock::ManualClock;
use tidelock_core::housekeeping::{Housekeeping, OPERATIONS, last_sweep};
use tidelock_core::id::{OpId, Owner};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::*;

async fn with_records(count: usize) -> (MemoryStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let store = MemoryStore::with_clock(Arc::<ManualClock>::clone(&clock));
    let key = Key::single("n").unwrap();
    for _ in 0..count {
        let put = Batch::new().put(&key, Expect::Any, Payload::of(&1).unwrap());
        store.apply(put.op_id(OpId::new())).await.unwrap();
    }
    (store, clock)
}

#[tokio::test]
async fn more_rows_than_a_page_holds_are_all_removed() {
    let (store, clock) = with_records(2_500).await;
    clock.advance(OPERATIONS + Duration::from_secs(1));
    let report = Housekeeping::new(Arc::new(store)).sweep_if_due().await.unwrap().unwrap();
    assert_eq!((report.removed.operations, report.complete), (2_500, true));
}

#[tokio::test]
async fn it_runs_in_the_background_until_it_is_shut_down() {
    let (store, clock) = with_records(3).await;
    clock.advance(OPERATIONS + Duration::from_secs(1));
    let shared: SharedStore = Arc::new(store.clone());
    let handle = Housekeeping::new(shared).interval(Duration::from_millis(1)).spawn();
    let mut hints = store.watch();
    while last_sweep(&store).await.unwrap().is_none() {
        hints.changed().await;
    }
    assert_eq!(last_sweep(&store).await.unwrap().unwrap().removed.operations, 3);
    handle.shutdown().await;
}

#[tokio::test]
async fn a_process_that_holds_the_turn_is_waited_for_and_a_dead_one_is_not() {
    let (store, clock) = with_records(0).await;
    let house = Housekeeping::new(Arc::new(store.clone()));
    house.sweep_if_due().await.unwrap().unwrap();
    clock.advance(Duration::from_mins(2));
    // Another process claims the turn, and dies with it.
    let queue = "tidelock.housekeeping".parse().unwrap();
    let claim = Claim::queues(&Owner::new("another").unwrap(), [queue], 1, Duration::from_secs(30));
    assert_eq!(store.claim(claim).await.unwrap().grants.len(), 1);
    assert_eq!(house.sweep_if_due().await.unwrap(), None);
    clock.advance(Duration::from_secs(31));
    assert!(house.sweep_if_due().await.unwrap().is_some());
}
