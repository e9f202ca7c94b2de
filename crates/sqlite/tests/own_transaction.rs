//! Batches inside the caller's own transaction: committed together with the caller's tables, or not at all.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use tidelock_core::clock::{Clock, ManualClock, Timestamp};
use tidelock_core::error::Explain as _;
use tidelock_core::id::{EventType, StreamVersion};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    Batch, Expect, NewEvent, NewWork, Operation, Pattern, Selection, Store as _, StreamQuery, WorkFilter,
};
use tidelock_sqlite::rusqlite::{Connection, Transaction, TransactionBehavior};
use tidelock_sqlite::{SqliteOptions, SqliteStore};

struct Shop {
    store: SqliteStore,
    mine: Connection,
    _directory: tempfile::TempDir,
}

impl Shop {
    async fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shop.db");
        let options = SqliteOptions { shared: true, ..SqliteOptions::default() };
        let store = SqliteStore::open(&path, options).await.unwrap();
        let mine = Connection::open(&path).unwrap();
        mine.execute_batch("CREATE TABLE invoices (total INTEGER)").unwrap();
        Self { store, mine, _directory: directory }
    }

    fn begin(&mut self) -> Tx<'_> {
        let tx = self.mine.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        Tx { tx, store: &self.store }
    }

    fn invoices(&self) -> i64 {
        self.mine.query_row("SELECT count(*) FROM invoices", [], |row| row.get(0)).unwrap()
    }
}

/// The caller's transaction.
struct Tx<'a> {
    tx: Transaction<'a>,
    store: &'a SqliteStore,
}

impl Tx<'_> {
    fn invoice(&self) {
        self.tx.execute("INSERT INTO invoices VALUES (1)", []).unwrap();
    }

    fn apply(&self, batch: &Batch) -> Result<(), String> {
        self.store.apply_in(&self.tx, batch).map(drop).map_err(|e| e.code().to_string())
    }

    fn commit(self) {
        self.tx.commit().unwrap();
    }

    fn rollback(self) {
        self.tx.rollback().unwrap();
    }
}

fn append(n: u64) -> Batch {
    let event = NewEvent::new(EventType::new("Sold").unwrap(), Payload::of(&n).unwrap());
    let expect = n.checked_sub(1).map_or(Expect::Absent, |v| Expect::Exact(StreamVersion(v)));
    Batch::new().append(&Key::single("sales").unwrap(), expect, [event])
}

#[tokio::test]
async fn both_commit_or_neither_does() {
    let mut shop = Shop::open().await;
    for commit in [false, true] {
        let tx = shop.begin();
        tx.invoice();
        tx.apply(&append(0)).unwrap();
        tx.apply(&append(1)).unwrap();
        if commit {
            tx.commit()
        } else {
            tx.rollback()
        }
        let sales =
            shop.store.read_stream(StreamQuery::forward(&Key::single("sales").unwrap(), 9)).await.unwrap();
        let expected = if commit { (1, 2) } else { (0, 0) };
        assert_eq!((shop.invoices(), sales.events.len()), expected);
    }
    // The store continues from there.
    shop.store.apply(append(2)).await.unwrap();
}

/// The store's clock decides the time, and the time of the file never goes back.
#[tokio::test]
async fn the_time_is_that_of_the_store() {
    let mut shop = Shop::open().await;
    let written = shop.store.apply(append(0)).await.unwrap().at;
    let behind = Arc::new(ManualClock::new(Timestamp::from_micros(written.as_micros() - 60_000_000)));
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&behind);
    let options = SqliteOptions { clock, ..SqliteOptions::default() };
    let late = SqliteStore::open(shop.store.path(), options).await.unwrap();
    let tx = shop.begin();
    let at = late.apply_in(&tx.tx, &append(1)).unwrap().at;
    assert!(at >= written, "{at} is before {written}");
    behind.advance(Duration::from_hours(1));
    let later = late.apply_in(&tx.tx, &append(2)).unwrap().at;
    assert_eq!(later.since(at), Duration::from_hours(1), "it continues at the pace of the store's clock");
    tx.commit();
}

#[tokio::test]
async fn a_refused_batch_leaves_the_transaction_as_it_was() {
    let mut shop = Shop::open().await;
    let tx = shop.begin();
    tx.invoice();
    let half = Batch::new().put(&Key::single("d").unwrap(), Expect::Absent, Payload::null()).and(append(5));
    assert_eq!(tx.apply(&half), Err("TL0201".to_owned()));
    tx.apply(&append(0)).unwrap();
    tx.commit();
    assert_eq!(shop.invoices(), 1);
    assert!(shop.store.document(&Key::single("d").unwrap()).await.unwrap().is_none());
}

