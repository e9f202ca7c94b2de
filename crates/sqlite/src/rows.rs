//! Conversion between SQLite rows and the rows of the model. Numbers are stored as signed 64-bit integers.

use rusqlite::Row;
use rusqlite::types::Type;
use tidelock_core::clock::Timestamp;
use tidelock_core::id::{
    DocVersion, EventId, EventType, Fence, Owner, Position, Priority, QueueName, StreamVersion,
};
use tidelock_core::key::Key;
use tidelock_core::model::rows::{Blocked, DocumentRow, Event, LeaseRow, Lifetime, StreamRow, WorkRow};
use tidelock_core::payload::Payload;
use uuid::Uuid;

use crate::event_locator::Stream;

/// The columns of an event, joined with the key of its stream, in the order that [`event`] reads.
pub(crate) const EVENT_COLUMNS: &str =
    "e.position, s.key, e.version, e.id, e.type, e.recorded_at, e.payload, e.meta, e.correlation";

/// The columns of a document in the order that [`document`] reads.
pub(crate) const DOCUMENT_COLUMNS: &str = "key, version, value, updated_at, expires_at";

/// The columns of a work row in the order that [`work`] reads.
pub(crate) const WORK_COLUMNS: &str = "seq, key, queue, priority, recurring, due_at, wake_at, position, follows, payload, \
    attempts, takeovers, last_error, blocked_reason, blocked_at, lease_owner, lease_fence, leased_at, \
    lease_expires_at, enqueued_at";

/// Converts a number to SQLite's type. Nothing counts beyond 2^63.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number to the model's type.
pub(crate) fn uint(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn instant(micros: Option<i64>) -> Option<Timestamp> {
    micros.map(Timestamp::from_micros)
}

fn broken(column: usize, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}

pub(crate) fn text<T: std::str::FromStr>(row: &Row<'_>, column: usize) -> rusqlite::Result<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    row.get_ref(column)?.as_str()?.parse().map_err(|e| broken(column, e))
}

pub(crate) fn key(row: &Row<'_>, column: usize) -> rusqlite::Result<Key> {
    Ok(Key::trusted(row.get_ref(column)?.as_str()?))
}

pub(crate) fn stream(stream: Stream, head: Option<i64>, closed_at: Option<i64>) -> StreamRow {
    StreamRow {
        head: head.map(|version| StreamVersion(uint(version))),
        first: StreamVersion(uint(stream.first)),
        closed_at: instant(closed_at),
    }
}

pub(crate) fn event(row: &Row<'_>) -> rusqlite::Result<Event> {
    let meta = row.get_ref(7)?.as_str_or_null()?;
    Ok(Event {
        position: Position(uint(row.get(0)?)),
        stream: key(row, 1)?,
        version: StreamVersion(uint(row.get(2)?)),
        id: EventId(Uuid::from_bytes(row.get(3)?)),
        event_type: text::<EventType>(row, 4)?,
        at: Timestamp::from_micros(row.get(5)?),
        payload: Payload::trusted(row.get_ref(6)?.as_str()?),
        meta: meta.map_or_else(Payload::null, Payload::trusted),
        correlation: row.get(8)?,
    })
}

pub(crate) fn document(row: &Row<'_>) -> rusqlite::Result<(Key, DocumentRow)> {
    let value = row.get_ref(2)?.as_str_or_null()?.map(Payload::trusted);
    let found = DocumentRow {
        version: DocVersion(uint(row.get(1)?)),
        value,
        updated_at: Timestamp::from_micros(row.get(3)?),
        expires_at: instant(row.get(4)?),
    };
    Ok((key(row, 0)?, found))
}

pub(crate) fn work(row: &Row<'_>) -> rusqlite::Result<WorkRow> {
    let priority = Priority::new(row.get(3)?).map_err(|e| broken(3, e))?;
    let standing: bool = row.get(4)?;
    Ok(WorkRow {
        seq: uint(row.get(0)?),
        key: key(row, 1)?,
        queue: text::<QueueName>(row, 2)?,
        priority,
        lifetime: if standing { Lifetime::Standing } else { Lifetime::Once },
        due: instant(row.get(5)?),
        woken: instant(row.get(6)?),
        position: row.get::<_, Option<i64>>(7)?.map(|p| Position(uint(p))),
        follow: row.get_ref(8)?.as_str_or_null()?.map(Key::trusted),
        payload: Payload::trusted(row.get_ref(9)?.as_str()?),
        attempts: row.get(10)?,
        takeovers: row.get(11)?,
        last_error: row.get(12)?,
        blocked: blocked(row)?,
        lease: lease(row)?,
        enqueued_at: Timestamp::from_micros(row.get(19)?),
    })
}

fn blocked(row: &Row<'_>) -> rusqlite::Result<Option<Blocked>> {
    let (Some(reason), since) = (row.get::<_, Option<String>>(13)?, row.get::<_, Option<i64>>(14)?) else {
        return Ok(None);
    };
    Ok(Some(Blocked { reason, since: Timestamp::from_micros(since.unwrap_or(0)) }))
}

fn lease(row: &Row<'_>) -> rusqlite::Result<Option<LeaseRow>> {
    if row.get_ref(15)?.as_str_or_null()?.is_none() {
        return Ok(None);
    }
    Ok(Some(LeaseRow {
        owner: text::<Owner>(row, 15)?,
        fence: Fence(uint(row.get(16)?)),
        since: Timestamp::from_micros(row.get(17)?),
        until: Timestamp::from_micros(row.get(18)?),
    }))
}
