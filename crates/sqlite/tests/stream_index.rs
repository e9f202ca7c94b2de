//! Streams read the same from the index, from the tail and across both, whichever process wrote them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use tidelock_core::id::{EventType, StreamVersion};
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    Batch, Claim, Direction, Expect, NewEvent, NewWork, Page, Store as _, StreamQuery,
};
use tidelock_sqlite::rusqlite::Connection;
use tidelock_sqlite::{SqliteOptions, SqliteStore};

const STREAMS: u64 = 40;

fn stream(n: u64) -> Key {
    Key::new("s", [i64::try_from(n).unwrap()]).unwrap()
}

fn event(n: u64) -> NewEvent {
    NewEvent::new(EventType::new("E").unwrap(), Payload::of(&n).unwrap())
}

fn options(unindexed: usize) -> SqliteOptions {
    SqliteOptions { unindexed, readers: 1, ..SqliteOptions::default() }
}

/// A generator that is good enough to mix streams.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

async fn check(store: &SqliteStore, expected: &BTreeMap<u64, Vec<u64>>) {
    let infos = store.streams(&KeyPrefix::all(), Page::first(1000)).await.unwrap().rows;
    assert_eq!(infos.len(), expected.len());
    for (n, numbers) in expected {
        let key = stream(*n);
        let head = StreamVersion(numbers.len() as u64 - 1);
        assert_eq!(store.stream(&key).await.unwrap().unwrap().head, Some(head), "{key}");
        let forward = store.read_stream(StreamQuery::forward(&key, 10_000)).await.unwrap();
        let read: Vec<u64> = forward.events.iter().map(|e| e.payload.parse().unwrap()).collect();
        assert_eq!(read, *numbers, "{key}");
        assert!(forward.end && forward.events.iter().enumerate().all(|(i, e)| e.version.0 == i as u64));
        let middle = StreamVersion(numbers.len() as u64 / 2);
        for direction in [Direction::Forward, Direction::Backward] {
            let query = StreamQuery { direction, ..StreamQuery::forward(&key, 5).from(middle) };
            let page = store.read_stream(query).await.unwrap();
            let mut wanted: Vec<u64> = match direction {
                Direction::Forward => numbers[middle.0 as usize..].iter().take(5).copied().collect(),
                Direction::Backward => numbers[..=middle.0 as usize].iter().rev().take(5).copied().collect(),
            };
            let read: Vec<u64> = page.events.iter().map(|e| e.payload.parse().unwrap()).collect();
            wanted.truncate(5);
            assert_eq!(read, wanted, "{key} {direction:?}");
        }
    }
}

/// Two stores on one file take turns, with different merge thresholds, and are reopened in between.
#[tokio::test(flavor = "multi_thread")]
async fn reads_agree_over_merges_restarts_and_foreign_writers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let mut expected: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let (mut seed, mut number) = (7, 0);
    for (round, thresholds) in [(1, 10), (50, 300), (8192, 8192), (7, 8192)].into_iter().enumerate() {
        let a = SqliteStore::open(&path, options(thresholds.0)).await.unwrap();
        let b = SqliteStore::open(&path, options(thresholds.1)).await.unwrap();
        for step in 0..120 {
            let writer = if next(&mut seed).is_multiple_of(3) { &b } else { &a };
            let mut batch = Batch::new();
            for _ in 0..next(&mut seed) % 9 + 1 {
                let n = next(&mut seed) % STREAMS;
                let numbers = expected.entry(n).or_default();
                let expect = numbers
                    .len()
                    .checked_sub(1)
                    .map_or(Expect::Absent, |v| Expect::Exact(StreamVersion(v as u64)));
                number += 1;
                numbers.push(number);
                batch = batch.append(&stream(n), expect, [event(number)]);
            }
            writer.apply(batch).await.unwrap();
            if step % 30 == 0 {
                check(if round % 2 == 0 { &a } else { &b }, &expected).await;
            }
        }
        check(&a, &expected).await;
        check(&b, &expected).await;
        a.close().await;
        b.close().await;
    }
    let db = Connection::open(&path).unwrap();
    let indexed: i64 =
        db.query_row("SELECT value FROM tidelock_counters WHERE name = 'indexed'", [], |r| r.get(0)).unwrap();
    assert!(indexed > 1000, "nothing was merged: the test proves nothing");
    let missing: i64 = db
        .query_row(
            "SELECT count(*) FROM tidelock_events e WHERE position <= ?1 AND NOT EXISTS (
             SELECT 1 FROM tidelock_stream_index i
             WHERE i.stream = e.stream AND i.version = e.version AND i.position = e.position)",
            [indexed],
            |r| r.get(0),
        )
        .unwrap();
    assert_eq!(missing, 0);
}

#[tokio::test]
async fn a_grant_brings_the_events_after_its_position_from_wherever_they_stand() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("a.db"), options(10)).await.unwrap();
    let (work, worker) = (Key::single("w").unwrap(), "worker".parse().unwrap());
    let follow =
        NewWork { follow: Some(stream(1)), ..NewWork::standing(work.clone(), "queue".parse().unwrap()) };
    for n in 0..60 {
        store.apply(Batch::new().append(&stream(n % 3), Expect::Any, [event(n)])).await.unwrap();
    }
    store.apply(Batch::new().enqueue(follow)).await.unwrap();
    let ttl = std::time::Duration::from_secs(9);
    let mut seen = Vec::new();
    while seen.len() < 20 {
        let claim = Claim::existing(&worker, &work, ttl).with_events(3);
        let grant = store.claim(claim).await.unwrap().grants.remove(0);
        let last = grant.events.last().unwrap().position;
        seen.extend(grant.events.iter().map(|e| e.payload.parse::<u64>().unwrap()));
        store.apply(Batch::new().advance(&grant.lease(), last).release(&grant.lease())).await.unwrap();
    }
    assert_eq!(seen, (0..60).filter(|n| n % 3 == 1).collect::<Vec<_>>());
}
