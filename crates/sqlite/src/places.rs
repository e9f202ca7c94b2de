//! Only here: where the events of one stream stand, over the index and the tail together.

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Row};
use tidelock_core::key::Key;
use tidelock_core::store::{Direction, Event};

use crate::error::Failure;
use crate::rows;
use crate::tail::{Place, Tail};

/// How far the index of streams is complete.
pub(crate) fn indexed(db: &Connection) -> rusqlite::Result<i64> {
    db.prepare_cached("SELECT value FROM tidelock_counters WHERE name = 'indexed'")?
        .query_row([], |row| row.get(0))
}

/// The newest position that the connection sees.
pub(crate) fn newest(db: &Connection) -> rusqlite::Result<i64> {
    db.prepare_cached("SELECT coalesce(max(position), 0) FROM tidelock_events")?
        .query_row([], |row| row.get(0))
}

/// The number of a stream.
pub(crate) fn number(db: &Connection, stream: &Key) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached("SELECT no FROM tidelock_streams WHERE key = ?1")?
        .query_row([stream.canonical()], |row| row.get(0))
        .optional()
}

/// The places of one stream: up to `indexed` in the index, the rest listed.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) stream: i64,
    pub(crate) indexed: i64,
    pub(crate) tail: Vec<Place>,
}

impl Places {
    /// What a reader's snapshot shows.
    pub(crate) fn snapshot(db: &Connection, tail: &Tail, stream: i64) -> Result<Self, Failure> {
        let indexed = indexed(db)?;
        let tail = tail.of(db, stream, indexed, newest(db)?)?;
        Ok(Self { stream, indexed, tail })
    }

    /// The version of the last event.
    pub(crate) fn head(&self, db: &Connection) -> Result<Option<i64>, Failure> {
        if let Some(last) = self.tail.last() {
            return Ok(Some(last.version));
        }
        let mut statement = db.prepare_cached(HEAD)?;
        Ok(statement.query_row([self.stream], |row| row.get(0))?)
    }

    /// The version of the last event at or before a position.
    pub(crate) fn version_at(&self, db: &Connection, position: i64) -> Result<Option<i64>, Failure> {
        if let Some(place) = self.tail.iter().rev().find(|place| place.position <= position) {
            return Ok(Some(place.version));
        }
        let upto = position.min(self.indexed);
        Ok(db.prepare_cached(VERSION_AT)?.query_row((self.stream, upto), |row| row.get(0)).optional()?)
    }

    /// Shows events from a version on, one by one, until the visitor has enough.
    pub(crate) fn visit(
        &self,
        db: &Connection,
        from: i64,
        direction: Direction,
        mut visitor: impl FnMut(Event) -> bool,
    ) -> Result<(), Failure> {
        match direction {
            Direction::Forward => {
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
        let mut found = statement.query((self.stream, from, self.indexed))?;
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
        places: impl Iterator<Item = &'a Place>,
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

/// Found from the head backwards: as many steps as there are events to come.
const VERSION_AT: &str = "SELECT version FROM tidelock_stream_index \
    WHERE stream = ?1 AND position <= ?2 ORDER BY version DESC LIMIT 1";

const FORWARD: &str = "FROM tidelock_stream_index i CROSS JOIN tidelock_events e ON e.position = i.position \
    CROSS JOIN tidelock_streams s ON s.no = i.stream \
    WHERE i.stream = ?1 AND i.version >= ?2 AND i.position <= ?3 ORDER BY i.version";

const BACKWARD: &str = "FROM tidelock_stream_index i CROSS JOIN tidelock_events e ON e.position = i.position \
    CROSS JOIN tidelock_streams s ON s.no = i.stream \
    WHERE i.stream = ?1 AND i.version <= ?2 AND i.position <= ?3 ORDER BY i.version DESC";

const AT: &str =
    "FROM tidelock_events e CROSS JOIN tidelock_streams s ON s.no = e.stream WHERE e.position = ?1";
