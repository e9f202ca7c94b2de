//! Queries of readers, each inside one snapshot.

use rusqlite::{Connection, OptionalExtension as _};
use tidelock_core::clock::Timestamp;
use tidelock_core::key::{INDEX_KIND, Key, KeyPrefix};
use tidelock_core::model::limits::PAGE_BYTES;
use tidelock_core::store::{
    Direction, Event, EventFilter, EventPage, Get, LogQuery, Page, PageOf, Resolution, RowSet,
    StoredDocument, StoredRow, StreamInfo, StreamQuery, WorkFilter, WorkRow,
};

use crate::epoch;
use crate::error::Failure;
use crate::event_locator::{EventLocator, Stream};
use crate::memtable::Memtable;
use crate::rows::{self, int, uint};
use crate::session;
use crate::work_filter::WorkCondition;

/// A query whose filter matches little stops after this many events and reports how far it came.
const SCAN_EVENTS: usize = 100_000;

/// Begins the snapshot of a transaction, which would otherwise begin with its first query.
pub(crate) fn take_snapshot(db: &Connection) -> Result<(), Failure> {
    db.prepare_cached("SELECT 1 FROM sqlite_schema LIMIT 1")?.exists([])?;
    Ok(())
}

/// Reads rows of the snapshot, in the order of the request.
pub(crate) fn rows(
    db: &Connection,
    tail: &Memtable,
    gets: &[Get],
    now: Timestamp,
) -> Result<RowSet, Failure> {
    let row = |get: &Get| {
        Ok::<_, Failure>(match get {
            Get::Document(key) => document(db, key, now)?.map(StoredRow::Document),
            Get::Stream(key) => stream(db, tail, key)?.map(StoredRow::Stream),
            Get::Work(key) => work(db, key)?.map(|row| StoredRow::Work(Box::new(row))),
            Get::Operation(id) => {
                session::operation(db, *id)?.and_then(Resolution::into_receipt).map(StoredRow::Operation)
            }
        })
    };
    Ok(RowSet { rows: gets.iter().map(row).collect::<Result<_, _>>()?, now })
}

pub(crate) fn document(
    db: &Connection,
    key: &Key,
    now: Timestamp,
) -> Result<Option<StoredDocument>, Failure> {
    Ok(session::document(db, key)?.and_then(|row| row.visible(key, now)))
}

/// Returns the bounds of a page within a range of keys, as a condition with two parameters. Each end is one comparison,
/// so that the index scan knows where to start and where to stop.
fn bounds<'a>(prefix: &'a KeyPrefix, page: &'a Page) -> (String, &'a str, Option<&'a str>) {
    let after = page.after.as_ref().map(Key::canonical).filter(|after| *after >= prefix.from());
    let start = if after.is_some() { "key > ?1" } else { "key >= ?1" };
    let end = if prefix.below().is_some() { "key < ?2" } else { "?2 IS NULL" };
    (format!("{start} AND {end}"), after.unwrap_or(prefix.from()), prefix.below())
}

pub(crate) fn documents(
    db: &Connection,
    prefix: &KeyPrefix,
    page: &Page,
    now: Timestamp,
) -> Result<PageOf<StoredDocument>, Failure> {
    let limit = page.rows()?;
    let (condition, from, below) = visible(prefix, page);
    let columns = rows::DOCUMENT_COLUMNS;
    let mut statement =
        db.prepare_cached(&format!("SELECT {columns} FROM {condition} ORDER BY key LIMIT ?4"))?;
    let parameters = (from, below, now.as_micros(), int(limit as u64 + 1));
    let found = statement.query_map(parameters, rows::document)?;
    let visible = found.filter_map(|row| row.map(|(key, row)| row.visible(&key, now)).transpose());
    Ok(PageOf::gathered(visible, limit, now, |found| found.key.clone(), |found| found.value.len())?)
}

pub(crate) fn count_documents(db: &Connection, prefix: &KeyPrefix, now: Timestamp) -> Result<u64, Failure> {
    let page = Page::first(1);
    let (condition, from, below) = visible(prefix, &page);
    let mut statement = db.prepare_cached(&format!("SELECT count(*) FROM {condition}"))?;
    let count: i64 = statement.query_row((from, below, now.as_micros()), |row| row.get(0))?;
    Ok(uint(count))
}

