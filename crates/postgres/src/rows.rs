//! Conversion between PostgreSQL rows and the rows of the model. Numbers are stored as signed 64-bit integers.

use std::borrow::Cow;

use tidelock_core::clock::Timestamp;
use tidelock_core::id::{
    DocVersion, EventId, EventType, Fence, Owner, Position, Priority, QueueName, StreamVersion,
};
use tidelock_core::key::Key;
use tidelock_core::model::rows::{Blocked, DocumentRow, Event, LeaseRow, Lifetime, StreamRow, WorkRow};
use tidelock_core::payload::Payload;
use tidelock_core::store::StoreErrorKind;
use tokio_postgres::types::FromSql;

use crate::db::{Columns, Row};
use crate::error::Failure;

/// The columns of an event in the order that [`event`] reads.
pub(crate) const EVENT_COLUMNS: &str = "e.position, e.stream, e.version, e.id, e.type, e.recorded_at, e.payload::text, e.meta::text, e.correlation";

/// The columns of a stream in the order that [`stream`] reads.
pub(crate) const STREAM_COLUMNS: &str = "key, head, closed_at, first_version";

/// The columns of a document in the order that [`document`] reads.
pub(crate) const DOCUMENT_COLUMNS: &str = "key, version, value::text, updated_at, expires_at";

/// The columns of a work row in the order that [`work`] reads.
pub(crate) const WORK_COLUMNS: &str = "seq, key, queue, priority, recurring, due_at, wake_at, position, follows, payload::text, \
    attempts, takeovers, last_error, blocked_reason, blocked_at, lease_owner, lease_fence, leased_at, \
    lease_expires_at, enqueued_at, revision";

/// The identity of one state of a work row: its number and the count of its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) seq: i64,
    pub(crate) revision: i64,
}

/// Converts a number to PostgreSQL's type. Nothing counts beyond 2^63.
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

/// Escapes a character that PostgreSQL text cannot hold, or itself. It is a noncharacter, so texts do not use it.
const ESCAPE: char = '\u{10FFFF}';

/// Converts a text to one that PostgreSQL can hold: any text without the character zero.
pub(crate) fn storable(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace(ESCAPE, "\u{10FFFF}1").replace('\0', "\u{10FFFF}0"))
}

/// Reverses [`storable`].
fn restored(text: String) -> String {
    if !text.contains(ESCAPE) {
        return text;
    }
    text.replace("\u{10FFFF}0", "\0").replace("\u{10FFFF}1", "\u{10FFFF}")
}

fn free_text(row: &Row, column: usize) -> Result<Option<String>, Failure> {
    Ok(get::<Option<String>>(row, column)?.map(restored))
}

/// Returns a column's value.
pub(crate) fn get<'a, T: FromSql<'a>>(row: &'a impl Columns, column: usize) -> Result<T, Failure> {
    row.column(column).map_err(|e| broken(column, &e))
}

fn broken(column: usize, error: &dyn std::fmt::Display) -> Failure {
    let detail = format!("column {column} does not read back: {error}");
    Failure::new(StoreErrorKind::Corrupt, "reading a row of PostgreSQL", detail)
}

pub(crate) fn text<T: std::str::FromStr>(row: &Row, column: usize) -> Result<T, Failure>
where
    T::Err: std::fmt::Display,
{
    get::<&str>(row, column)?.parse().map_err(|e| broken(column, &e))
}

pub(crate) fn key(row: &Row, column: usize) -> Result<Key, Failure> {
    Ok(Key::trusted(get::<&str>(row, column)?))
}

pub(crate) fn priority(row: &Row, column: usize) -> Result<Priority, Failure> {
    let level = u8::try_from(get::<i16>(row, column)?).map_err(|e| broken(column, &e))?;
    Priority::new(level).map_err(|e| broken(column, &e))
}

