//! Truncation where PostgreSQL is special: in the caller's own transaction, from SQL, and under a reader between two
//! statements.
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

mod common;
#[path = "common/poll.rs"]
mod poll;

use poll::{in_time, until};
use tidelock_core::error::Explain as _;
use tidelock_core::id::{EventType, StreamVersion};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    Batch, EventFilter, EventPage, Expect, LogQuery, NewEvent, Store as _, StreamQuery,
};
use tidelock_postgres::tokio_postgres::{Client, IsolationLevel};
use tidelock_postgres::{PostgresOptions, PostgresStore};

fn stream() -> Key {
    Key::single("s").unwrap()
}

fn append(count: usize) -> Batch {
    let event = || NewEvent::new(EventType::new("Happened").unwrap(), Payload::null());
    Batch::new().append(&stream(), Expect::Any, (0..count).map(|_| event()))
}

fn truncate(before: u64) -> Batch {
    Batch::new().truncate(&stream(), StreamVersion(before))
}

/// Returns the remaining versions, and the first and last version that the stream reports.
async fn left(store: &PostgresStore) -> (Vec<u64>, Option<u64>, Option<u64>) {
    let events = store.read_stream(StreamQuery::forward(&stream(), 99)).await.unwrap().events;
    let info = store.stream(&stream()).await.unwrap().unwrap();
    let versions = events.iter().map(|event| event.version.0).collect();
    (versions, info.first.map(|v| v.0), info.head.map(|v| v.0))
}

#[tokio::test]
async fn removals_commit_with_the_callers_transaction_or_not_at_all() {
    use IsolationLevel::{ReadCommitted, RepeatableRead, Serializable};
    let backend = common::Postgres::default();
    let store = common::open(&common::address(&backend.schema()), None).await;
    let mut mine = common::client().await;
    let mut first = 0;
    for level in [ReadCommitted, RepeatableRead, Serializable] {
        store.apply(append(4)).await.unwrap();
        let head = left(&store).await.2.unwrap();
        for commit in [false, true] {
            let mut tx = mine.build_transaction().isolation_level(level).start().await.unwrap();
            let receipt = store.apply_in(&mut tx, &truncate(first + 1)).await.unwrap();
            assert_eq!(receipt.truncated, [1]);
            let batch = append(2).truncate(&stream(), StreamVersion(head + 2));
            let receipt = store.apply_in(&mut tx, &batch).await.unwrap();
            assert_eq!(receipt.truncated, [head + 1 - first]);
            let refused = store.apply_in(&mut tx, &truncate(head + 4)).await.unwrap_err();
            assert_eq!(refused.code().as_str(), "TL0209");
            let wanted = if commit {
                tx.commit().await.unwrap();
                (vec![head + 2], Some(head + 2), Some(head + 2))
            } else {
                tx.rollback().await.unwrap();
                ((first..=head).collect(), Some(first), Some(head))
            };
            assert_eq!(left(&store).await, wanted, "{level:?}, committed: {commit}");
        }
        first = head + 2;
    }
}

#[tokio::test]
async fn programs_that_append_from_sql_continue_after_a_full_truncation() {
    let backend = common::Postgres::default();
    let schema = backend.schema();
    let store = common::open(&common::address(&schema), None).await;
    store.apply(append(3)).await.unwrap();
    store.apply(truncate(3)).await.unwrap();
    let client = common::client().await;
    let sql = format!("SELECT version FROM {schema}.append({schema}.key('s'), 'Happened', 'null', 2)");
    assert_eq!(client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0), 3);
    assert_eq!(left(&store).await, (vec![3], Some(3), Some(3)));
}

/// The number of events that a query scans.
const SCAN: i64 = 100_000;

