//! Only here: positions of the events of one stream, over the index and the tail together.

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Row};
use tidelock_core::key::Key;
use tidelock_core::store::{Direction, Event};

use crate::error::Failure;
use crate::memtable::{EventLocation, Memtable};
use crate::rows;

/// The part of the log that a connection sees, and where the index of streams ends in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexView {
    /// The position up to which the index of streams is complete.
    pub(crate) indexed: i64,
    /// The newest position.
    pub(crate) newest: i64,
    /// The number of truncations.
    pub(crate) truncations: i64,
    /// The epoch of the store. Places of another epoch are invalid.
    pub(crate) epoch: i64,
}

impl IndexView {
    /// Reads the view of the connection's snapshot.
    pub(crate) fn of(db: &Connection) -> rusqlite::Result<Self> {
        let mut statement = db.prepare_cached(
            "SELECT (SELECT value FROM tidelock_counters WHERE name = 'indexed'),
                    (SELECT coalesce(max(position), 0) FROM tidelock_events),
                    (SELECT value FROM tidelock_counters WHERE name = 'truncations'),
                    (SELECT value FROM tidelock_counters WHERE name = 'epoch')",
        )?;
        statement.query_row([], |row| {
            Ok(Self {
                indexed: row.get(0)?,
                newest: row.get(1)?,
                truncations: row.get(2)?,
                epoch: row.get(3)?,
            })
        })
    }
}

/// A stream, as stored in its row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) no: i64,
    /// All events below this version were removed.
    pub(crate) first: i64,
}

impl Stream {
    /// Finds the stream of a key.
    pub(crate) fn find(db: &Connection, key: &Key) -> rusqlite::Result<Option<Self>> {
        db.prepare_cached("SELECT id, first_version FROM tidelock_streams WHERE key = ?1")?
            .query_row([key.canonical()], |row| Ok(Self { no: row.get(0)?, first: row.get(1)? }))
            .optional()
    }
}

/// The places of one stream: up to `indexed` in the index, the rest in a list. Neither holds removed events.
#[derive(Debug)]
pub(crate) struct EventLocator {
    stream: Stream,
    indexed: i64,
    pub(crate) tail: Vec<EventLocation>,
}

impl EventLocator {
    /// Creates the places of a stream whose tail may still list removed events.
    pub(crate) fn new(stream: Stream, indexed: i64, mut tail: Vec<EventLocation>) -> Self {
        let removed = tail.partition_point(|place| place.version < stream.first);
        tail.drain(..removed);
        Self { stream, indexed, tail }
    }

    /// Returns the places in a reader's snapshot.
    pub(crate) fn snapshot(db: &Connection, tail: &Memtable, stream: Stream) -> Result<Self, Failure> {
        let view = IndexView::of(db)?;
        Ok(Self::new(stream, view.indexed, tail.of(db, stream.no, view)?))
    }

    /// Returns the version of the last event, removed or not.
    pub(crate) fn head(&self, db: &Connection) -> Result<Option<i64>, Failure> {
        if let Some(last) = self.tail.last() {
            return Ok(Some(last.version));
        }
        let indexed: Option<i64> = db.prepare_cached(HEAD)?.query_row([self.stream.no], |row| row.get(0))?;
        let removed = (self.stream.first > 0).then(|| self.stream.first - 1);
        Ok(indexed.max(removed))
    }

