//! Positions and versions (O1 and O4) within one process. For several processes see `processes`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::env::ONE_AND_TWO;
use crate::prelude::*;

/// A tailing reader beside many writers sees every event once, at increasing positions, and no event appears later at a
/// lower one.
pub async fn o1_a_tailing_reader_misses_nothing(env: &Env) {
    const BATCHES: usize = 20;
    for connections in ONE_AND_TWO {
        let before = env.store.log().await.last().map_or(Position(0), |e| e.position);
        let done = Arc::new(AtomicBool::new(false));
        let tail = tokio::spawn(tail(env.connect().await, before, Arc::clone(&done)));
        let write = |i: usize, conn: Conn| async move {
            for n in 0..BATCHES {
                let streams =
                    [key(&format!("o1-own-{i}")), key("o1-shared"), key(&format!("o1-{}", (i + n) % 3))];
                let batch = streams.iter().take(1 + n % 3);
                let batch = batch.fold(Batch::new(), |b, s| b.append(s, Expect::Any, events(1 + n % 2)));
                conn.done(batch).await;
            }
        };
        env.race(connections, 8, write).await;
        done.store(true, Ordering::SeqCst);
        let seen = tail.await.unwrap();
        let log = env.store.log().await;
        let log: Vec<Event> = log.into_iter().filter(|e| e.position > before).collect();
        assert_eq!(seen.len(), log.len(), "the reader saw another number of events than there are");
        assert_eq!(seen, log, "the reader saw other events, or in another order");
    }
}

/// Follows the log until the writers are done and no event is left.
async fn tail(conn: Conn, mut after: Position, done: Arc<AtomicBool>) -> Vec<Event> {
    let mut seen: Vec<Event> = Vec::new();
    loop {
        let last_round = done.load(Ordering::SeqCst);
        let page = conn.read_log(LogQuery::after(after, 7)).await.unwrap();
        assert!(
            page.events.iter().all(|e| e.position > after)
                && page.events.is_sorted_by(|a, b| a.position < b.position)
        );
        after = page.scanned_to.unwrap_or(after).max(after);
        let empty = page.events.is_empty();
        seen.extend(page.events);
        if last_round && empty {
            return seen;
        }
        tokio::task::yield_now().await;
    }
}

/// Versions of a stream are 0, 1, 2, … without gaps, and receipts match what readers see.
pub async fn o4_versions_have_no_holes_and_receipts_are_true(env: &Env) {
    for connections in ONE_AND_TWO {
        let stream = move |i: usize| key(&format!("o4-{connections}-{i}"));
        let write = |i: usize, conn: Conn| async move {
            let mut told = Vec::new();
            for n in 0..15 {
                let list = events(1 + (i + n) % 3);
                let ids: Vec<EventId> = list.iter().map(|e| e.id).collect();
                let batch = Batch::new().append(&stream((i + n) % 4), Expect::Any, list);
                // Rejected batches in between must not leave gaps.
                if n % 4 == 3 {
                    conn.refused(batch.guard_stream(&key("o4-none"), Expect::Exists)).await;
                } else {
                    told.push((conn.done(batch).await.appended.remove(0), ids));
                }
            }
            told
        };
        let told: Vec<_> = env.race(connections, 6, write).await.into_iter().flatten().collect();
        let mut by_id = BTreeMap::new();
        for i in 0..4 {
            let history = env.other.history(&stream(i)).await;
            let versions: Vec<u64> = history.iter().map(|e| e.version.0).collect();
            assert_eq!(versions, (0..history.len() as u64).collect::<Vec<_>>(), "stream {i}");
            assert!(history.is_sorted_by(|a, b| a.position < b.position), "positions and versions agree");
            by_id.extend(history.into_iter().map(|e| (e.id, e)));
        }
        for (appended, ids) in told {
            let (first, last) = (&by_id[&ids[0]], &by_id[&ids[ids.len() - 1]]);
            assert_eq!(
                (&first.stream, first.version, first.position),
                (&appended.stream, appended.first_version, appended.first_position)
            );
            assert_eq!((last.version, last.position), (appended.last_version, appended.last_position));
        }
    }
}

/// The log and the streams are two views of the same events, each event once.
pub async fn o4_the_log_is_the_sum_of_the_streams(env: &Env) {
    for i in 0..40 {
        let batch = Batch::new().append(&key(&format!("o4-{}", i % 3)), Expect::Any, events(1 + i % 3));
        let batch = batch.append(&key(&format!("o4-{}", i % 5)), Expect::Any, events(1));
        env.store.done(batch).await;
    }
    let log = env.other.log().await;
    let ids: BTreeSet<EventId> = log.iter().map(|e| e.id).collect();
    let positions: BTreeSet<Position> = log.iter().map(|e| e.position).collect();
    assert_eq!((ids.len(), positions.len()), (log.len(), log.len()));
    let mut sum = Vec::new();
    for i in 0..5 {
        sum.extend(env.other.history(&key(&format!("o4-{i}"))).await);
    }
    sum.sort_by_key(|e| e.position);
    assert_eq!(sum, log);
}
