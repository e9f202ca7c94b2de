//! Unreadable rows: only the batch or claim that needs one fails.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::Postgres;
use tidelock_core::error::{Explain as _, Outcome};
use tidelock_core::id::{EventType, OpId, Owner};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    Batch, Claim, Delta, Expect, NewEvent, NewWork, Operation, Selection, Store as _, StoreErrorKind,
};
use tidelock_postgres::PostgresStore;
use tidelock_postgres::tokio_postgres::Client;
use tokio::task::JoinSet;

const TTL: Duration = Duration::from_secs(60);

struct Site {
    store: PostgresStore,
    mine: Client,
    schema: String,
    _backend: Postgres,
}

impl Site {
    async fn open() -> Self {
        let backend = Postgres::default();
        let schema = backend.schema();
        let store = common::open(&common::address(&schema), None).await;
        Self { store, mine: common::client().await, schema, _backend: backend }
    }

    /// Opens a store with three jobs, the first of which is damaged. Another store created them, so this one caches
    /// nothing.
    async fn with_damaged_job(damage: &str) -> Self {
        let site = Self::open().await;
        let other = common::open(&common::address(&site.schema), None).await;
        for name in ["bad", "good", "better"] {
            other.apply(Batch::new().enqueue(job(name))).await.unwrap();
        }
        site.damage(&format!("UPDATE work SET {damage} WHERE key = '{}'", key("bad").canonical())).await;
        site
    }

    async fn damage(&self, sql: &str) {
        let sql = format!("SET search_path = {}; {sql}", self.schema);
        self.mine.batch_execute(&sql).await.unwrap();
    }

    async fn claim(&self, limit: usize) -> Vec<Key> {
        let claim = Claim::queues(&owner(), ["jobs".parse().unwrap()], limit, TTL);
        let claimed = self.store.claim(claim).await.unwrap();
        claimed.grants.into_iter().map(|grant| grant.row.key).collect()
    }
}

fn key(name: &str) -> Key {
    Key::new("job", [name]).unwrap()
}

fn owner() -> Owner {
    Owner::new("worker").unwrap()
}

fn job(name: &str) -> NewWork {
    NewWork::once(key(name), "jobs".parse().unwrap())
}

fn put(n: i64) -> Batch {
    Batch::new().put(&Key::new("n", [n]).unwrap(), Expect::Any, Payload::of(&n).unwrap())
}

/// Possible damages of a work row in a table of this schema.
const DAMAGES: [&str; 3] = [
    "lease_owner = '', lease_fence = 1, leased_at = 1, lease_expires_at = 1",
    "attempts = -1",
    "priority = 300",
];

#[tokio::test]
async fn d6_a_claim_passes_over_an_unreadable_row_and_serves_the_others() {
    for damage in DAMAGES {
        let site = Site::with_damaged_job(damage).await;
        assert_eq!(site.claim(1).await, [key("good")], "{damage}");
        assert_eq!(site.claim(5).await, [key("better")], "{damage}");
        assert_eq!(site.claim(5).await, [], "{damage}");
        let named = site.store.claim(Claim::existing(&owner(), &key("bad"), TTL)).await.unwrap_err();
        assert_eq!(named.kind, StoreErrorKind::Corrupt, "{damage}: {named}");
        // After an operator repairs the row, it is served like any other.
        site.damage("UPDATE work SET lease_owner = NULL, attempts = 0, priority = 5 WHERE lease_owner IS NULL OR lease_owner = ''").await;
        assert_eq!(site.claim(5).await, [key("bad")], "{damage}");
    }
}

/// A worker polls a queue with a damaged row while others write, claim by name and claim other queues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d6_a_polled_unreadable_row_fails_no_neighbour() {
    let site = Site::with_damaged_job(DAMAGES[0]).await;
    let mut tasks = JoinSet::new();
    for n in 0..100 {
        let store = site.store.clone();
        tasks.spawn(async move { store.apply(put(n)).await.map(drop).map_err(|e| e.to_string()) });
        for queue in ["jobs", "others"] {
            let (store, queue) = (site.store.clone(), queue.parse().unwrap());
            let claim = Claim::queues(&owner(), [queue], 1, TTL);
            tasks.spawn(async move { store.claim(claim).await.map(drop).map_err(|e| e.to_string()) });
        }
        let lock = Key::new("lock", [n]).unwrap();
        let (store, claim) =
            (site.store.clone(), Claim::named(&owner(), &lock, &"locks".parse().unwrap(), TTL));
        tasks.spawn(async move { store.claim(claim).await.map(drop).map_err(|e| e.to_string()) });
        let (store, claim) = (site.store.clone(), Claim::existing(&owner(), &key("bad"), TTL));
        // This one needs the row, and fails alone.
        tasks.spawn(
            async move { store.claim(claim).await.map(drop).map_or(Ok(()), |()| Err("granted".into())) },
        );
    }
    for ended in tasks.join_all().await {
        ended.unwrap();
    }
}

/// A batch that needs an unreadable row fails, and reports that nothing was applied. Its neighbours are applied.
#[tokio::test]
async fn d6_a_batch_that_needs_an_unreadable_row_fails_alone() {
    let site = Site::with_damaged_job(DAMAGES[1]).await;
    let (id, doc) = (OpId::new(), Key::single("doc").unwrap());
    let merge = || Batch::new().merge_or_create(&doc, Payload::of(&0).unwrap(), [Delta::inc("", 1)]);
    site.store.apply(merge().op_id(id)).await.unwrap();
    site.damage("UPDATE receipts SET receipt = '{'").await;
    let operate = || Batch::new().operate(Selection::Keys(vec![key("bad")]), Operation::RetryNow);
    let (first, second, third, last) = tokio::join!(
        site.store.apply(put(1)),
        site.store.apply(operate()),
        site.store.apply(merge().op_id(id)),
        site.store.apply(put(2))
    );
    let error = second.unwrap_err();
    assert_eq!((error.code().as_str(), error.outcome()), ("TL0304", Outcome::NotApplied), "{error}");
    let error = third.unwrap_err();
    assert_eq!((error.code().as_str(), error.outcome()), ("TL0304", Outcome::Unknown(Some(id))), "{error}");
    assert!(first.is_ok() && last.is_ok());
}

/// A row that follows a stream with an unreadable event does not block the other rows of its claim.
#[tokio::test]
async fn d6_a_row_with_unreadable_events_holds_up_no_other() {
    let site = Site::open().await;
    let stream = Key::single("orders").unwrap();
    let event = NewEvent::new(EventType::new("Placed").unwrap(), Payload::of(&1).unwrap());
    let follows = NewWork { follow: Some(stream.clone()), ..job("bad") };
    let batch = Batch::new().append(&stream, Expect::Absent, [event]).enqueue(follows);
    site.store.apply(batch.enqueue(job("good"))).await.unwrap();
    site.damage("UPDATE events SET type = ''").await;
    let claim = Claim::queues(&owner(), ["jobs".parse().unwrap()], 5, TTL).with_events(10);
    let claimed = site.store.claim(claim).await.unwrap();
    assert_eq!(claimed.grants.len(), 1, "{claimed:?}");
    assert_eq!(claimed.grants.first().map(|grant| grant.row.key.clone()), Some(key("good")));
}
