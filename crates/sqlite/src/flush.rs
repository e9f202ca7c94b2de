//! Writes the changes of a group. Each row is written once, however many batches changed it.

use std::time::Duration;

use rusqlite::Connection;
use tidelock_core::clock::Timestamp;
use tidelock_core::key::Key;
use tidelock_core::model::lease;
use tidelock_core::model::rows::{Event, Lifetime, WorkRow};
use tidelock_core::model::working_set::Changes;
use tidelock_core::store::{Resolution, StoreErrorKind};

use crate::clock::FileTime;
use crate::error::Failure;
use crate::memtable::EventLocation;
use crate::rows::int;
use crate::session::{Operation, Session};

/// How often commits that change no work record the time.
const TIME_STEP: Duration = Duration::from_secs(1);

const INSERT_EVENT: &str = "INSERT INTO tidelock_events \
    (position, stream, version, id, type, recorded_at, payload, meta, correlation) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

const PUT_DOCUMENT: &str = "INSERT INTO tidelock_documents (key, version, value, updated_at, expires_at) \
    VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (key) DO UPDATE SET \
    version = excluded.version, value = excluded.value, updated_at = excluded.updated_at, \
    expires_at = excluded.expires_at";

/// A row that was removed and created again in one group has a new number, and replaces the old row.
const INSERT_WORK: &str = "INSERT OR REPLACE INTO tidelock_work (seq, key, queue, priority, recurring, ready_at, \
    due_at, wake_at, position, follows, payload, attempts, takeovers, last_error, blocked_reason, blocked_at, \
    lease_owner, lease_fence, leased_at, lease_expires_at, enqueued_at) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)";

/// SQLite rewrites the index entries of every column that an update names. The queue rarely changes, so it has a
/// separate statement.
const MOVE_WORK: &str = "UPDATE tidelock_work SET queue = ?2 WHERE seq = ?1 AND queue <> ?2";

const UPDATE_WORK: &str = "UPDATE tidelock_work SET priority = ?4, recurring = ?5, ready_at = ?6, \
    due_at = ?7, wake_at = ?8, position = ?9, follows = ?10, payload = ?11, attempts = ?12, takeovers = ?13, \
    last_error = ?14, blocked_reason = ?15, blocked_at = ?16, lease_owner = ?17, lease_fence = ?18, \
    leased_at = ?19, lease_expires_at = ?20, enqueued_at = ?21 WHERE seq = ?1 AND key = ?2";

impl Session {
    /// Writes all changes since the last flush into the open transaction.
    pub(crate) fn flush(&mut self, db: &Connection) -> Result<(), Failure> {
        let changes = self.facts.take_changes();
        for key in &changes.streams {
            self.write_stream(db, key)?;
        }
        self.insert_events(db, &changes.events)?;
        self.truncate(db, &changes.truncated)?;
        for key in &changes.documents {
            self.write_document(db, key)?;
        }
        for key in &changes.work {
            self.write_work(db, key)?;
        }
        self.write_operations(db)?;
        self.write_time(db, &changes)?;
        self.write_counters(db)
    }

    /// Records the time. Leases depend on it, so every commit that changes work records it; other commits do so once a
    /// second.
    fn write_time(&mut self, db: &Connection, changes: &Changes) -> Result<(), Failure> {
        let Changes { streams, documents, work, .. } = changes;
        let writes = !(streams.is_empty() && documents.is_empty());
        let due = !work.is_empty() || (writes && self.time.stored.after(TIME_STEP) <= self.time.now);
        let FileTime { stored, now } = self.time;
        if due && now > stored {
            db.prepare_cached("UPDATE tidelock_counters SET value = max(value, ?1) WHERE name = 'clock'")?
                .execute([now.as_micros()])?;
            self.time.stored = now;
        }
        Ok(())
    }

    fn write_stream(&mut self, db: &Connection, key: &Key) -> Result<(), Failure> {
        let closed_at = self.facts.stream(key).and_then(|row| row.closed_at).map(Timestamp::as_micros);
        if let Some(no) = self.streams.get(key) {
            // The head is the last event. Only a tombstone changes the row, and a removal, which is written later.
            if closed_at.is_some() {
                db.prepare_cached("UPDATE tidelock_streams SET closed_at = ?2 WHERE id = ?1")?
                    .execute((no, closed_at))?;
            }
            return Ok(());
        }
        db.prepare_cached("INSERT INTO tidelock_streams (key, closed_at) VALUES (?1, ?2)")?
            .execute((key.canonical(), closed_at))?;
        self.streams.insert(key.clone(), db.last_insert_rowid());
        Ok(())
    }