pub(crate) fn event(row: &Row) -> Result<Event, Failure> {
    Ok(Event {
        position: Position(uint(get(row, 0)?)),
        stream: key(row, 1)?,
        version: StreamVersion(uint(get(row, 2)?)),
        id: EventId(get(row, 3)?),
        event_type: text::<EventType>(row, 4)?,
        at: Timestamp::from_micros(get(row, 5)?),
        payload: Payload::trusted(get::<&str>(row, 6)?),
        meta: get::<Option<&str>>(row, 7)?.map_or_else(Payload::null, Payload::trusted),
        correlation: free_text(row, 8)?,
    })
}

pub(crate) fn stream(row: &Row) -> Result<(Key, StreamRow), Failure> {
    let head = get::<Option<i64>>(row, 1)?.map(|version| StreamVersion(uint(version)));
    let first = StreamVersion(uint(get(row, 3)?));
    Ok((key(row, 0)?, StreamRow { head, first, closed_at: instant(get(row, 2)?) }))
}

pub(crate) fn document(row: &Row) -> Result<(Key, DocumentRow), Failure> {
    let found = DocumentRow {
        version: DocVersion(uint(get(row, 1)?)),
        value: get::<Option<&str>>(row, 2)?.map(Payload::trusted),
        updated_at: Timestamp::from_micros(get(row, 3)?),
        expires_at: instant(get(row, 4)?),
    };
    Ok((key(row, 0)?, found))
}

pub(crate) fn work(row: &Row) -> Result<(WorkRow, Stamp), Failure> {
    let standing: bool = get(row, 4)?;
    let seq: i64 = get(row, 0)?;
    let found = WorkRow {
        seq: uint(seq),
        key: key(row, 1)?,
        queue: text::<QueueName>(row, 2)?,
        priority: priority(row, 3)?,
        lifetime: if standing { Lifetime::Standing } else { Lifetime::Once },
        due: instant(get(row, 5)?),
        woken: instant(get(row, 6)?),
        position: get::<Option<i64>>(row, 7)?.map(|p| Position(uint(p))),
        follow: get::<Option<&str>>(row, 8)?.map(Key::trusted),
        payload: Payload::trusted(get::<&str>(row, 9)?),
        attempts: count(row, 10)?,
        takeovers: count(row, 11)?,
        last_error: free_text(row, 12)?,
        blocked: blocked(row)?,
        lease: lease(row)?,
        enqueued_at: Timestamp::from_micros(get(row, 19)?),
    };
    Ok((found, Stamp { seq, revision: get(row, 20)? }))
}

fn count(row: &Row, column: usize) -> Result<u32, Failure> {
    u32::try_from(get::<i64>(row, column)?).map_err(|e| broken(column, &e))
}

fn blocked(row: &Row) -> Result<Option<Blocked>, Failure> {
    let (Some(reason), since) = (free_text(row, 13)?, get::<Option<i64>>(row, 14)?) else {
        return Ok(None);
    };
    Ok(Some(Blocked { reason, since: Timestamp::from_micros(since.unwrap_or(0)) }))
}

fn lease(row: &Row) -> Result<Option<LeaseRow>, Failure> {
    if get::<Option<&str>>(row, 15)?.is_none() {
        return Ok(None);
    }
    Ok(Some(LeaseRow {
        owner: text::<Owner>(row, 15)?,
        fence: Fence(uint(get(row, 16)?)),
        since: Timestamp::from_micros(get(row, 17)?),
        until: Timestamp::from_micros(get(row, 18)?),
    }))
}

#[cfg(test)]
mod tests {
    use super::{restored, storable};

    #[test]
    fn every_text_can_be_stored() {
        for text in ["", "plain", "a\0b", "\u{10FFFF}", "\u{10FFFF}0\0\u{10FFFF}1"] {
            let stored = storable(text).into_owned();
            assert!(!stored.contains('\0'));
            assert_eq!(restored(stored), text);
        }
    }
}
