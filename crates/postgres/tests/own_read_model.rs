//! A read model in the user's own table: its rows and its watermark are one commit, whichever process dies or comes
//! second.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::Postgres;
use tidelock_core::error::Explain as _;
use tidelock_core::id::EventType;
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::projections::Watermark;
use tidelock_core::store::{Batch, Event, Expect, NewEvent, Store as _};
use tidelock_postgres::tokio_postgres::Transaction;

/// The number of events.
const EVENTS: i64 = 60;

async fn project(tx: &Transaction<'_>, schema: &str, event: &Event) {
    let n: i64 = event.payload.parse().unwrap();
    let count = format!(
        "INSERT INTO {schema}.sold AS s VALUES ($1, 1, $2)
         ON CONFLICT (item) DO UPDATE SET sales = s.sales + 1, total = s.total + excluded.total"
    );
    tx.execute(&count, &[&(n % 3), &n]).await.unwrap();
}

/// Projects until nothing is left. Every third transaction is dropped before its commit, as in a crash.
async fn run(schema: &str) {
    let store = common::open(&common::address(schema), None).await;
    let mut mine = common::client().await;
    for round in 0.. {
        let watermark = Watermark::read(&store, "sold").await.unwrap();
        let page = store.read_log(watermark.after(4)).await.unwrap();
        let Some(to) = page.scanned_to.filter(|to| *to > watermark.position()) else { return };
        let mut tx = mine.transaction().await.unwrap();
        // The watermark first: a second projection waits here, and holds no row of the table during the wait.
        match store.apply_in(&mut tx, &watermark.moved_to(to).unwrap()).await {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.code().as_str(), "TL0202", "{error}");
                tx.rollback().await.unwrap();
                continue;
            }
        }
        for event in &page.events {
            project(&tx, schema, event).await;
        }
        if round % 3 == 0 { tx.rollback().await.unwrap() } else { tx.commit().await.unwrap() }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rows_and_watermark_are_one_commit() {
    let backend = Postgres::default();
    let schema: Arc<str> = backend.schema().into();
    let store = common::open(&common::address(&schema), None).await;
    let mine = common::client().await;
    let table = format!("CREATE TABLE {schema}.sold (item bigint PRIMARY KEY, sales bigint, total bigint)");
    mine.batch_execute(&table).await.unwrap();
    for n in 0..EVENTS {
        let event = NewEvent::new(EventType::new("Sold").unwrap(), Payload::of(&n).unwrap());
        let stream = Key::new("sale", [n % 4]).unwrap();
        store.apply(Batch::new().append(&stream, Expect::Any, [event])).await.unwrap();
    }
    let spawn = |_| {
        let schema = Arc::clone(&schema);
        tokio::spawn(async move { run(&schema).await })
    };
    let tasks: Vec<_> = (0..3).map(spawn).collect();
    for task in tasks {
        task.await.unwrap();
    }
    let read = format!("SELECT item, sales, total FROM {schema}.sold ORDER BY item");
    let rows = mine.query(&read, &[]).await.unwrap();
    let rows: Vec<(i64, i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    let of = |item: i64| (0..EVENTS).filter(move |n| n % 3 == item);
    let expected: Vec<_> =
        (0..3).map(|item| (item, i64::try_from(of(item).count()).unwrap(), of(item).sum())).collect();
    assert_eq!(rows, expected);
}
