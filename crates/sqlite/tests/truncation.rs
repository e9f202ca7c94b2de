//! Truncation over merges, restarts, foreign writers and broken groups: removed events stay removed, and no other event
//! is lost.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use tidelock_core::id::{EventType, StreamVersion};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{ApplyError, Batch, Expect, LogQuery, NewEvent, Store as _, StreamQuery};
use tidelock_sqlite::rusqlite::Connection;
use tidelock_sqlite::{SqliteOptions, SqliteStore};

fn stream(n: u64) -> Key {
    Key::new("s", [i64::try_from(n).unwrap()]).unwrap()
}

fn event(n: u64) -> NewEvent {
    NewEvent::new(EventType::new("E").unwrap(), Payload::of(&n).unwrap())
}

fn truncate(n: u64, before: u64) -> Batch {
    Batch::new().truncate(&stream(n), StreamVersion(before))
}

/// A generator that is good enough to mix streams.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// The expected state of a stream: its first version, and the numbers in its events from there on.
#[derive(Default)]
struct ExpectedStream {
    first: u64,
    numbers: Vec<u64>,
}

async fn check(store: &SqliteStore, expected: &BTreeMap<u64, ExpectedStream>) {
    let mut all = 0;
    for (n, left) in expected {
        let (key, head) = (stream(*n), left.first + left.numbers.len() as u64);
        let info = store.stream(&key).await.unwrap().unwrap();
        let first = (!left.numbers.is_empty()).then_some(StreamVersion(left.first));
        assert_eq!((info.first, info.head), (first, head.checked_sub(1).map(StreamVersion)), "{key}");
        for query in [StreamQuery::forward(&key, 10_000), StreamQuery::backward(&key, 10_000)] {
            let mut events = store.read_stream(query.clone()).await.unwrap().events;
            if query == StreamQuery::backward(&key, 10_000) {
                events.reverse();
            }
            let read: Vec<u64> = events.iter().map(|e| e.payload.parse().unwrap()).collect();
            assert_eq!(read, left.numbers, "{key}");
            assert!((left.first..).zip(&events).all(|(version, e)| e.version.0 == version), "{key}");
        }
        all += left.numbers.len();
    }
    assert_eq!(store.read_log(LogQuery::all(10_000)).await.unwrap().events.len(), all);
}

/// Two stores on one file take turns, with different merge thresholds, and are reopened in between.
#[tokio::test(flavor = "multi_thread")]
async fn reads_agree_over_removals_merges_restarts_and_foreign_writers() {
    const STREAMS: u64 = 12;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let options = |unindexed| SqliteOptions { unindexed, readers: 1, ..SqliteOptions::default() };
    let mut expected: BTreeMap<u64, ExpectedStream> = BTreeMap::new();
    let (mut seed, mut number, mut newest) = (11, 0, 0);
    for thresholds in [(1, 10), (50, 300), (8192, 8192), (7, 8192)] {
        let a = SqliteStore::open(&path, options(thresholds.0)).await.unwrap();
        let b = SqliteStore::open(&path, options(thresholds.1)).await.unwrap();
        for step in 0..150 {
            let writer = if next(&mut seed).is_multiple_of(3) { &b } else { &a };
            let mut batch = Batch::new();
            for _ in 0..next(&mut seed) % 6 + 1 {
                let n = next(&mut seed) % STREAMS;
                let left = expected.entry(n).or_default();
                let head = left.first + left.numbers.len() as u64;
                if next(&mut seed).is_multiple_of(4) && head > 0 {
                    // Sometimes all of them, so that the newest events of the log are removed as well.
                    let count = (next(&mut seed) % 9).min(left.numbers.len() as u64);
                    left.first += count;
                    left.numbers.drain(..usize::try_from(count).unwrap());
                    batch = batch.truncate(&stream(n), StreamVersion(left.first));
                    continue;
                }
                number += 1;
                left.numbers.push(number);
                let expect = head.checked_sub(1).map_or(Expect::Absent, |v| Expect::Exact(StreamVersion(v)));
                batch = batch.append(&stream(n), expect, [event(number)]);
            }
            let receipt = writer.apply(batch).await.unwrap();
            for appended in receipt.appended {
                assert!(appended.first_position.0 > newest, "a position was given twice");
                newest = appended.last_position.0;
            }
            if step % 30 == 0 {
                check(if step % 60 == 0 { &a } else { &b }, &expected).await;
            }
        }
        check(&a, &expected).await;
        check(&b, &expected).await;
        a.close().await;
        b.close().await;
    }
    let db = Connection::open(&path).unwrap();
    let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert!(count("SELECT value FROM tidelock_counters WHERE name = 'indexed'") > 500, "nothing was merged");
    assert!(count("SELECT value FROM tidelock_counters WHERE name = 'truncations'") > 100);
    assert_eq!(
        count(
            "SELECT count(*) FROM tidelock_stream_index WHERE position NOT IN (SELECT position FROM tidelock_events)"
        ),
        0,
        "places of what is gone"
    );
}

/// Groups that remove events and are rolled back leave everything unchanged, also for readers of the same process.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_group_that_breaks_after_a_removal_removes_what_it_should_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let options = SqliteOptions { unindexed: 40, ..SqliteOptions::default() };
    let store = Arc::new(SqliteStore::open(&path, options).await.unwrap());
    let taken = event(0);
    store.apply(Batch::new().append(&stream(9), Expect::Any, [taken.clone()])).await.unwrap();
    for round in 0..60_u64 {
        let batches = (0..6).map(|n| match n {
            // Refused only after its event ids are looked up, with everything before it written.
            4 => Batch::new().append(&stream(9), Expect::Absent, [event(1)]),
            // Detected when it is written: the whole group is rolled back.
            5 => Batch::new().append(&stream(8), Expect::Any, [taken.clone()]),
            n if n % 2 == 0 => Batch::new().append(&stream(n / 2), Expect::Any, [event(round), event(round)]),
            n => truncate(n / 2, round),
        });
        let sent = batches.map(|batch| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.apply(batch).await })
        });
        for (n, answer) in sent.collect::<Vec<_>>().into_iter().enumerate() {
            match (n, answer.await.unwrap()) {
                (4 | 5, Err(ApplyError::Refused(_))) | (0 | 2, Ok(_)) => {}
                (1 | 3, Ok(receipt)) => assert!(receipt.truncated[0] <= 1, "{receipt:?}"),
                other => panic!("{other:?}"),
            }
        }
        for n in 0..2 {
            let events = store.read_stream(StreamQuery::forward(&stream(n), 10_000)).await.unwrap().events;
            let versions: Vec<u64> = events.iter().map(|e| e.version.0).collect();
            assert_eq!(versions, (round..2 * (round + 1)).collect::<Vec<_>>(), "round {round}, stream {n}");
        }
    }
}
