//! Only here: the tail of the log, which holds the events that are not in the index of streams yet.
//!
//! A commit that changes 30 streams would write 30 pages of an index by stream. Instead it only appends to the log. The
//! writer merges thousands of events into the index at a time, in the order of streams, so that neighbours share a
//! page. Until then a process finds a stream's newest events here: a map from streams to places, filled by reading each
//! new event's stream and version once.
//!
//! The map holds committed events only, from the position it was pruned to up to the newest it has seen: all events
//! that existed when it was read. Places of events that were removed since stay in it until it is pruned; the callers
//! leave them out. It is a cache: after a restart it is empty, and is filled again from the log.

use foldhash::HashMap;
use parking_lot::Mutex;
use rusqlite::Connection;

use crate::error::Failure;
use crate::event_locator::IndexView;

/// The number of already indexed places that are kept for readers whose view is slightly older.
const LAG: i64 = 8192;

/// The place of one event of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventLocation {
    pub(crate) version: i64,
    pub(crate) position: i64,
}

/// The tail as this process knows it.
#[derive(Debug, Default)]
pub(crate) struct Memtable {
    known: Mutex<KnownLocations>,
}

#[derive(Debug, Default)]
struct KnownLocations {
    /// Places after this position are known …
    after: i64,
    /// … up to this one.
    upto: i64,
    /// The number of truncations when the last of it was read. Events that were removed by then may be missing.
    truncations: i64,
    /// The epoch in which it was read.
    epoch: i64,
    streams: HashMap<i64, Vec<EventLocation>>,
}

impl KnownLocations {
    /// Reads the places of the events that were committed since.
    fn extend(&mut self, db: &Connection, view: IndexView) -> Result<(), Failure> {
        let upto = view.newest;
        if upto <= self.upto {
            return Ok(());
        }
        let mut statement = db.prepare_cached(
            "SELECT stream, version, position FROM tidelock_events WHERE position > ?1 AND position <= ?2
             ORDER BY position",
        )?;
        let read = statement.query_map((self.upto, upto), |row| {
            Ok((row.get::<_, i64>(0)?, EventLocation { version: row.get(1)?, position: row.get(2)? }))
        })?;
        // All or nothing: a place that is recorded twice is an event that is read twice.
        let places = read.collect::<rusqlite::Result<Vec<_>>>()?;
        for (stream, place) in places {
            self.streams.entry(stream).or_default().push(place);
        }
        self.upto = upto;
        self.truncations = self.truncations.max(view.truncations);
        Ok(())
    }

    fn of(&self, stream: i64, after: i64, upto: i64) -> Vec<EventLocation> {
        let places = self.streams.get(&stream).map_or(&[][..], Vec::as_slice);
        let first = places.partition_point(|place| place.position <= after);
        places.iter().skip(first).take_while(|place| place.position <= upto).copied().collect()
    }

    fn prune(&mut self, upto: i64) {
        if upto <= self.after {
            return;
        }
        self.after = upto;
        self.upto = self.upto.max(upto);
        self.streams.retain(|_, places| {
            places.retain(|place| place.position > upto);
            !places.is_empty()
        });
    }
}

impl Memtable {
    /// Returns the places of a stream's events that are not in the index, in order. The view must be committed in what
    /// the connection sees.
    pub(crate) fn of(
        &self,
        db: &Connection,
        stream: i64,
        view: IndexView,
    ) -> Result<Vec<EventLocation>, Failure> {
        let IndexView { indexed: after, newest: upto, truncations, epoch } = view;
        if upto <= after {
            return Ok(Vec::new());
        }
        let mut known = self.known.lock();
        if epoch > known.epoch {
            // Events that were lost with the history must not be looked up.
            *known = KnownLocations { after, upto: after, epoch, ..KnownLocations::default() };
        }
        if after < known.after || truncations < known.truncations || epoch < known.epoch {
            // An old snapshot needs places that were pruned or removed, so it reads the log directly.
            drop(known);
            let mut own = KnownLocations { after, upto: after, ..KnownLocations::default() };
            own.extend(db, view)?;
            return Ok(own.of(stream, after, upto));
        }
        if known.upto < after {
            *known = KnownLocations { after, upto: after, epoch, ..KnownLocations::default() };
        }
        known.extend(db, view)?;
        // A process that only reads runs no merges after which it could prune.
        if after - known.after > 2 * LAG {
            known.prune(after - LAG);
        }
        Ok(known.of(stream, after, upto))
    }

    /// Returns all places that are not in the index, in its order.
    pub(crate) fn all(&self, db: &Connection, view: IndexView) -> Result<Vec<(i64, EventLocation)>, Failure> {
        // Brings the map up to date; no stream has number 0.
        self.of(db, 0, view)?;
        let IndexView { indexed: after, newest: upto, .. } = view;
        let known = self.known.lock();
        let places = known.streams.iter().flat_map(|(stream, places)| places.iter().map(|p| (*stream, *p)));
        let mut all: Vec<_> = places.filter(|(_, p)| p.position > after && p.position <= upto).collect();
        drop(known);
        all.sort_unstable();
        Ok(all)
    }

    /// Adds events that this process has just committed, so that they need not be read.
    pub(crate) fn add(&self, places: &[(i64, EventLocation)]) {
        let mut known = self.known.lock();
        for (stream, place) in places {
            if place.position == known.upto + 1 {
                known.upto = place.position;
                known.streams.entry(*stream).or_default().push(*place);
            }
        }
    }

    /// Drops places up to a position that the index holds durably.
    pub(crate) fn prune(&self, upto: i64) {
        self.known.lock().prune(upto);
    }
}

#[cfg(test)]
mod tests;