#[tokio::test]
async fn filters_work_there_too() {
    let mut shop = Shop::open().await;
    let row = NewWork::once(Key::single("w").unwrap(), "queue".parse().unwrap());
    shop.store.apply(Batch::new().enqueue(row)).await.unwrap();
    let all = WorkFilter { pattern: Some(Pattern::new("^w").unwrap()), ..WorkFilter::default() };
    let tx = shop.begin();
    tx.apply(&Batch::new().operate(Selection::Filter(all), Operation::Remove)).unwrap();
    tx.commit();
    assert!(shop.store.work(&Key::single("w").unwrap()).await.unwrap().is_none());
}

/// A program that writes in its own transactions only: the index of streams follows all the same.
#[tokio::test]
async fn the_tail_stays_short_without_a_writer() {
    let mut shop = Shop::open().await;
    let event = || NewEvent::new(EventType::new("E").unwrap(), Payload::null());
    for _ in 0..5 {
        let tx = shop.begin();
        let many: Vec<NewEvent> = (0..9_000).map(|_| event()).collect();
        tx.apply(&Batch::new().append(&Key::single("s").unwrap(), Expect::Any, many)).unwrap();
        tx.commit();
    }
    let waiting: i64 = shop
        .mine
        .query_row(
            "SELECT max(position) - (SELECT value FROM tidelock_counters WHERE name = 'indexed') FROM tidelock_events",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert!(waiting < 30_000, "{waiting} events wait for their place in the index");
}

/// The caller commits removals, and positions of removed events are not reused.
#[tokio::test]
async fn removals_commit_with_the_transaction_or_not_at_all() {
    let mut shop = Shop::open().await;
    let sales = Key::single("sales").unwrap();
    for n in 0..4 {
        shop.store.apply(append(n)).await.unwrap();
    }
    let truncate = |before| Batch::new().truncate(&sales, StreamVersion(before));
    for (commit, left) in [(false, 4), (true, 0)] {
        let tx = shop.begin();
        tx.apply(&truncate(2)).unwrap();
        tx.apply(&truncate(4)).unwrap();
        assert_eq!(tx.apply(&truncate(5)), Err("TL0209".to_owned()));
        if commit {
            tx.commit();
        } else {
            tx.rollback();
        }
        let events = shop.store.read_stream(StreamQuery::forward(&sales, 10)).await.unwrap().events;
        assert_eq!(events.len(), left, "committed: {commit}");
    }
    let head = shop.store.stream(&sales).await.unwrap().unwrap().head;
    assert_eq!(head, Some(StreamVersion(3)));
    let tx = shop.begin();
    tx.apply(&append(4)).unwrap();
    tx.apply(&append(5).truncate(&sales, StreamVersion(5))).unwrap();
    tx.commit();
    let events = shop.store.read_stream(StreamQuery::forward(&sales, 10)).await.unwrap().events;
    let places: Vec<(u64, u64)> = events.iter().map(|e| (e.version.0, e.position.0)).collect();
    assert_eq!(places, [(5, 6)]);
}

/// A transaction that was rolled back, for example by SQLite itself on a full disk, has no place for a batch: it would
/// commit alone.
#[tokio::test]
async fn a_transaction_that_is_over_takes_no_batch() {
    let mut shop = Shop::open().await;
    let tx = shop.begin();
    tx.invoice();
    tx.tx.execute_batch("ROLLBACK").unwrap();
    assert_eq!(tx.apply(&append(0)), Err("TL0105".to_owned()));
    drop(tx);
    assert_eq!(shop.invoices(), 0);
    assert!(shop.store.stream(&Key::single("sales").unwrap()).await.unwrap().is_none());
}

/// A transaction that began by reading cannot write once another one has committed: only a new one can.
#[tokio::test]
async fn a_transaction_with_an_outdated_snapshot_must_be_repeated() {
    let mut shop = Shop::open().await;
    let tx = shop.mine.transaction_with_behavior(TransactionBehavior::Deferred).unwrap();
    tx.query_row("SELECT count(*) FROM invoices", [], |row| row.get::<_, i64>(0)).unwrap();
    shop.store.apply(append(0)).await.unwrap();
    let put = Batch::new().put(&Key::single("total").unwrap(), Expect::Any, Payload::null());
    let error = shop.store.apply_in(&tx, &put).unwrap_err();
    assert_eq!(error.code().to_string(), "TL0312", "{error}");
}
