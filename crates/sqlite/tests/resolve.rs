//! Resolving an operation while another connection holds the write lock: resolve waits, and never guesses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::Duration;

use tidelock_core::error::Explain as _;
use tidelock_core::id::OpId;
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{Batch, Delta, Refusal, Resolution, Store as _, StoreErrorKind};
use tidelock_sqlite::rusqlite::{Connection, TransactionBehavior};
use tidelock_sqlite::{SqliteOptions, SqliteStore};

fn balance() -> Key {
    Key::single("balance").unwrap()
}

fn deposit(id: OpId) -> Batch {
    let none = Payload::of(&0).unwrap();
    Batch::new().merge_or_create(&balance(), none, [Delta::inc("", 1)]).op_id(id)
}

async fn open(path: &Path, busy_timeout: Duration) -> SqliteStore {
    let options = SqliteOptions { shared: true, busy_timeout, ..SqliteOptions::default() };
    SqliteStore::open(path, options).await.unwrap()
}

/// The batch is in a transaction of another connection. `commit` says how it ends while the resolve waits.
async fn resolved_while_open(commit: bool) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let store = open(&path, Duration::from_secs(60)).await;
    let id = OpId::new();
    let mut mine = Connection::open(&path).unwrap();
    let tx = mine.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let first = store.apply_in(&tx, &deposit(id)).unwrap();
    let mut resolving = Box::pin(store.resolve(id));
    // The writer has the request, and cannot reply while the lock is held.
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut resolving).await.is_err());
    assert_eq!(store.operation(id).await.unwrap(), None, "not recorded yet is no answer");
    if commit {
        tx.commit().unwrap();
        assert_eq!(resolving.await.unwrap(), Resolution::Applied(first.into_repeated()));
    } else {
        tx.rollback().unwrap();
        assert_eq!(resolving.await.unwrap(), Resolution::NotApplied);
        let tx = mine.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let refused = store.apply_in(&tx, &deposit(id)).unwrap_err();
        assert_eq!(refused.refusal(), Some(&Refusal::OperationVoid { id }));
    }
    let value = store.document(&balance()).await.unwrap().map(|document| document.value);
    assert_eq!(value, commit.then(|| Payload::of(&1).unwrap()));
}

#[tokio::test]
async fn d4_resolve_waits_for_a_transaction_that_commits() {
    resolved_while_open(true).await;
}

#[tokio::test]
async fn d4_resolve_waits_for_a_transaction_that_is_rolled_back() {
    resolved_while_open(false).await;
}

/// The busy timeout bounds the wait. Afterwards the next call returns the outcome.
#[tokio::test]
async fn d4_resolve_gives_up_after_the_busy_timeout() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let store = open(&path, Duration::from_millis(50)).await;
    let id = OpId::new();
    let mut mine = Connection::open(&path).unwrap();
    let tx = mine.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    store.apply_in(&tx, &deposit(id)).unwrap();
    let error = store.resolve(id).await.unwrap_err();
    assert_eq!((error.kind, error.code().as_str()), (StoreErrorKind::Busy, "TL0301"), "{error}");
    tx.commit().unwrap();
    assert!(matches!(store.resolve(id).await.unwrap(), Resolution::Applied(_)));
}

/// Increments of a large document leave small records: the stored receipts hold no values.
#[tokio::test]
async fn t9_a_thousand_receipts_of_a_large_document_stay_small() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let store = open(&path, Duration::from_secs(10)).await;
    let large = Payload::of(&serde_json::json!({ "n": 0, "text": "x".repeat(100_000) })).unwrap();
    store.apply(Batch::new().put(&balance(), tidelock_core::store::Expect::Absent, large)).await.unwrap();
    for _ in 0..1_000 {
        let batch = Batch::new().merge(&balance(), [Delta::inc("/n", 1)]).op_id(OpId::new());
        store.apply(batch).await.unwrap();
    }
    let mine = Connection::open(&path).unwrap();
    let sql = "SELECT count(*), sum(length(receipt)) FROM tidelock_receipts";
    let (records, bytes): (i64, i64) = mine.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(records, 1_000);
    assert!(bytes < 1_000_000, "{bytes} bytes of receipts");
}
