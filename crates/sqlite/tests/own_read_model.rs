//! A read model in the user's own table: its rows and its watermark are one commit, whichever process dies or comes
//! second.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidelock_core::error::Explain as _;
use tidelock_core::id::EventType;
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::projections::Watermark;
use tidelock_core::store::{Batch, Event, Expect, NewEvent, Store as _};
use tidelock_sqlite::rusqlite::{Connection, Transaction, TransactionBehavior};
use tidelock_sqlite::{SqliteOptions, SqliteStore};

/// The number of events.
const EVENTS: i64 = 60;

async fn sold(store: &SqliteStore) {
    for n in 0..EVENTS {
        let event = NewEvent::new(EventType::new("Sold").unwrap(), Payload::of(&n).unwrap());
        let stream = Key::new("sale", [n % 4]).unwrap();
        store.apply(Batch::new().append(&stream, Expect::Any, [event])).await.unwrap();
    }
}

fn project(tx: &Transaction<'_>, event: &Event) {
    let n: i64 = event.payload.parse().unwrap();
    let count = "INSERT INTO sold VALUES (?1, 1, ?2)
                 ON CONFLICT (item) DO UPDATE SET sales = sales + 1, total = total + excluded.total";
    tx.execute(count, (n % 3, n)).unwrap();
}

/// Projects until nothing is left. Every third transaction is dropped before its commit, as in a crash.
async fn run(path: &Path, refused: &AtomicUsize) {
    let store = SqliteStore::open(path, options()).await.unwrap();
    let mut mine = Connection::open(path).unwrap();
    mine.busy_timeout(Duration::from_secs(60)).unwrap();
    for round in 0.. {
        let watermark = Watermark::read(&store, "sold").await.unwrap();
        let page = store.read_log(watermark.after(4)).await.unwrap();
        let Some(to) = page.scanned_to.filter(|to| *to > watermark.position()) else { return };
        let tx = mine.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        page.events.iter().for_each(|event| project(&tx, event));
        match store.apply_in(&tx, &watermark.moved_to(to).unwrap()) {
            Ok(_) if round % 3 == 0 => tx.rollback().unwrap(),
            Ok(_) => tx.commit().unwrap(),
            Err(error) => {
                assert_eq!(error.code().as_str(), "TL0202", "{error}");
                refused.fetch_add(1, Ordering::SeqCst);
                tx.rollback().unwrap();
            }
        }
    }
}

fn options() -> SqliteOptions {
    SqliteOptions { shared: true, ..SqliteOptions::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rows_and_watermark_are_one_commit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.db");
    let store = SqliteStore::open(&path, options()).await.unwrap();
    let mine = Connection::open(&path).unwrap();
    mine.execute_batch("CREATE TABLE sold (item INTEGER PRIMARY KEY, sales INTEGER, total INTEGER)").unwrap();
    sold(&store).await;
    let refused = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let (path, refused) = (path.clone(), Arc::clone(&refused));
            tokio::spawn(async move { run(&path, &refused).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut read = mine.prepare("SELECT item, sales, total FROM sold ORDER BY item").unwrap();
    let rows = read.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    let rows: Vec<(i64, i64, i64)> = rows.map(Result::unwrap).collect();
    let of = |item: i64| (0..EVENTS).filter(move |n| n % 3 == item);
    let expected: Vec<_> =
        (0..3).map(|item| (item, i64::try_from(of(item).count()).unwrap(), of(item).sum())).collect();
    assert_eq!(rows, expected);
    println!("{} came second", refused.load(Ordering::SeqCst));
}
