//! Queries of readers, each inside one snapshot.

use rusqlite::{Connection, OptionalExtension as _};
use tidelock_core::clock::Timestamp;
use tidelock_core::id::StreamVersion;
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::store::{
    Direction, Document, EventFilter, EventPage, LogQuery, Page, PageOf, StreamInfo, StreamQuery, WorkFilter,
    WorkRow,
};

use crate::error::Failure;
use crate::rows::{self, int, uint};
use crate::session;

/// A query whose filter matches little stops after this many events and says how far it came.
const SCAN_EVENTS: usize = 100_000;

pub(crate) fn document(db: &Connection, key: &Key, now: Timestamp) -> Result<Option<Document>, Failure> {
    Ok(session::document(db, key)?.and_then(|row| row.visible(key, now)))
}

/// The part of a range of keys that a page wants: strictly after one text, below another.
fn bounds<'a>(prefix: &'a KeyPrefix, page: &'a Page) -> (&'a str, &'a str, Option<&'a str>) {
    let after = page.after.as_ref().map_or("", Key::canonical);
    (prefix.from(), after, prefix.below())
}

pub(crate) fn documents(
    db: &Connection,
    prefix: &KeyPrefix,
    page: &Page,
    now: Timestamp,
) -> Result<PageOf<Document>, Failure> {
    let limit = page.rows()?;
    let (from, after, below) = bounds(prefix, page);
    let mut statement = db.prepare_cached(&format!(
        "SELECT {} FROM tidelock_documents WHERE key >= ?1 AND key > ?2 AND (?3 IS NULL OR key < ?3)
         AND value IS NOT NULL AND (expires_at IS NULL OR expires_at > ?4) ORDER BY key LIMIT ?5",
        rows::DOCUMENT_COLUMNS
    ))?;
    let parameters = (from, after, below, now.as_micros(), int(limit as u64 + 1));
    let found = statement.query_map(parameters, rows::document)?;
    let mut documents = Vec::new();
    for row in found {
        let (key, row) = row?;
        documents.extend(row.visible(&key, now));
    }
    Ok(PageOf::of(documents, limit, |document| document.key.clone()))
}

const STREAM: &str =
    "SELECT key, closed_at, (SELECT max(version) FROM tidelock_events e WHERE e.stream = s.no)
    FROM tidelock_streams s";

fn stream_info(row: &rusqlite::Row<'_>) -> rusqlite::Result<StreamInfo> {
    let closed_at: Option<i64> = row.get(1)?;
    let head: Option<i64> = row.get(2)?;
    Ok(StreamInfo {
        key: rows::key(row, 0)?,
        head: head.map(|version| StreamVersion(uint(version))),
        closed_at: closed_at.map(Timestamp::from_micros),
    })
}

pub(crate) fn stream(db: &Connection, key: &Key) -> Result<Option<StreamInfo>, Failure> {
    let mut statement = db.prepare_cached(&format!("{STREAM} WHERE key = ?1"))?;
    Ok(statement.query_row([key.canonical()], stream_info).optional()?)
}

pub(crate) fn streams(
    db: &Connection,
    prefix: &KeyPrefix,
    page: &Page,
) -> Result<PageOf<StreamInfo>, Failure> {
    let limit = page.rows()?;
    let (from, after, below) = bounds(prefix, page);
    let mut statement = db.prepare_cached(&format!(
        "{STREAM} WHERE key >= ?1 AND key > ?2 AND (?3 IS NULL OR key < ?3) ORDER BY key LIMIT ?4"
    ))?;
    let found = statement.query_map((from, after, below, int(limit as u64 + 1)), stream_info)?;
    let found = found.collect::<rusqlite::Result<_>>()?;
    Ok(PageOf::of(found, limit, |stream| stream.key.clone()))
}

pub(crate) fn read_stream(db: &Connection, query: &StreamQuery) -> Result<EventPage, Failure> {
    let limit = Page::first(query.limit).rows()?;
    let (comparison, order, default) = match query.direction {
        Direction::Forward => (">=", "ASC", 0),
        Direction::Backward => ("<=", "DESC", i64::MAX),
    };
    let mut statement = db.prepare_cached(&format!(
        "SELECT {} FROM tidelock_streams s CROSS JOIN tidelock_events e ON e.stream = s.no
         WHERE s.key = ?1 AND e.version {comparison} ?2 ORDER BY e.version {order}",
        rows::EVENT_COLUMNS
    ))?;
    let from = query.from.map_or(default, |version| int(version.0));
    scan(statement.query((query.stream.canonical(), from))?, &query.filter, limit)
}

