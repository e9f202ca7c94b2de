//! Only here: removal of the first events of streams, which may be in the index, in the tail or in the open
//! transaction. PostgreSQL has one index that holds all of them.
//!
//! The map of the tail keeps the places of removed events, for readers whose view is older. Every reader of a stream
//! leaves out the places below its first version. If the process dies in the middle, the transaction is rolled back.

use rusqlite::Connection;
use tidelock_core::model::working_set::Truncated;
use tidelock_core::store::StoreErrorKind;

use crate::error::Failure;
use crate::event_locator::Stream;
use crate::rows::int;
use crate::session::Session;

const REMOVE_INDEXED: &str = "DELETE FROM tidelock_events WHERE position IN \
    (SELECT position FROM tidelock_stream_index WHERE stream = ?1 AND version >= ?2 AND version < ?3)";

const REMOVE: &str = "DELETE FROM tidelock_events WHERE position = ?1";

const REMOVE_PLACES: &str = "DELETE FROM tidelock_stream_index WHERE stream = ?1 AND version < ?2";

const FIRST_VERSION: &str = "UPDATE tidelock_streams SET first_version = ?2 WHERE id = ?1";

impl Session {
    /// Removes events in the open transaction, including those that were written in it.
    pub(crate) fn truncate(&mut self, db: &Connection, truncated: &[Truncated]) -> Result<(), Failure> {
        if truncated.is_empty() {
            return Ok(());
        }
        for removal in truncated {
            self.remove(db, removal)?;
        }
        self.truncations += 1;
        let position = int(self.facts.counters.position.0);
        let mut counter = db.prepare_cached("UPDATE tidelock_counters SET value = ?2 WHERE name = ?1")?;
        counter.execute(("position", position))?;
        counter.execute(("truncations", self.truncations))?;
        Ok(())
    }

    fn remove(&self, db: &Connection, removal: &Truncated) -> Result<(), Failure> {
        let Some(no) = self.streams.get(&removal.stream).copied() else {
            let detail = format!("stream {} has no row", removal.stream);
            return Err(Failure::new(StoreErrorKind::Bug, "removing events", detail));
        };
        let (first, before) = (int(removal.from.0), int(removal.before.0));
        // Read before anything is removed. The map of the tail is shared with readers, and is brought up to date here
        // with committed events. After this, nothing from this transaction is read into it.
        let places = self.places(db, Stream { no, first })?;
        db.prepare_cached(REMOVE_INDEXED)?.execute((no, first, before))?;
        let mut remove = db.prepare_cached(REMOVE)?;
        for place in places.tail.iter().take_while(|place| place.version < before) {
            remove.execute([place.position])?;
        }
        db.prepare_cached(REMOVE_PLACES)?.execute((no, before))?;
        db.prepare_cached(FIRST_VERSION)?.execute((no, before))?;
        Ok(())
    }
}
