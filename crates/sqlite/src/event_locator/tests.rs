//! Snapshots of a stream: a snapshot's contents do not depend on later removals or reads by other connections.
//!
//! Only here: PostgreSQL keeps places in an index that belongs to the snapshot.

use std::sync::Arc;

use tidelock_core::clock::Timestamp;
use tidelock_core::id::{EventType, StreamVersion};
use tidelock_core::payload::Payload;
use tidelock_core::store::{Batch, Expect, NewEvent};

use super::*;
use crate::index_merge::IndexMerger;
use crate::session::Session;

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

struct File {
    directory: tempfile::TempDir,
    writer: Connection,
    merger: IndexMerger,
}

impl File {
    /// A database whose tail is merged when it has grown by this number of events.
    fn new(unindexed: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = Connection::open(directory.path().join("a.db")).unwrap();
        writer.pragma_update(None, "journal_mode", "wal").unwrap();
        crate::migrate::run(&mut writer, false, NOW).unwrap();
        Self { directory, writer, merger: IndexMerger::new(unindexed) }
    }

    /// Opens a connection with a snapshot of the current state.
    fn snapshot(&self) -> Connection {
        let reader = Connection::open(self.directory.path().join("a.db")).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM tidelock_streams").unwrap();
        reader
    }

    /// Writes one batch as a writer does.
    fn write(&mut self, tail: &Arc<Memtable>, batch: &Batch) {
        let (db, crowd) = (&self.writer, 1_000);
        let mut session = Session::open(db, Arc::clone(tail)).unwrap();
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        session.begun();
        session.merge(db, &mut self.merger, crowd).unwrap();
        session.apply(db, batch, NOW).unwrap().unwrap();
        session.flush(db).unwrap();
        db.execute_batch("COMMIT").unwrap();
        session.committed(&mut self.merger);
    }
}

fn stream() -> Key {
    Key::single("s").unwrap()
}

fn append(count: usize) -> Batch {
    let event = || NewEvent::new(EventType::new("E").unwrap(), Payload::null());
    Batch::new().append(&stream(), Expect::Any, (0..count).map(|_| event()))
}

fn truncate(before: u64) -> Batch {
    Batch::new().truncate(&stream(), StreamVersion(before))
}

/// Returns the versions that a snapshot shows, and the head.
fn shown(db: &Connection, tail: &Memtable) -> (Vec<u64>, Option<i64>) {
    let places = EventLocator::snapshot(db, tail, Stream::find(db, &stream()).unwrap().unwrap()).unwrap();
    let mut versions = Vec::new();
    let mut note = |event: Event| {
        versions.push(event.version.0);
        true
    };
    places.visit(db, 0, Direction::Forward, &mut note).unwrap();
    (versions, places.head(db).unwrap())
}

fn from(first: u64, last: u64) -> (Vec<u64>, Option<i64>) {
    ((first..=last).collect(), i64::try_from(last).ok())
}

#[test]
fn an_older_snapshot_shows_what_a_newer_one_lost() {
    // Nothing indexed, a part, and everything.
    for unindexed in [1_000, 5, 1] {
        let mut file = File::new(unindexed);
        let writing = Arc::new(Memtable::default());
        for _ in 0..3 {
            file.write(&writing, &append(4));
        }
        let before = file.snapshot();
        file.write(&writing, &truncate(7));
        let after = file.snapshot();
        file.write(&writing, &append(1));
        file.write(&writing, &truncate(13));
        let last = file.snapshot();
        // A map that is filled after the removal, and one that had all events before.
        for tail in [Memtable::default(), Arc::into_inner(writing).unwrap()] {
            for _ in 0..2 {
                assert_eq!(shown(&last, &tail), (Vec::new(), Some(12)), "unindexed {unindexed}");
                assert_eq!(shown(&after, &tail), from(7, 11), "unindexed {unindexed}");
                assert_eq!(shown(&before, &tail), from(0, 11), "unindexed {unindexed}");
            }
        }
    }
}

#[test]
fn removed_events_are_not_indexed() {
    let mut file = File::new(4);
    // Two processes: one merges, the other removes events that the first has in its map.
    let (merging, removing) = (Arc::new(Memtable::default()), Arc::new(Memtable::default()));
    file.write(&merging, &append(3));
    file.write(&removing, &truncate(2));
    for _ in 0..4 {
        file.write(&merging, &append(3));
    }
    let count = |sql: &str| file.writer.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert!(count("SELECT value FROM tidelock_counters WHERE name = 'indexed'") > 3, "nothing was merged");
    assert!(count("SELECT count(*) FROM tidelock_stream_index") > 1);
    let lost = "SELECT count(*) FROM tidelock_stream_index WHERE position NOT IN \
        (SELECT position FROM tidelock_events)";
    assert_eq!(count(lost), 0);
    assert_eq!(shown(&file.snapshot(), &merging), from(2, 14));
}

#[test]
fn d13_the_place_of_a_reader_is_found_however_far_behind_it_is() {
    let beside = || {
        let event = NewEvent::new(EventType::new("E").unwrap(), Payload::null());
        Batch::new().append(&Key::single("beside").unwrap(), Expect::Any, [event])
    };
    for unindexed in [1_000, 7, 1] {
        let (mut file, tail) = (File::new(unindexed), Arc::new(Memtable::default()));
        for i in 0..40 {
            file.write(&tail, &append(1 + i % 3));
            file.write(&tail, &beside());
        }
        for first in [0, 11, 60] {
            file.write(&tail, &truncate(first));
            let db = file.snapshot();
            let stream = Stream::find(&db, &stream()).unwrap().unwrap();
            let places = EventLocator::snapshot(&db, &tail, stream).unwrap();
            let mut events = Vec::new();
            let note = |event: Event| {
                events.push((rows::int(event.version.0), rows::int(event.position.0)));
                true
            };
            places.visit(&db, 0, Direction::Forward, note).unwrap();
            for position in 0..=events.last().unwrap().1 + 2 {
                let expected =
                    events.iter().rev().find(|(_, at)| *at <= position).map(|(version, _)| *version);
                let found = places.version_at(&db, position).unwrap();
                assert_eq!(found, expected, "position {position}, unindexed {unindexed}, first {first}");
            }
        }
    }
}
