//! The tail is a cache of the log: whatever it holds, it returns the same places as the log itself.
//!
//! Only here: PostgreSQL has no tail.

use super::*;

/// A log whose events rotate over three streams.
fn log(events: i64) -> Connection {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(include_str!("../../migrations/0001_foundation.sql")).unwrap();
    add(&db, 1, events);
    db
}

fn add(db: &Connection, from: i64, to: i64) {
    for position in from..=to {
        let (stream, version) = (position % 3 + 1, (position - 1) / 3);
        db.execute(
            "INSERT INTO tidelock_events (position, stream, version, id, type, recorded_at, payload)
             VALUES (?1, ?2, ?3, randomblob(16), 'E', 0, 'null')",
            (position, stream, version),
        )
        .unwrap();
    }
}

fn positions(tail: &Memtable, db: &Connection, stream: i64, after: i64, upto: i64) -> Vec<i64> {
    seen(tail, db, stream, IndexView { indexed: after, newest: upto, truncations: 0, epoch: 0 })
}

fn seen(tail: &Memtable, db: &Connection, stream: i64, view: IndexView) -> Vec<i64> {
    tail.of(db, stream, view).unwrap().into_iter().map(|p| p.position).collect()
}

#[test]
fn it_reads_what_is_new_and_forgets_what_is_pruned() {
    let db = log(9);
    let tail = Memtable::default();
    assert_eq!(positions(&tail, &db, 1, 0, 9), [3, 6, 9]);
    assert_eq!(positions(&tail, &db, 1, 3, 8), [6]);
    add(&db, 10, 12);
    assert_eq!(positions(&tail, &db, 1, 0, 12), [3, 6, 9, 12]);
    tail.prune(6);
    assert_eq!(positions(&tail, &db, 1, 6, 12), [9, 12]);
    // A snapshot from before the pruning still gets its places.
    assert_eq!(positions(&tail, &db, 1, 0, 9), [3, 6, 9]);
}

#[test]
fn it_takes_note_only_of_what_follows_what_it_knows() {
    let db = log(9);
    let tail = Memtable::default();
    positions(&tail, &db, 1, 0, 6);
    tail.add(&[(2, EventLocation { version: 2, position: 7 })]);
    assert_eq!(positions(&tail, &db, 2, 0, 7), [1, 4, 7]);
    // 9 without 8 would be a gap: it is left to be read.
    tail.add(&[(1, EventLocation { version: 2, position: 9 })]);
    assert_eq!(positions(&tail, &db, 3, 0, 9), [2, 5, 8]);
    assert_eq!(positions(&tail, &db, 1, 0, 9), [3, 6, 9]);
}

#[test]
fn it_starts_over_when_the_index_has_overtaken_it() {
    let db = log(9);
    let tail = Memtable::default();
    positions(&tail, &db, 1, 0, 3);
    assert_eq!(positions(&tail, &db, 1, 6, 9), [9]);
    let all = tail.all(&db, IndexView { indexed: 6, newest: 9, truncations: 0, epoch: 0 }).unwrap();
    assert_eq!(
        all.iter().map(|(stream, p)| (*stream, p.position)).collect::<Vec<_>>(),
        [(1, 9), (2, 7), (3, 8)]
    );
}

#[test]
fn a_view_from_before_a_removal_still_gets_what_is_gone() {
    let db = log(9);
    let tail = Memtable::default();
    assert_eq!(positions(&tail, &db, 1, 0, 6), [3, 6]);
    let removed = |db: &Connection| db.execute("DELETE FROM tidelock_events WHERE position IN (3, 9)", []);
    // A separate database replaces the snapshot of the old view here.
    let old = log(9);
    removed(&db).unwrap();
    let now = IndexView { indexed: 0, newest: 8, truncations: 1, epoch: 0 };
    assert_eq!(seen(&tail, &db, 1, now), [3, 6], "what was known stays known; who asks leaves it out");
    assert_eq!(seen(&tail, &db, 2, now), [1, 4, 7]);
    let before = IndexView { indexed: 0, newest: 9, truncations: 0, epoch: 0 };
    assert_eq!(seen(&tail, &old, 1, before), [3, 6, 9]);
    add(&db, 10, 12);
    let later = IndexView { indexed: 0, newest: 12, truncations: 1, epoch: 0 };
    assert_eq!(seen(&tail, &db, 1, later), [3, 6, 12], "9 was gone before anybody read it");
    assert_eq!(seen(&tail, &old, 1, before), [3, 6, 9]);
}