/// Returns the documents of a page that a reader sees at ?3, as a table with its condition.
///
/// Index documents move from range to range, so their ranges are full of tombstones. The partial index of that kind skips them.
fn visible<'a>(prefix: &'a KeyPrefix, page: &'a Page) -> (String, &'a str, Option<&'a str>) {
    let (bounds, from, below) = bounds(prefix, page);
    let index = prefix.from().strip_prefix(INDEX_KIND).is_some_and(|rest| rest.starts_with(' '));
    let (by, kind) = match index {
        true => {
            ("INDEXED BY tidelock_documents_index", "AND key >= 'tidelock.index' AND key < 'tidelock.index$'")
        }
        false => ("", ""),
    };
    let condition = format!(
        "tidelock_documents {by} WHERE {bounds} {kind} AND value IS NOT NULL \
         AND (expires_at IS NULL OR expires_at > ?3)"
    );
    (condition, from, below)
}

const STREAM: &str = "SELECT id, first_version, key, closed_at FROM tidelock_streams";

/// Decodes a row of [`STREAM`], with its head.
fn stream_info(db: &Connection, tail: &Memtable, row: &rusqlite::Row<'_>) -> Result<StreamInfo, Failure> {
    let (stream, closed_at) = (Stream { no: row.get(0)?, first: row.get(1)? }, row.get(3)?);
    let head = EventLocator::snapshot(db, tail, stream)?.head(db)?;
    Ok(StreamInfo::of(rows::key(row, 2)?, &rows::stream(stream, head, closed_at)))
}

pub(crate) fn stream(db: &Connection, tail: &Memtable, key: &Key) -> Result<Option<StreamInfo>, Failure> {
    let mut statement = db.prepare_cached(&format!("{STREAM} WHERE key = ?1"))?;
    let mut found = statement.query([key.canonical()])?;
    found.next()?.map(|row| stream_info(db, tail, row)).transpose()
}

pub(crate) fn streams(
    db: &Connection,
    tail: &Memtable,
    prefix: &KeyPrefix,
    page: &Page,
    now: Timestamp,
) -> Result<PageOf<StreamInfo>, Failure> {
    let limit = page.rows()?;
    let (bounds, from, below) = bounds(prefix, page);
    let mut statement = db.prepare_cached(&format!("{STREAM} WHERE {bounds} ORDER BY key LIMIT ?3"))?;
    let mut found = statement.query((from, below, int(limit as u64 + 1)))?;
    let mut streams = Vec::new();
    while let Some(row) = found.next()? {
        streams.push(stream_info(db, tail, row)?);
    }
    Ok(PageOf::of(streams, limit, now, |stream| stream.key.clone()))
}

pub(crate) fn read_stream(
    db: &Connection,
    tail: &Memtable,
    query: &StreamQuery,
    now: Timestamp,
) -> Result<EventPage, Failure> {
    let limit = Page::first(query.limit).rows()?;
    let mut scan = Scan::new(&query.filter, limit, now);
    if let Some(stream) = Stream::find(db, &query.stream)? {
        let default = match query.direction {
            Direction::Forward => 0,
            Direction::Backward => i64::MAX,
        };
        let from = query.from.map_or(default, |version| int(version.0));
        EventLocator::snapshot(db, tail, stream)?
            .visit(db, from, query.direction, |event| scan.visit_event(event))?;
    }
    Ok(scan.page)
}

