//! Resolving an operation while its batch is in flight: resolve waits for the batch or prevents it, and never guesses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::Postgres;
use tidelock_core::error::{Explain as _, Outcome};
use tidelock_core::id::OpId;
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{ApplyError, Batch, Delta, Refusal, Resolution, Store as _, StoreErrorKind};
use tidelock_postgres::tokio_postgres::Client;
use tidelock_postgres::{PostgresOptions, PostgresStore};

/// A store, another one on the same schema, and a connection for transactions of the test.
struct Site {
    store: PostgresStore,
    other: PostgresStore,
    mine: Client,
    _backend: Postgres,
}

impl Site {
    async fn open(patience: Duration) -> Self {
        let backend = Postgres::default();
        let address = common::address(&backend.schema());
        let store = common::open(&address, None).await;
        let other =
            PostgresStore::open(&address, PostgresOptions { patience, ..common::options() }).await.unwrap();
        Self { store, other, mine: common::client().await, _backend: backend }
    }

    async fn balance(&self) -> Option<Payload> {
        self.store.document(&balance()).await.unwrap().map(|document| document.value)
    }
}

fn balance() -> Key {
    Key::single("balance").unwrap()
}

fn deposit(id: OpId) -> Batch {
    let none = Payload::of(&0).unwrap();
    Batch::new().merge_or_create(&balance(), none, [Delta::inc("", 1)]).op_id(id)
}

/// Waits until a resolve waits in the server for another transaction.
async fn waits_in_the_server(watcher: &Client) {
    let sql =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%.resolve(%'";
    while watcher.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
}

/// The batch is in a transaction that has not ended. `commit` says how it ends while the resolve waits.
async fn resolved_while_open(commit: bool) {
    let mut site = Site::open(Duration::from_secs(60)).await;
    let (id, watcher) = (OpId::new(), common::client().await);
    let mut tx = site.mine.transaction().await.unwrap();
    let first = site.store.apply_in(&mut tx, &deposit(id)).await.unwrap();
    let other = site.other.clone();
    let resolving = tokio::spawn(async move { other.resolve(id).await.unwrap() });
    waits_in_the_server(&watcher).await;
    assert_eq!(site.other.operation(id).await.unwrap(), None, "not recorded yet is no answer");
    assert!(!resolving.is_finished(), "it waits");
    if commit {
        tx.commit().await.unwrap();
        assert_eq!(resolving.await.unwrap(), Resolution::Applied(first.into_repeated()));
        assert_eq!(site.balance().await, Some(Payload::of(&1).unwrap()));
    } else {
        tx.rollback().await.unwrap();
        assert_eq!(resolving.await.unwrap(), Resolution::NotApplied);
        let refused = site.store.apply(deposit(id)).await.unwrap_err();
        assert_eq!(refused.refusal(), Some(&Refusal::OperationVoid { id }));
        assert_eq!(site.balance().await, None);
    }
}

#[tokio::test]
async fn d4_resolve_waits_for_a_transaction_that_commits() {
    resolved_while_open(true).await;
}

#[tokio::test]
async fn d4_resolve_waits_for_a_transaction_that_is_rolled_back() {
    resolved_while_open(false).await;
}

/// The patience bounds the wait. Afterwards the outcome is as open as before, and the next call returns it.
#[tokio::test]
async fn d4_resolve_gives_up_after_patience() {
    let mut site = Site::open(Duration::from_millis(300)).await;
    let id = OpId::new();
    let mut tx = site.mine.transaction().await.unwrap();
    site.store.apply_in(&mut tx, &deposit(id)).await.unwrap();
    let error = site.other.resolve(id).await.unwrap_err();
    assert_eq!((error.kind, error.code().as_str()), (StoreErrorKind::Busy, "TL0301"), "{error}");
    assert!(error.to_string().contains(&id.to_string()), "{error}");
    tx.commit().await.unwrap();
    assert!(matches!(site.other.resolve(id).await.unwrap(), Resolution::Applied(_)));
}

/// A batch whose row is locked is sent and waits in the server. A concurrent resolve makes its id void, so it never
/// applies.
#[tokio::test]
async fn d4_a_batch_that_waits_for_a_row_is_made_impossible() {
    let mut site = Site::open(Duration::from_secs(60)).await;
    site.store.apply(deposit(OpId::new())).await.unwrap();
    let mut tx = site.mine.transaction().await.unwrap();
    site.store.apply_in(&mut tx, &deposit(OpId::new())).await.unwrap();
    let id = OpId::new();
    let (store, watcher) = (site.other.clone(), common::client().await);
    let sent = tokio::spawn(async move { store.apply(deposit(id)).await });
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
        AND query NOT LIKE '%.resolve(%' AND query LIKE '%documents(%'";
    while watcher.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(site.store.resolve(id).await.unwrap(), Resolution::NotApplied);
    tx.commit().await.unwrap();
    let refused = sent.await.unwrap().unwrap_err();
    assert!(
        matches!(&refused, ApplyError::Refused(why) if **why == Refusal::OperationVoid { id }),
        "{refused}"
    );
    assert_eq!(refused.outcome(), Outcome::NotApplied);
    assert_eq!(site.balance().await, Some(Payload::of(&2).unwrap()));
}
