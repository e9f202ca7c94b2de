//! Writes that are decided on cached or assumed rows: an assumption that does not hold changes nothing, and the batch is
//! decided again.
#![allow(clippy::restriction, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use tidelock_core::id::{DocVersion, EventType, Owner, QueueName, StreamVersion};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    ApplyError, Batch, Claim, Expect, Grant, NewEvent, NewWork, Receipt, Refusal, Store as _,
};
use tidelock_postgres::PostgresStore;
use tidelock_postgres::tokio_postgres::Client;

struct Env {
    schema: String,
    store: PostgresStore,
    other: Client,
    grant: Grant,
}

fn journal() -> Key {
    Key::single("journal").unwrap()
}

/// Opens a store with a claimed row and a journal with one event, both cached.
async fn env() -> Env {
    let schema = common::fresh_schema();
    let store = PostgresStore::open(&common::address(&schema), common::options()).await.unwrap();
    let (row, queue) = (Key::single("run").unwrap(), QueueName::new("runs").unwrap());
    let first = Batch::new().append(&journal(), Expect::Absent, [event()]);
    store.apply(first.enqueue(NewWork::once(row.clone(), queue.clone()))).await.unwrap();
    let claim = Claim::named(&Owner::new("worker").unwrap(), &row, &queue, Duration::from_secs(600));
    let grant = store.claim(claim).await.unwrap().grants.remove(0);
    Env { schema, store, other: common::client().await, grant }
}

fn event() -> NewEvent {
    NewEvent::new(EventType::new("Done").unwrap(), Payload::null())
}

impl Env {
    async fn step(&self) -> Result<Receipt, ApplyError> {
        let guarded = Batch::new().guard_lease(&self.grant.lease());
        self.store.apply(guarded.append(&journal(), Expect::Any, [event()])).await
    }

    /// Changes the row as another process would, which this store does not notice.
    async fn change(&self, assignments: &str) {
        let sql = format!("UPDATE {}.work SET revision = revision + 1, {assignments}", self.schema);
        self.other.execute(&sql, &[]).await.unwrap();
    }

    /// Returns the head of the journal and its number of events.
    async fn head_and_events(&self) -> (i64, i64) {
        let sql =
            format!("SELECT (SELECT head FROM {0}.streams), (SELECT count(*) FROM {0}.events)", self.schema);
        let row = self.other.query_one(&sql, &[]).await.unwrap();
        (row.get(0), row.get(1))
    }
}

#[tokio::test]
async fn k3_steps_under_a_guard_append_one_event_each() {
    let env = env().await;
    for version in 1..=3 {
        let receipt = env.step().await.unwrap();
        assert_eq!(receipt.appended[0].first_version, StreamVersion(version));
    }
    assert_eq!(env.head_and_events().await, (3, 4));
    assert_eq!(env.store.stats().stale, 0);
}

#[tokio::test]
async fn k3_a_step_whose_row_was_changed_is_decided_again() {
    let env = env().await;
    env.step().await.unwrap();
    env.change("attempts = attempts + 1").await;
    env.step().await.unwrap();
    assert_eq!(env.head_and_events().await, (2, 3));
    assert_eq!(env.store.stats().stale, 1);
}

#[tokio::test]
async fn k3_a_step_under_a_lease_that_was_taken_over_changes_nothing() {
    let env = env().await;
    env.step().await.unwrap();
    env.change("lease_owner = 'rival', lease_fence = lease_fence + 1").await;
    let error = env.step().await.unwrap_err();
    let fenced =
        matches!(&error, ApplyError::Refused(refusal) if matches!(**refusal, Refusal::Fenced { .. }));
    assert!(fenced, "{error:?}");
    assert_eq!(env.head_and_events().await, (1, 2));
}

#[tokio::test]
async fn k3_a_step_beside_a_row_that_is_gone_changes_nothing() {
    let env = env().await;
    env.other.execute(&format!("DELETE FROM {}.work", env.schema), &[]).await.unwrap();
    assert!(env.step().await.is_err());
    assert_eq!(env.head_and_events().await, (0, 1));
}

fn numbered(kind: &str, n: i64) -> Key {
    Key::new(kind, [n]).unwrap()
}

fn new_rows(n: i64) -> Batch {
    let stream = Batch::new().append(&numbered("fresh", n), Expect::Any, [event()]);
    stream.put(&numbered("fresh", n), Expect::Any, Payload::null())
}

#[tokio::test]
async fn t1_rows_of_a_kind_that_was_new_are_assumed_to_be_new() {
    let env = env().await;
    for n in 0..3 {
        let receipt = env.store.apply(new_rows(n)).await.unwrap();
        assert_eq!(receipt.appended[0].first_version, StreamVersion(0));
        assert_eq!(receipt.documents[0].version, DocVersion(1));
    }
    assert_eq!(env.store.stats().stale, 0);
}

#[tokio::test]
async fn t1_a_row_that_is_wrongly_assumed_to_be_new_continues_its_versions() {
    let env = env().await;
    env.store.apply(new_rows(0)).await.unwrap();
    let rival = PostgresStore::open(&common::address(&env.schema), common::options()).await.unwrap();
    rival.apply(new_rows(1)).await.unwrap();
    let receipt = env.store.apply(new_rows(1)).await.unwrap();
    assert_eq!(receipt.appended[0].first_version, StreamVersion(1));
    assert_eq!(receipt.documents[0].version, DocVersion(2));
    assert_eq!(env.store.stats().stale, 1);
    // The kind has existing rows now, so the next one is read first.
    rival.apply(new_rows(2)).await.unwrap();
    assert_eq!(env.store.apply(new_rows(2)).await.unwrap().appended[0].first_version, StreamVersion(1));
    assert_eq!(env.store.stats().stale, 1);
}