/// Opens a store with a long stream whose events are all of another type than those at its ends.
async fn long(schema: &str) -> (PostgresStore, Client) {
    // One connection, so that its statements are prepared when it matters.
    let options = PostgresOptions { readers: 1, ..common::options() };
    let store = PostgresStore::open(&common::address(schema), options).await.unwrap();
    let client = common::client().await;
    let sql = format!(
        "INSERT INTO {schema}.events (position, stream, version, id, type, recorded_at, payload, bytes)
             SELECT n + 1, 's', n, gen_random_uuid(), CASE WHEN n < 5 OR n >= {SCAN} THEN 'Rare' ELSE 'Common' END, 0,
                 'null', 8 FROM generate_series(0, {SCAN} + 4) n;
         INSERT INTO {schema}.streams (key, head) VALUES ('s', {SCAN} + 4);
         SELECT setval('{schema}.positions', {SCAN} + 5);"
    );
    client.batch_execute(&sql).await.unwrap();
    (store, client)
}

async fn sessions_wait(client: &Client, schema: &str, how_many: i64) {
    let sql = format!(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'
         AND relation = '{schema}.events'::regclass"
    );
    let waiting = async || client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0) == how_many;
    until("the sessions wait", waiting).await;
}

fn rare() -> EventFilter {
    EventFilter { types: vec![EventType::new("Rare").unwrap()], ..EventFilter::default() }
}

/// Runs the removal before a statement of the connection: each statement waits for the holder of the table lock. Lock
/// waiters are queued. A session that requests the table while a statement waits gets it before the next statement.
async fn remove_before_statement(schema: &str, statement: usize, removal: &str, reading: impl FnOnce()) {
    let admin = common::client().await;
    let lock = format!("BEGIN; LOCK TABLE {schema}.events");
    let mut holder = common::client().await;
    holder.batch_execute(&lock).await.unwrap();
    reading();
    sessions_wait(&admin, schema, 1).await;
    for _ in 1..statement {
        let (next, sql) = (common::client().await, lock.clone());
        let queued = tokio::spawn(async move {
            next.batch_execute(&sql).await.unwrap();
            next
        });
        sessions_wait(&admin, schema, 2).await;
        holder.batch_execute("COMMIT").await.unwrap();
        holder = in_time("the table is free", queued).await.unwrap();
        sessions_wait(&admin, schema, 1).await;
    }
    holder.batch_execute(&format!("{removal}; COMMIT")).await.unwrap();
}

/// Runs a query with a filter, on the log or on the stream.
async fn read(store: &PostgresStore, of_stream: bool) -> EventPage {
    let page = match of_stream {
        true => {
            store.read_stream(StreamQuery { filter: rare(), ..StreamQuery::forward(&stream(), 50) }).await
        }
        false => store.read_log(LogQuery { filter: rare(), ..LogQuery::all(50) }).await,
    };
    page.unwrap()
}

fn versions(page: &EventPage) -> Vec<u64> {
    page.events.iter().map(|event| event.version.0).collect()
}

/// A query with a filter reports how far it scanned. A concurrent removal must not move that farther.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_does_not_pass_over_events_because_others_were_removed() {
    // The log asks for its ceiling, for events, and for how far they were scanned; a stream for the last two.
    for (statement, of_stream) in [(3, false), (2, true)] {
        let backend = common::Postgres::default();
        let schema = backend.schema();
        let (store, _client) = long(&schema).await;
        let whole = read(&store, of_stream).await;
        assert_eq!((versions(&whole), whole.end), (vec![0, 1, 2, 3, 4], false), "what one query looks at");
        let (reader, mut reading) = (store.clone(), None);
        let removal =
            format!("SELECT {schema}.truncate_streams(0, ARRAY['s'], ARRAY[0::bigint], ARRAY[7::bigint])");
        remove_before_statement(&schema, statement, &removal, || {
            reading = Some(tokio::spawn(async move { read(&reader, of_stream).await }));
        })
        .await;
        let page = in_time("the reader continues", reading.unwrap()).await.unwrap();
        let last: Vec<u64> = (100_000..100_005).collect();
        assert_eq!((versions(&page), page.end), (last, true), "of the stream: {of_stream}");
    }
}
