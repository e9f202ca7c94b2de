//! Batches inside the caller's own transaction: committed together with the caller's tables or not at all, at every
//! isolation level, and without a stale cache in the store.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::Postgres;
use tidelock_core::clock::Due;
use tidelock_core::error::{Explain as _, Outcome, Retry};
use tidelock_core::id::{DocVersion, EventId, EventType, OpId, StreamVersion};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    ApplyError, Batch, Claim, Delta, Expect, LogQuery, NewEvent, NewWork, Operation, Pattern, Receipt,
    Selection, Store as _, StreamQuery, WorkFilter,
};
use tidelock_postgres::PostgresStore;
use tidelock_postgres::tokio_postgres::{Client, IsolationLevel, Transaction};

/// The time limit for an event that must happen.
const LIMIT: Duration = Duration::from_secs(20);

/// A store, and a program with its own table in the same database.
struct Shop {
    store: PostgresStore,
    mine: Client,
    schema: String,
    address: String,
    _backend: Postgres,
}

impl Shop {
    async fn open() -> Self {
        let backend = Postgres::default();
        let schema = backend.schema();
        let address = common::address(&schema);
        let store = common::open(&address, None).await;
        let mine = common::client().await;
        mine.batch_execute(&format!("CREATE TABLE {schema}.invoices (total int)")).await.unwrap();
        Self { store, mine, schema, address, _backend: backend }
    }

    /// Opens another store on the same schema, as another process would.
    async fn another(&self) -> PostgresStore {
        common::open(&self.address, None).await
    }

    async fn begin(&mut self) -> Tx<'_> {
        Tx { tx: self.mine.transaction().await.unwrap(), store: &self.store, schema: &self.schema }
    }

    async fn begin_at(&mut self, level: IsolationLevel) -> Tx<'_> {
        let tx = self.mine.build_transaction().isolation_level(level).start().await.unwrap();
        Tx { tx, store: &self.store, schema: &self.schema }
    }

    async fn invoices(&self) -> i64 {
        let count = format!("SELECT count(*) FROM {}.invoices", self.schema);
        self.mine.query_one(&count, &[]).await.unwrap().get(0)
    }

    /// Returns the versions of the stream, in order.
    async fn sales(&self) -> Vec<u64> {
        let page = self.store.read_stream(StreamQuery::forward(&sales(), 99)).await.unwrap();
        page.events.iter().map(|event| event.version.0).collect()
    }
}

/// The caller's transaction.
struct Tx<'a> {
    tx: Transaction<'a>,
    store: &'a PostgresStore,
    schema: &'a str,
}

impl Tx<'_> {
    async fn invoice(&self) {
        self.tx.execute(&format!("INSERT INTO {}.invoices VALUES (1)", self.schema), &[]).await.unwrap();
    }

    async fn apply(&mut self, batch: &Batch) -> Result<Receipt, ApplyError> {
        self.store.apply_in(&mut self.tx, batch).await
    }

    /// Takes the snapshot of a transaction above read committed.
    async fn take_snapshot(&self) {
        self.tx.query(&format!("SELECT * FROM {}.invoices", self.schema), &[]).await.unwrap();
    }

    async fn commit(self) {
        self.tx.commit().await.unwrap();
    }

    async fn rollback(self) {
        self.tx.rollback().await.unwrap();
    }
}

fn sales() -> Key {
    Key::single("sales").unwrap()
}

fn key(name: &str) -> Key {
    Key::single(name).unwrap()
}

fn sold(n: u64) -> NewEvent {
    NewEvent::new(EventType::new("Sold").unwrap(), Payload::of(&n).unwrap())
}

fn append(expect: Expect<StreamVersion>) -> Batch {
    Batch::new().append(&sales(), expect, [sold(1)])
}

fn at(version: u64) -> Expect<StreamVersion> {
    Expect::Exact(StreamVersion(version))
}

fn code(error: &ApplyError) -> String {
    error.code().to_string()
}

