//! A store outlives the runtime that opened it: its connections belong to a runtime of the library.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::state::{State, StateRegistry};
use tidelock_core::store::{Batch, Claim, Delta, Expect, Page, Store as _, StreamQuery};
use tidelock_postgres::PostgresStore;
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn counter() -> Key {
    Key::single("counter").unwrap()
}

async fn increment(store: PostgresStore) {
    store.apply(Batch::new().merge(&counter(), [Delta::inc("", 1)])).await.unwrap();
}

/// Opens a store in a runtime that ends while reads, writes and claims are in flight.
fn opened_in_a_runtime_that_ended(address: &str) -> PostgresStore {
    let first = runtime();
    let store = first.block_on(async {
        let store = common::open(address, None).await;
        let zero = Payload::of(&0).unwrap();
        store.apply(Batch::new().put(&counter(), Expect::Absent, zero)).await.unwrap();
        for _ in 0..8 {
            let (reading, writing) = (store.clone(), store.clone());
            tokio::spawn(increment(writing));
            tokio::spawn(async move { drop(reading.document(&counter()).await) });
        }
        // The spawned tasks send their statements before the runtime ends.
        increment(store.clone()).await;
        store
    });
    drop(first);
    store
}

#[test]
fn a_store_works_after_the_runtime_that_opened_it_ended() {
    let backend = common::Postgres::default();
    let address = common::address(&backend.schema());
    let store = opened_in_a_runtime_that_ended(&address);
    let second = runtime();
    second.block_on(async {
        let before = store.document(&counter()).await.unwrap().unwrap();
        let value: i64 = before.value.parse().unwrap();
        assert!((1..=9).contains(&value), "{value}");
        increment(store.clone()).await;
        let owner = tidelock_core::id::Owner::new("second").unwrap();
        let queue = tidelock_core::id::QueueName::new("jobs").unwrap();
        let claim = Claim::queues(&owner, [queue], 1, std::time::Duration::from_secs(10));
        assert!(store.claim(claim).await.unwrap().grants.is_empty());
        let stream = StreamQuery::forward(&counter(), 10);
        assert!(store.read_stream(stream).await.unwrap().events.is_empty());
        let prefix = tidelock_core::key::KeyPrefix::kind("counter");
        assert_eq!(store.documents(&prefix, Page::first(10)).await.unwrap().rows.len(), 1);
        // Hints still arrive.
        let mut watch = store.watch();
        increment(store.clone()).await;
        watch.changed().await;
        store.close().await;
    });
}

#[test]
fn a_mutation_needs_no_runtime_of_its_caller() {
    let backend = common::Postgres::default();
    let address = common::address(&backend.schema());
    let store = opened_in_a_runtime_that_ended(&address);
    let record: State<i64> = StateRegistry::new(Arc::new(store)).at(Key::single("record").unwrap());
    // An executor without timers or I/O.
    let bare = Builder::new_current_thread().build().unwrap();
    bare.block_on(record.mutate(|value| *value += 1)).unwrap();
    let second = runtime();
    assert_eq!(second.block_on(record.get()).unwrap(), 1);
}