    fn insert_events(&mut self, db: &Connection, events: &[Event]) -> Result<(), Failure> {
        if events.is_empty() {
            return Ok(());
        }
        let mut statement = db.prepare_cached(INSERT_EVENT)?;
        for event in events {
            let Some(stream) = self.streams.get(&event.stream).copied() else {
                let detail = format!("stream {} has no row", event.stream);
                return Err(Failure::new(StoreErrorKind::Bug, "writing an event", detail));
            };
            let meta = Some(event.meta.as_str()).filter(|meta| *meta != "null");
            statement.execute((
                int(event.position.0),
                stream,
                int(event.version.0),
                event.id.0.as_bytes().as_slice(),
                event.event_type.as_str(),
                event.at.as_micros(),
                event.payload.as_str(),
                meta,
                event.correlation.as_deref(),
            ))?;
            self.wrote(
                stream,
                EventLocation { version: int(event.version.0), position: int(event.position.0) },
            );
        }
        Ok(())
    }

    fn write_document(&self, db: &Connection, key: &Key) -> Result<(), Failure> {
        let Some(row) = self.facts.document(key) else { return Ok(()) };
        db.prepare_cached(PUT_DOCUMENT)?.execute((
            key.canonical(),
            int(row.version.0),
            row.value.as_ref().map(tidelock_core::payload::Payload::as_str),
            row.updated_at.as_micros(),
            row.expires_at.map(Timestamp::as_micros),
        ))?;
        Ok(())
    }

    fn write_work(&self, db: &Connection, key: &Key) -> Result<(), Failure> {
        let Some(row) = self.facts.work(key) else {
            db.prepare_cached("DELETE FROM tidelock_work WHERE key = ?1")?.execute([key.canonical()])?;
            return Ok(());
        };
        if row.seq > self.stored.work_seq {
            return write_work_row(db, INSERT_WORK, row);
        }
        db.prepare_cached(MOVE_WORK)?.execute((int(row.seq), row.queue.as_str()))?;
        write_work_row(db, UPDATE_WORK, row)
    }

    fn write_operations(&mut self, db: &Connection) -> Result<(), Failure> {
        for Operation { id, at, resolution } in self.operations.drain(..) {
            let receipt = match resolution {
                Resolution::Applied(receipt) => Some(
                    serde_json::to_string(&receipt)
                        .map_err(|e| Failure::new(StoreErrorKind::Bug, "writing a receipt", e.to_string()))?,
                ),
                Resolution::NotApplied => None,
            };
            db.prepare_cached(
                "INSERT INTO tidelock_receipts (op_id, recorded_at, receipt) VALUES (?1, ?2, ?3)",
            )?
            .execute((id.0.as_bytes().as_slice(), at.as_micros(), receipt))?;
        }
        Ok(())
    }

    fn write_counters(&mut self, db: &Connection) -> Result<(), Failure> {
        let (now, before) = (self.facts.counters, self.stored);
        let pairs = [
            ("fence", now.fence.0, before.fence.0),
            ("document_floor", now.document_floor.0, before.document_floor.0),
        ];
        for (name, value, _) in pairs.into_iter().filter(|(_, value, before)| value != before) {
            db.prepare_cached("UPDATE tidelock_counters SET value = ?2 WHERE name = ?1")?
                .execute((name, int(value)))?;
        }
        self.stored = now;
        Ok(())
    }
}

fn write_work_row(db: &Connection, sql: &str, row: &WorkRow) -> Result<(), Failure> {
    let micros = |at: Option<Timestamp>| at.map(Timestamp::as_micros);
    let lease = row.lease.as_ref();
    let blocked = row.blocked.as_ref();
    let mut statement = db.prepare_cached(sql)?;
    statement.execute(rusqlite::params![
        int(row.seq),
        row.key.canonical(),
        row.queue.as_str(),
        row.priority.level(),
        row.lifetime == Lifetime::Standing,
        micros(lease::ready_at(row)),
        micros(row.due),
        micros(row.woken),
        row.position.map(|p| int(p.0)),
        row.follow.as_ref().map(Key::canonical),
        row.payload.as_str(),
        row.attempts,
        row.takeovers,
        row.last_error.as_deref(),
        blocked.map(|b| b.reason.as_str()),
        blocked.map(|b| b.since.as_micros()),
        lease.map(|l| l.owner.as_str()),
        lease.map(|l| int(l.fence.0)),
        lease.map(|l| l.since.as_micros()),
        lease.map(|l| l.until.as_micros()),
        row.enqueued_at.as_micros(),
    ])?;
    Ok(())
}