fn version(receipt: &Receipt) -> u64 {
    receipt.appended.first().unwrap().last_version.0
}

/// Waits until the server reports this number of waiters for the transaction of a connection.
async fn blocked_by(client: &Client, pid: i32, at_least: i64) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";
    let start = Instant::now();
    while client.query_one(waiting, &[&pid]).await.unwrap().get::<_, i64>(0) < at_least {
        assert!(start.elapsed() < LIMIT, "no session waits for the transaction");
        tokio::task::yield_now().await;
    }
}

async fn pid_of(client: &Client) -> i32 {
    client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn both_commit_or_neither_does() {
    let mut shop = Shop::open().await;
    for commit in [false, true] {
        let mut tx = shop.begin().await;
        tx.invoice().await;
        tx.apply(&append(Expect::Absent)).await.unwrap();
        tx.apply(&append(at(0))).await.unwrap();
        if commit {
            tx.commit().await;
        } else {
            tx.rollback().await;
        }
        let expected = if commit { (1, vec![0, 1]) } else { (0, vec![]) };
        assert_eq!((shop.invoices().await, shop.sales().await), expected);
    }
    // The store continues from there.
    shop.store.apply(append(at(1))).await.unwrap();
    assert_eq!(shop.sales().await, [0, 1, 2]);
}

#[tokio::test]
async fn a_refused_batch_leaves_the_transaction_as_it_was() {
    let mut shop = Shop::open().await;
    let mut tx = shop.begin().await;
    tx.invoice().await;
    let half = Batch::new().put(&key("d"), Expect::Absent, Payload::null()).and(append(at(5)));
    assert_eq!(code(&tx.apply(&half).await.unwrap_err()), "TL0201");
    tx.invoice().await;
    let receipt = tx.apply(&append(Expect::Absent)).await.unwrap();
    assert_eq!(version(&receipt), 0);
    tx.commit().await;
    assert_eq!(shop.invoices().await, 2);
    assert_eq!(shop.sales().await, [0]);
    assert!(shop.store.document(&key("d")).await.unwrap().is_none());
}

#[tokio::test]
async fn batches_of_one_transaction_are_visible_only_to_each_other() {
    let mut shop = Shop::open().await;
    let mut tx = shop.begin().await;
    let put = Batch::new().put(&key("d"), Expect::Absent, Payload::of(&1).unwrap());
    tx.apply(&put.and(append(Expect::Absent))).await.unwrap();
    let inc = Batch::new().merge(&key("d"), [Delta::inc("", 2)]).guard_stream(&sales(), at(0));
    let merged = tx.apply(&inc).await.unwrap();
    assert_eq!(merged.documents.first().unwrap().version, DocVersion(2));
    assert_eq!(merged.documents.first().unwrap().value, Some(Payload::of(&3).unwrap()));
    let again = Batch::new().put(&key("d"), Expect::Absent, Payload::null());
    assert_eq!(code(&tx.apply(&again).await.unwrap_err()), "TL0202");
    let job = NewWork::once(key("job"), "queue".parse().unwrap());
    tx.apply(&Batch::new().enqueue(job.clone())).await.unwrap();
    assert_eq!(code(&tx.apply(&Batch::new().enqueue(job.only_new())).await.unwrap_err()), "TL0203");
    assert!(tx.store.document(&key("d")).await.unwrap().is_none());
    assert!(tx.store.work(&key("job")).await.unwrap().is_none());
    tx.commit().await;
    let document = shop.store.document(&key("d")).await.unwrap().unwrap();
    assert_eq!((document.version, document.value), (DocVersion(2), Payload::of(&3).unwrap()));
    assert!(shop.store.work(&key("job")).await.unwrap().is_some());
}

#[tokio::test]
async fn the_callers_savepoint_takes_its_batches_back() {
    let mut shop = Shop::open().await;
    let store = shop.store.clone();
    let mut tx = shop.begin().await;
    tx.apply(&append(Expect::Absent)).await.unwrap();
    for (keep, heads) in [(false, 1), (true, 1), (false, 2)] {
        let mut savepoint = tx.tx.transaction().await.unwrap();
        let receipt = store.apply_in(&mut savepoint, &append(at(heads - 1))).await.unwrap();
        assert_eq!(version(&receipt), heads);
        let ended = if keep { savepoint.commit().await } else { savepoint.rollback().await };
        ended.unwrap();
    }
    tx.apply(&append(at(1))).await.unwrap();
    tx.commit().await;
    assert_eq!(shop.sales().await, [0, 1, 2]);
    let log = shop.store.read_log(LogQuery::all(9)).await.unwrap().events;
    assert!(log.windows(2).all(|pair| matches!(pair, [a, b] if a.position < b.position)), "{log:?}");
    assert_eq!(log.len(), 3);
}

#[tokio::test]
async fn an_operation_is_applied_once_inside_and_outside() {
    let mut shop = Shop::open().await;
    let (id, later) = (OpId::new(), OpId::new());
    let batch = append(Expect::Any).op_id(id);
    let mut tx = shop.begin().await;
    tx.apply(&batch).await.unwrap();
    tx.rollback().await;
    assert_eq!(shop.store.operation(id).await.unwrap(), None);

    let mut tx = shop.begin().await;
    let first = tx.apply(&batch).await.unwrap();
    let second = tx.apply(&batch).await.unwrap();
    tx.commit().await;
    assert!(!first.repeated && second.repeated);
    let third = shop.store.apply(batch.clone()).await.unwrap();
    let asked = shop.store.operation(id).await.unwrap().unwrap();
    for receipt in [&second, &third, &asked] {
        assert_eq!((receipt.repeated, &receipt.appended, receipt.at), (true, &first.appended, first.at));
    }

    let outside = shop.store.apply(append(Expect::Any).op_id(later)).await.unwrap();
    let mut tx = shop.begin().await;
    let inside = tx.apply(&append(Expect::Absent).op_id(later)).await.unwrap();
    tx.commit().await;
    assert_eq!((inside.repeated, inside.appended), (true, outside.appended));
    assert_eq!(shop.sales().await, [0, 1]);
}

#[tokio::test]
async fn events_that_are_there_already_are_recognised() {
    let mut shop = Shop::open().await;
    let event = sold(1).with_id(EventId::new());
    let batch = Batch::new().append(&sales(), Expect::Absent, [event.clone()]);
    let outside = shop.store.apply(batch.clone()).await.unwrap();
    let mut tx = shop.begin().await;
    let inside = tx.apply(&batch).await.unwrap();
    assert_eq!((inside.repeated, &inside.appended), (true, &outside.appended));
    let other = Batch::new().append(&sales(), Expect::Any, [sold(2).with_id(event.id)]);
    assert_eq!(code(&tx.apply(&other).await.unwrap_err()), "TL0208");
    let fresh = sold(3);
    let new = Batch::new().append(&sales(), at(0), [fresh.clone()]);
    let first = tx.apply(&new).await.unwrap();
    let second = tx.apply(&new).await.unwrap();
    assert_eq!((second.repeated, &second.appended), (true, &first.appended));
    tx.commit().await;
    let third = shop.store.apply(new).await.unwrap();
    assert_eq!((third.repeated, third.appended), (true, first.appended));
    assert_eq!(shop.sales().await, [0, 1]);
}

#[tokio::test]
async fn the_stores_own_batches_wait_for_the_transaction_and_then_count_on() {
    for commit in [true, false] {
        let mut shop = Shop::open().await;
        let (other, watcher, pid) = (shop.another().await, common::client().await, pid_of(&shop.mine).await);
        let store = shop.store.clone();
        let mut tx = shop.begin().await;
        tx.apply(&append(Expect::Absent)).await.unwrap();
        let absent = tokio::spawn(async move { store.apply(append(Expect::Absent)).await });
        blocked_by(&watcher, pid, 1).await;
        let any = tokio::spawn(async move { other.apply(append(Expect::Any)).await });
        blocked_by(&watcher, pid, 2).await;
        if commit {
            tx.commit().await;
        } else {
            tx.rollback().await;
        }
        let (absent, any) = (absent.await.unwrap(), any.await.unwrap().unwrap());
        if commit {
            assert_eq!(code(&absent.unwrap_err()), "TL0201");
            assert_eq!(version(&any), 1);
            assert_eq!(shop.sales().await, [0, 1]);
        } else {
            // Either of the two may come first.
            match absent {
                Ok(receipt) => assert_eq!((version(&receipt), version(&any)), (0, 1)),
                Err(error) => assert_eq!((code(&error), version(&any)), ("TL0201".to_owned(), 0)),
            }
            let sales = shop.sales().await;
            assert_eq!(sales, (0..sales.len() as u64).collect::<Vec<_>>());
        }
    }
}

#[tokio::test]
async fn every_isolation_level_works() {
    for level in [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable]
    {
        let mut shop = Shop::open().await;
        shop.store.apply(append(Expect::Absent)).await.unwrap();
        let mut tx = shop.begin_at(level).await;
        tx.invoice().await;
        let more = append(at(0)).merge_or_create(&key("d"), Payload::of(&1).unwrap(), [Delta::inc("", 1)]);
        let job = NewWork::once(key("job"), "queue".parse().unwrap());
        tx.apply(&more.enqueue(job).op_id(OpId::new())).await.unwrap();
        assert_eq!(code(&tx.apply(&append(Expect::Absent)).await.unwrap_err()), "TL0201");
        assert_eq!(version(&tx.apply(&append(Expect::Any)).await.unwrap()), 2);
        tx.commit().await;
        assert_eq!((shop.invoices().await, shop.sales().await), (1, vec![0, 1, 2]));
        assert!(shop.store.document(&key("d")).await.unwrap().is_some());
        assert!(shop.store.work(&key("job")).await.unwrap().is_some());
    }
}

/// Checks that a conflict is reported, applies nothing, and succeeds when the caller repeats the transaction.
async fn must_be_repeated(level: IsolationLevel, before: Batch, between: Batch, mine: Batch) {
    let mut shop = Shop::open().await;
    let other = shop.another().await;
    other.apply(before).await.unwrap();
    let mut tx = shop.begin_at(level).await;
    tx.take_snapshot().await;
    tx.invoice().await;
    other.apply(between).await.unwrap();
    let error = tx.apply(&mine).await.unwrap_err();
    assert!(error.refusal().is_none(), "{level:?} {mine:?}: {error}");
    assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
    assert_eq!(code(&error), "TL0312", "{level:?} {mine:?}: {error}");
    assert_ne!(error.retry(), Retry::Never, "{error}");
    tx.rollback().await;
    assert_eq!(shop.invoices().await, 0);
    let mut tx = shop.begin_at(level).await;
    tx.take_snapshot().await;
    tx.invoice().await;
    tx.apply(&mine).await.unwrap();
    tx.commit().await;
    assert_eq!(shop.invoices().await, 1);
    let sales = shop.sales().await;
    assert_eq!(sales, (0..sales.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_conflict_of_isolation_is_an_error_that_says_try_again() {
    let put = |n: i32| Batch::new().put(&key("d"), Expect::Any, Payload::of(&n).unwrap());
    let job = |queue: &str| Batch::new().enqueue(NewWork::once(key("job"), queue.parse().unwrap()));
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        // Rows that were changed since the snapshot.
        let any = || append(Expect::Any);
        must_be_repeated(level, any(), any(), any()).await;
        must_be_repeated(level, put(1), put(2), put(3)).await;
        must_be_repeated(level, job("a"), job("b"), job("c")).await;
        // Rows that were created since the snapshot.
        must_be_repeated(level, Batch::new(), any(), any()).await;
        must_be_repeated(level, Batch::new(), put(1), put(2)).await;
        must_be_repeated(level, Batch::new(), job("a"), job("b")).await;
    }
}

/// Two transactions that each read what the other writes: the server rolls one back, including its batch.
#[tokio::test]
async fn serializable_transactions_that_contradict_each_other_do_not_both_commit() {
    let mut shop = Shop::open().await;
    let (store, schema) = (shop.store.clone(), shop.schema.clone());
    let mut their_client = common::client().await;
    let level = IsolationLevel::Serializable;
    let mut mine = shop.begin_at(level).await;
    let theirs = their_client.build_transaction().isolation_level(level).start().await.unwrap();
    let mut theirs = Tx { tx: theirs, store: &store, schema: &schema };
    for tx in [&mine, &theirs] {
        tx.take_snapshot().await;
        tx.invoice().await;
    }
    let batch = |name: &str| Batch::new().append(&key(name), Expect::Absent, [sold(1)]);
    let first = mine.apply(&batch("mine")).await;
    let second = theirs.apply(&batch("theirs")).await;
    let mut committed = 0;
    for (tx, applied) in [(mine, first), (theirs, second)] {
        let ended = tx.tx.commit().await;
        committed += i64::from(applied.is_ok() && ended.is_ok());
    }
    assert_eq!(committed, 1);
    assert_eq!(shop.invoices().await, 1);
    assert_eq!(shop.store.read_log(LogQuery::all(9)).await.unwrap().events.len(), 1);
}

#[tokio::test]
async fn the_store_does_not_go_by_what_it_remembered_before_the_commit() {
    let mut shop = Shop::open().await;
    let put = |expect, n: i32| Batch::new().put(&key("d"), expect, Payload::of(&n).unwrap());
    let exact = |v| Expect::Exact(DocVersion(v));
    shop.store.apply(append(Expect::Absent).and(put(Expect::Absent, 1))).await.unwrap();
    // Twice, so that the store decides on cached rows.
    shop.store.apply(append(at(0)).and(put(exact(1), 2))).await.unwrap();
    let mut tx = shop.begin().await;
    tx.apply(&append(at(1)).and(put(exact(2), 10))).await.unwrap();
    tx.commit().await;
    let inc = append(Expect::Any).merge(&key("d"), [Delta::inc("", 5)]);
    let receipt = shop.store.apply(inc).await.unwrap();
    assert_eq!(version(&receipt), 3);
    assert_eq!(receipt.documents.first().unwrap().value, Some(Payload::of(&15).unwrap()));

    let mut tx = shop.begin().await;
    tx.apply(&append(at(3)).and(put(exact(4), 20))).await.unwrap();
    tx.commit().await;
    let receipt = shop.store.apply(append(at(4)).and(put(exact(5), 21))).await.unwrap();
    assert_eq!((version(&receipt), receipt.documents.first().unwrap().version), (5, DocVersion(6)));

    // A rolled-back write was never there.
    let mut tx = shop.begin().await;
    tx.apply(&append(at(5)).and(put(exact(6), 30))).await.unwrap();
    tx.rollback().await;
    assert_eq!(code(&shop.store.apply(append(at(6))).await.unwrap_err()), "TL0201");
    let receipt = shop.store.apply(append(at(5)).and(put(exact(6), 22))).await.unwrap();
    assert_eq!(version(&receipt), 6);
    assert_eq!(shop.sales().await, [0, 1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn work_is_finished_together_with_its_result() {
    let mut shop = Shop::open().await;
    let queue: tidelock_core::id::QueueName = "queue".parse().unwrap();
    let owner = "worker".parse().unwrap();
    shop.store.apply(Batch::new().enqueue(NewWork::once(key("job"), queue.clone()))).await.unwrap();
    let claimed = shop.store.claim(Claim::queues(&owner, [queue], 1, LIMIT)).await.unwrap();
    let lease = claimed.grants.first().unwrap().lease();
    for commit in [false, true] {
        let mut tx = shop.begin().await;
        tx.invoice().await;
        tx.apply(&Batch::new().ack(&lease)).await.unwrap();
        if commit {
            tx.commit().await;
        } else {
            tx.rollback().await;
        }
        assert_eq!(shop.store.work(&key("job")).await.unwrap().is_none(), commit);
        assert_eq!(shop.invoices().await, i64::from(commit));
    }
    // The lease has ended, inside the transaction and outside.
    let mut tx = shop.begin().await;
    assert_eq!(code(&tx.apply(&Batch::new().ack(&lease)).await.unwrap_err()), "TL0204");
    tx.commit().await;
    let late = Batch::new().defer(&lease, Due::Now);
    assert_eq!(code(&shop.store.apply(late).await.unwrap_err()), "TL0204");
}

#[tokio::test]
async fn filters_work_there_too() {
    let mut shop = Shop::open().await;
    let row = NewWork::once(key("w"), "queue".parse().unwrap());
    shop.store.apply(Batch::new().enqueue(row)).await.unwrap();
    let all = WorkFilter { pattern: Some(Pattern::new("^w").unwrap()), ..WorkFilter::default() };
    let mut tx = shop.begin().await;
    let remove = Batch::new().operate(Selection::Filter(all), Operation::Remove);
    assert_eq!(tx.apply(&remove).await.unwrap().operated, [1]);
    tx.commit().await;
    assert!(shop.store.work(&key("w")).await.unwrap().is_none());
}

#[tokio::test]
async fn readers_of_the_log_wait_for_an_open_transaction_and_can_see_whose_it_is() {
    let mut shop = Shop::open().await;
    let (store, pid) = (shop.store.clone(), pid_of(&shop.mine).await);
    let before = store.apply(append(Expect::Absent)).await.unwrap().last_position().unwrap();
    let mut tx = shop.begin().await;
    let inside = tx.apply(&Batch::new().append(&key("mine"), Expect::Absent, [sold(1)])).await.unwrap();
    // A later event of another stream is written at once, and becomes visible after the events before it.
    store.apply(append(at(0))).await.unwrap();
    assert_eq!(store.read_log(LogQuery::all(9)).await.unwrap().events.len(), 1);
    assert_eq!(store.read_stream(StreamQuery::forward(&sales(), 9)).await.unwrap().events.len(), 2);
    let stalls = store.stalls().await.unwrap();
    let stall = stalls.first().unwrap();
    assert_eq!((stalls.len(), stall.pid, stall.floor), (1, pid, before));
    assert_eq!(stall.state, "idle in transaction");
    tx.commit().await;
    let log = store.read_log(LogQuery::all(9)).await.unwrap().events;
    assert_eq!(log.len(), 3);
    assert_eq!(log.get(1).unwrap().position, inside.last_position().unwrap());
    assert_eq!(store.stalls().await.unwrap(), []);
}

#[tokio::test]
async fn a_hint_wakes_those_who_wait_elsewhere() {
    let mut shop = Shop::open().await;
    let other = shop.another().await;
    // Stores that discover each other wake each other once or twice, but not every time.
    for version in 0..10 {
        let mut watch = other.watch();
        let mut tx = shop.begin().await;
        tx.apply(&append(Expect::Any)).await.unwrap();
        tx.commit().await;
        shop.store.hint();
        assert!(tokio::time::timeout(LIMIT, watch.changed()).await.unwrap());
        let head = other.stream(&sales()).await.unwrap().unwrap().head;
        assert_eq!(head, Some(StreamVersion(version)));
    }
}

/// After a failed statement the server accepts no other one, and only a new transaction helps.
#[tokio::test]
async fn an_aborted_transaction_must_be_repeated() {
    let mut shop = Shop::open().await;
    let mut tx = shop.begin().await;
    tx.tx.batch_execute("SELECT 1 / 0").await.unwrap_err();
    let batch = Batch::new().put(&sales(), Expect::Any, Payload::null());
    let error = tx.store.apply_in(&mut tx.tx, &batch).await.unwrap_err();
    assert_eq!(error.code().to_string(), "TL0312");
}