    /// Returns the version of the last event at or before a position.
    pub(crate) fn version_at(&self, db: &Connection, position: i64) -> Result<Option<i64>, Failure> {
        let seen = self.tail.partition_point(|place| place.position <= position);
        if let Some(place) = seen.checked_sub(1).and_then(|last| self.tail.get(last)) {
            return Ok(Some(place.version));
        }
        let upto = position.min(self.indexed);
        let head: Option<i64> = db.prepare_cached(HEAD)?.query_row([self.stream.no], |row| row.get(0))?;
        let Some(head) = head else { return Ok(None) };
        // Positions rise with versions, which have no gaps. The search goes back from the head in steps that double. It
        // takes few steps for a reader that is nearly there, and about forty for one that is a million events behind.
        let (mut high, mut step) = (head + 1, 1);
        let mut low = loop {
            let probe = (high - step).max(self.stream.first);
            if probe >= high || self.is_by(db, probe, upto)? {
                break probe;
            }
            (high, step) = (probe, step * 2);
        };
        if low >= high {
            return Ok(None);
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.is_by(db, middle, upto)? { low = middle } else { high = middle }
        }
        Ok(Some(low))
    }

    /// Returns whether the indexed event of a version is at or before a position.
    fn is_by(&self, db: &Connection, version: i64, position: i64) -> Result<bool, Failure> {
        let mut statement = db.prepare_cached(POSITION_OF)?;
        let found: Option<i64> =
            statement.query_row((self.stream.no, version), |row| row.get(0)).optional()?;
        Ok(found.is_some_and(|found| found <= position))
    }

    /// Visits events from a version on, one by one, until the visitor stops.
    pub(crate) fn visit(
        &self,
        db: &Connection,
        from: i64,
        direction: Direction,
        mut visitor: impl FnMut(Event) -> bool,
    ) -> Result<(), Failure> {
        match direction {
            Direction::Forward => {
                let from = from.max(self.stream.first);
                if self.visit_index(db, FORWARD, from, &mut visitor)? {
                    self.visit_tail(db, self.tail.iter().filter(|p| p.version >= from), &mut visitor)?;
                }
            }
            Direction::Backward => {
                if self.visit_tail(db, self.tail.iter().rev().filter(|p| p.version <= from), &mut visitor)? {
                    self.visit_index(db, BACKWARD, from, &mut visitor)?;
                }
            }
        }
        Ok(())
    }

    fn visit_index(
        &self,
        db: &Connection,
        order: &str,
        from: i64,
        visitor: &mut impl FnMut(Event) -> bool,
    ) -> Result<bool, Failure> {
        let mut statement = db.prepare_cached(&format!("SELECT {} {order}", rows::EVENT_COLUMNS))?;
        let mut found = statement.query((self.stream.no, from, self.indexed))?;
        while let Some(row) = found.next()? {
            if !visitor(rows::event(row)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn visit_tail<'a>(
        &self,
        db: &Connection,
        places: impl Iterator<Item = &'a EventLocation>,
        visitor: &mut impl FnMut(Event) -> bool,
    ) -> Result<bool, Failure> {
        let mut statement: CachedStatement<'_> =
            db.prepare_cached(&format!("SELECT {} {AT}", rows::EVENT_COLUMNS))?;
        for place in places {
            let event = statement.query_row([place.position], |row: &Row<'_>| rows::event(row))?;
            if !visitor(event) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

const HEAD: &str = "SELECT max(version) FROM tidelock_stream_index WHERE stream = ?1";

const POSITION_OF: &str = "SELECT position FROM tidelock_stream_index WHERE stream = ?1 AND version = ?2";

const FORWARD: &str = "FROM tidelock_stream_index i CROSS JOIN tidelock_events e ON e.position = i.position \
    CROSS JOIN tidelock_streams s ON s.id = i.stream \
    WHERE i.stream = ?1 AND i.version >= ?2 AND i.position <= ?3 ORDER BY i.version";

const BACKWARD: &str = "FROM tidelock_stream_index i CROSS JOIN tidelock_events e ON e.position = i.position \
    CROSS JOIN tidelock_streams s ON s.id = i.stream \
    WHERE i.stream = ?1 AND i.version <= ?2 AND i.position <= ?3 ORDER BY i.version DESC";

const AT: &str =
    "FROM tidelock_events e CROSS JOIN tidelock_streams s ON s.id = e.stream WHERE e.position = ?1";

#[cfg(test)]
mod tests;