pub(crate) fn read_log(db: &Connection, query: &LogQuery) -> Result<EventPage, Failure> {
    let limit = Page::first(query.limit).rows()?;
    let (comparison, order, default) = match query.direction {
        Direction::Forward => (">", "ASC", 0),
        Direction::Backward => ("<", "DESC", i64::MAX),
    };
    let correlated = match query.filter.correlation {
        Some(_) => "AND e.correlation = ?2",
        None => "AND ?2 IS NULL",
    };
    let mut statement = db.prepare_cached(&format!(
        "SELECT {} FROM tidelock_events e CROSS JOIN tidelock_streams s ON s.no = e.stream
         WHERE e.position {comparison} ?1 {correlated} ORDER BY e.position {order}",
        rows::EVENT_COLUMNS
    ))?;
    let after = query.after.map_or(default, |position| int(position.0));
    let page = scan(statement.query((after, query.filter.correlation.as_deref()))?, &query.filter, limit)?;
    match page {
        // The index skipped what belongs to other conversations; it has been looked at all the same.
        EventPage { end: true, events, .. } if query.filter.correlation.is_some() => {
            let edge = edge(db, query.direction)?.map(|p| tidelock_core::id::Position(uint(p)));
            let scanned_to = edge.filter(|edge| match query.direction {
                Direction::Forward => query.after.is_none_or(|after| *edge > after),
                Direction::Backward => query.after.is_none_or(|after| *edge < after),
            });
            Ok(EventPage { events, scanned_to, end: true })
        }
        page => Ok(page),
    }
}

/// The last position in the direction of reading.
fn edge(db: &Connection, direction: Direction) -> Result<Option<i64>, Failure> {
    let sql = match direction {
        Direction::Forward => "SELECT max(position) FROM tidelock_events",
        Direction::Backward => "SELECT min(position) FROM tidelock_events",
    };
    Ok(db.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

/// Reads rows until the page is full, the rows end, or enough was looked at.
fn scan(mut found: rusqlite::Rows<'_>, filter: &EventFilter, limit: usize) -> Result<EventPage, Failure> {
    let mut page = EventPage { events: Vec::new(), scanned_to: None, end: true };
    let mut looked_at = 0;
    while let Some(row) = found.next()? {
        if page.events.len() == limit || looked_at == SCAN_EVENTS {
            page.end = false;
            break;
        }
        let event = rows::event(row)?;
        looked_at += 1;
        page.scanned_to = Some(event.position);
        if filter.matches(&event) {
            page.events.push(event);
        }
    }
    Ok(page)
}

pub(crate) fn work(db: &Connection, key: &Key) -> Result<Option<WorkRow>, Failure> {
    let mut statement =
        db.prepare_cached(&format!("SELECT {} FROM tidelock_work WHERE key = ?1", rows::WORK_COLUMNS))?;
    Ok(statement.query_row([key.canonical()], rows::work).optional()?)
}

pub(crate) fn works(db: &Connection, filter: &WorkFilter, page: &Page) -> Result<PageOf<WorkRow>, Failure> {
    let limit = page.rows()?;
    let after = page.after.as_ref().map_or("", Key::canonical);
    let (lane, pattern, blocked, leased) = session::filter_parameters(filter);
    let mut statement = db.prepare_cached(&format!(
        "SELECT {} FROM tidelock_work WHERE {} AND key > ?5 {} ORDER BY key LIMIT ?6",
        rows::WORK_COLUMNS,
        session::WORK_FILTER,
        session::blocked_only(filter)
    ))?;
    let parameters = (lane, pattern, blocked, leased, after, int(limit as u64 + 1));
    let found = statement.query_map(parameters, rows::work)?.collect::<rusqlite::Result<_>>()?;
    Ok(PageOf::of(found, limit, |row| row.key.clone()))
}

pub(crate) fn count_work(db: &Connection, filter: &WorkFilter) -> Result<u64, Failure> {
    let mut statement = db.prepare_cached(&format!(
        "SELECT count(*) FROM tidelock_work WHERE {} {}",
        session::WORK_FILTER,
        session::blocked_only(filter)
    ))?;
    let count: i64 = statement.query_row(session::filter_parameters(filter), |row| row.get(0))?;
    Ok(uint(count))
}
