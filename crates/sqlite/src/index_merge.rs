//! Only here: merging the tail of the log into the index of streams, a little with every group.
//!
//! A merge takes all committed events of the tail, sorted by stream. It writes a slice of them with each group, so that
//! no caller waits for all of it. The counter `indexed` moves when the last slice is written, in the same transaction.
//! If the process dies in between, the written slices are valid, and the next merge writes them again.

use rusqlite::Connection;

use crate::error::Failure;
use crate::event_locator::IndexView;
use crate::memtable::{EventLocation, Memtable};

/// The smallest slice. Larger groups write larger ones, so that a merge always ends before the next is due.
const SLICE: usize = 4;

/// Groups of fewer events leave the merging to larger ones, while the tail is not too long.
const CROWD: usize = 8;

/// After a failure, most likely a full disk, merging pauses for this number of groups.
const PAUSE: u32 = 1_000;

/// Changes nothing when the place exists already; a place never changes.
const INSERT: &str = "INSERT INTO tidelock_stream_index (stream, version, position) VALUES (?1, ?2, ?3) \
    ON CONFLICT (stream, version) DO NOTHING";

/// The same where events were removed: a removed event gets no place.
const INSERT_WHAT_IS_LEFT: &str = "INSERT INTO tidelock_stream_index (stream, version, position) SELECT ?1, ?2, ?3 \
    WHERE ?2 >= (SELECT first_version FROM tidelock_streams WHERE id = ?1) ON CONFLICT (stream, version) DO NOTHING";

/// A merge in progress.
#[derive(Debug)]
struct RunningMerge {
    upto: i64,
    places: Vec<(i64, EventLocation)>,
    next: usize,
}

/// Decides when to merge, and how much at a time.
#[derive(Debug)]
pub(crate) struct IndexMerger {
    /// The length of the tail at which a merge begins.
    threshold: i64,
    running: Option<RunningMerge>,
    /// Where the last merge ended. Readers with a slightly older view may still look up places in the tail up to there.
    last: i64,
    /// The number of groups before a failed merge is retried.
    pause: u32,
}

impl IndexMerger {
    pub(crate) fn new(threshold: usize) -> Self {
        let threshold = i64::try_from(threshold.max(1)).unwrap_or(i64::MAX);
        Self { threshold, running: None, last: 0, pause: 0 }
    }

    /// Discards the merge in progress: the transaction was rolled back, and with it the last slice.
    pub(crate) fn stop(&mut self) {
        self.running = None;
    }

    /// Records that a merge failed, so that the writes of callers do not fail with it.
    pub(crate) fn failed(&mut self) {
        self.running = None;
        self.pause = PAUSE;
    }

    /// Writes the next slice. `view` is the committed state before this transaction, `events` the number of events that
    /// recent groups added. Returns the position up to which the index is now complete.
    pub(crate) fn work(
        &mut self,
        db: &Connection,
        tail: &Memtable,
        view: IndexView,
        events: usize,
    ) -> Result<i64, Failure> {
        let IndexView { indexed, newest: committed, truncations, .. } = view;
        if self.pause > 0 {
            self.pause -= 1;
            return Ok(indexed);
        }
        // A lone commit does not write the pages of other callers' events until it has to.
        if events < CROWD && committed - indexed < 2 * self.threshold {
            return Ok(indexed);
        }
        // Another process may have been faster.
        self.running = self.running.take().filter(|running| running.upto > indexed);
        if self.running.is_none() && committed - indexed >= self.threshold {
            let places = tail.all(db, view)?;
            self.running = Some(RunningMerge { upto: committed, places, next: 0 });
        }
        let Some(running) = &mut self.running else { return Ok(indexed) };
        let slice = running.places.iter().skip(running.next).take(SLICE + 2 * events);
        let insert = if truncations > 0 { INSERT_WHAT_IS_LEFT } else { INSERT };
        let mut statement = db.prepare_cached(insert)?;
        let mut written = 0;
        for (stream, place) in slice {
            statement.execute((stream, place.version, place.position))?;
            written += 1;
        }
        running.next += written;
        if running.next < running.places.len() {
            return Ok(indexed);
        }
        let upto = running.upto;
        self.running = None;
        db.prepare_cached("UPDATE tidelock_counters SET value = max(value, ?1) WHERE name = 'indexed'")?
            .execute([upto])?;
        Ok(upto)
    }

    /// Called when a finished merge was committed. Prunes the tail, one merge behind, for readers whose view is older.
    pub(crate) fn committed(&mut self, tail: &Memtable, indexed: i64) {
        if indexed != self.last {
            tail.prune(self.last);
            self.last = indexed;
        }
    }
}