pub(crate) fn read_log(db: &Connection, query: &LogQuery, now: Timestamp) -> Result<EventPage, Failure> {
    let limit = Page::first(query.limit).rows()?;
    if query.direction == Direction::Forward {
        epoch::check_position(db, query)?;
    }
    let (comparison, order, default) = match query.direction {
        Direction::Forward => (">", "ASC", 0),
        Direction::Backward => ("<", "DESC", i64::MAX),
    };
    let correlated = match query.filter.correlation {
        Some(_) => "AND e.correlation = ?2",
        None => "AND ?2 IS NULL",
    };
    let mut statement = db.prepare_cached(&format!(
        "SELECT {} FROM tidelock_events e CROSS JOIN tidelock_streams s ON s.id = e.stream
         WHERE e.position {comparison} ?1 {correlated} ORDER BY e.position {order}",
        rows::EVENT_COLUMNS
    ))?;
    let after = query.after.map_or(default, |position| int(position.0));
    let mut scan = Scan::new(&query.filter, limit, now);
    let mut found = statement.query((after, query.filter.correlation.as_deref()))?;
    while let Some(row) = found.next()? {
        if !scan.visit_event(rows::event(row)?) {
            break;
        }
    }
    match scan.page {
        // The index skipped the events of other correlations, but they count as scanned.
        EventPage { end: true, events, .. } if query.filter.correlation.is_some() => {
            let edge = edge(db, query.direction)?.map(|p| tidelock_core::id::Position(uint(p)));
            let scanned_to = edge.filter(|edge| match query.direction {
                Direction::Forward => query.after.is_none_or(|after| *edge > after),
                Direction::Backward => query.after.is_none_or(|after| *edge < after),
            });
            Ok(EventPage { events, scanned_to, end: true, now })
        }
        page => Ok(page),
    }
}

/// Returns the last position in the direction of reading.
fn edge(db: &Connection, direction: Direction) -> Result<Option<i64>, Failure> {
    let sql = match direction {
        Direction::Forward => "SELECT max(position) FROM tidelock_events",
        Direction::Backward => "SELECT min(position) FROM tidelock_events",
    };
    Ok(db.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

/// A scan of events until the page is full or the scan limit is reached.
struct Scan<'a> {
    filter: &'a EventFilter,
    limit: usize,
    looked_at: usize,
    bytes: usize,
    page: EventPage,
}

impl<'a> Scan<'a> {
    fn new(filter: &'a EventFilter, limit: usize, now: Timestamp) -> Self {
        Self { filter, limit, looked_at: 0, bytes: 0, page: EventPage::empty(now) }
    }

    /// Scans an event. Returns `false` when the event belongs to the next page.
    fn visit_event(&mut self, event: Event) -> bool {
        let full = self.page.events.len() == self.limit || self.bytes >= PAGE_BYTES;
        if full || self.looked_at == SCAN_EVENTS {
            self.page.end = false;
            return false;
        }
        self.looked_at += 1;
        self.page.scanned_to = Some(event.position);
        if self.filter.matches(&event) {
            self.bytes += event.payload.len() + event.meta.len();
            self.page.events.push(event);
        }
        true
    }
}

pub(crate) fn work(db: &Connection, key: &Key) -> Result<Option<WorkRow>, Failure> {
    let mut statement =
        db.prepare_cached(&format!("SELECT {} FROM tidelock_work WHERE key = ?1", rows::WORK_COLUMNS))?;
    Ok(statement.query_row([key.canonical()], rows::work).optional()?)
}

pub(crate) fn works(
    db: &Connection,
    filter: &WorkFilter,
    page: &Page,
    now: Timestamp,
) -> Result<PageOf<WorkRow>, Failure> {
    let limit = page.rows()?;
    let condition = WorkCondition::new(filter, page.after.as_ref());
    let columns = rows::WORK_COLUMNS;
    let mut statement =
        db.prepare_cached(&format!("SELECT {columns} FROM {} ORDER BY key LIMIT ?5", condition.sql()))?;
    let (queue, pattern, from, below) = condition.parameters();
    let found = statement.query_map((queue, pattern, from, below, int(limit as u64 + 1)), rows::work)?;
    Ok(PageOf::gathered(found, limit, now, |row| row.key.clone(), |row| row.payload.len())?)
}

pub(crate) fn count_work(db: &Connection, filter: &WorkFilter) -> Result<u64, Failure> {
    let condition = WorkCondition::new(filter, None);
    let mut statement = db.prepare_cached(&format!("SELECT count(*) FROM {}", condition.sql()))?;
    let count: i64 = statement.query_row(condition.parameters(), |row| row.get(0))?;
    Ok(uint(count))
}

#[cfg(test)]
mod tests;
