//! Queries and pages of readers. Every page is bounded, and a read computes no more than it returns.

use serde::{Deserialize, Serialize};

use super::{Event, Receipt, StoredDocument, StreamRow, WorkRow};
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::{EventType, OpId, Position, StreamVersion};
use crate::key::{Key, KeyPrefix};
use crate::model::limits;

/// A page request: the rows whose keys come after `after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The last key of the previous page.
    pub after: Option<Key>,
    /// The maximum number of rows. 0 counts as 1.
    pub limit: usize,
}

impl Page {
    /// Requests the first rows.
    #[must_use]
    pub fn first(limit: usize) -> Self {
        Self { after: None, limit }
    }

    /// Requests the rows after a key.
    #[must_use]
    pub fn after(key: &Key, limit: usize) -> Self {
        Self { after: Some(key.clone()), limit }
    }

    /// Returns the number of rows to fetch.
    ///
    /// # Errors
    /// [`InvalidInput::Limit`] when it is above [`limits::PAGE_ROWS`].
    pub fn rows(&self) -> Result<usize, InvalidInput> {
        limits::within("the number of rows", "a page", self.limit, limits::PAGE_ROWS)?;
        Ok(self.limit.max(1))
    }
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageOf<T> {
    /// The rows, in the order of their keys.
    pub rows: Vec<T>,
    /// The start of the next page. `None` when this is the last.
    pub next: Option<Key>,
    /// The store's clock at the read.
    pub now: Timestamp,
}

impl<T> PageOf<T> {
    /// Creates a page from rows that were fetched with one extra.
    #[must_use]
    pub fn of(mut rows: Vec<T>, limit: usize, now: Timestamp, key: impl Fn(&T) -> Key) -> Self {
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = if more { rows.last().map(key) } else { None };
        Self { rows, next, now }
    }

    /// Creates a page from an iterator of rows. It ends with the row that fills it, or whose payload reaches
    /// [`limits::PAGE_BYTES`]. It takes no more rows than it needs to know whether there are others.
    ///
    /// # Errors
    /// The errors of the rows.
    pub fn gathered<E>(
        rows: impl IntoIterator<Item = Result<T, E>>,
        limit: usize,
        now: Timestamp,
        key: impl Fn(&T) -> Key,
        bytes: impl Fn(&T) -> usize,
    ) -> Result<Self, E> {
        let (mut taken, mut size) = (Vec::new(), 0_usize);
        for row in rows {
            let row = row?;
            if taken.len() == limit || size >= limits::PAGE_BYTES {
                let next = taken.last().map(key);
                return Ok(Self { rows: taken, next, now });
            }
            size = size.saturating_add(bytes(&row));
            taken.push(row);
        }
        Ok(Self { rows: taken, next: None, now })
    }
}

/// A row that [`Store::read`](super::Store::read) reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Get {
    /// The document with this key.
    Document(Key),
    /// The stream with this key.
    Stream(Key),
    /// The work row with this key.
    Work(Key),
    /// The receipt that is recorded under this id.
    Operation(OpId),
}

/// A row that a read found.
#[derive(Clone, Debug, PartialEq)]
pub enum StoredRow {
    /// A document.
    Document(StoredDocument),
    /// A stream.
    Stream(StreamInfo),
    /// A work row.
    Work(Box<WorkRow>),
    /// The receipt of an operation.
    Operation(Receipt),
}

/// Rows of one snapshot, in the order of the request.
#[derive(Clone, Debug, PartialEq)]
pub struct RowSet {
    /// A row for each [`Get`]. `None` where the store has none.
    pub rows: Vec<Option<StoredRow>>,
    /// The store's clock at the read.
    pub now: Timestamp,
}

impl RowSet {
    /// Takes the document that was requested at an index. Returns `None` when there is none, or another kind was
    /// requested.
    pub fn take_document(&mut self, index: usize) -> Option<StoredDocument> {
        match self.take(index)? {
            StoredRow::Document(document) => Some(document),
            _ => None,
        }
    }

    /// Takes the stream that was requested at an index. Returns `None` when there is none, or another kind was
    /// requested.
    pub fn take_stream(&mut self, index: usize) -> Option<StreamInfo> {
        match self.take(index)? {
            StoredRow::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    /// Takes the work row that was requested at an index. Returns `None` when there is none, or another kind was
    /// requested.
    pub fn take_work(&mut self, index: usize) -> Option<WorkRow> {
        match self.take(index)? {
            StoredRow::Work(row) => Some(*row),
            _ => None,
        }
    }

    /// Takes the receipt that was requested at an index. Returns `None` when there is none, or another kind was
    /// requested.
    pub fn take_operation(&mut self, index: usize) -> Option<Receipt> {
        match self.take(index)? {
            StoredRow::Operation(receipt) => Some(receipt),
            _ => None,
        }
    }

    fn take(&mut self, index: usize) -> Option<StoredRow> {
        self.rows.get_mut(index)?.take()
    }
}

/// A stream as readers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamInfo {
    /// The key of the stream.
    pub key: Key,
    /// The version of the last event, removed or not. `None` when the stream never had one.
    pub head: Option<StreamVersion>,
    /// The version of the oldest event that is left. `None` when no event is left.
    #[serde(default)]
    pub first: Option<StreamVersion>,
    /// The time at which the stream was closed, if it was.
    pub closed_at: Option<Timestamp>,
}

impl StreamInfo {
    /// Converts a stored row.
    #[must_use]
    pub fn of(key: Key, row: &StreamRow) -> Self {
        Self { key, head: row.head, first: row.oldest(), closed_at: row.closed_at }
    }
}

/// The direction of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// Oldest first.
    #[default]
    Forward,
    /// Newest first.
    Backward,
}

/// Conditions on events. An event must meet every condition that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only these types. Empty means all.
    pub types: Vec<EventType>,
    /// Only events at or after this instant.
    pub since: Option<Timestamp>,
    /// Only events before this instant.
    pub until: Option<Timestamp>,
    /// Only events with this correlation id.
    pub correlation: Option<String>,
    /// Only streams in this range.
    pub streams: Option<KeyPrefix>,
}

impl EventFilter {
    /// Returns whether the event meets every condition.
    #[must_use]
    pub fn matches(&self, event: &Event) -> bool {
        (self.types.is_empty() || self.types.contains(&event.event_type))
            && self.since.is_none_or(|since| event.at >= since)
            && self.until.is_none_or(|until| event.at < until)
            && self.correlation.as_ref().is_none_or(|c| event.correlation.as_ref() == Some(c))
            && self.streams.as_ref().is_none_or(|prefix| prefix.contains(&event.stream))
    }
}

/// A query for events of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamQuery {
    /// The stream.
    pub stream: Key,
    /// The first version. `None` starts at the oldest or newest event, depending on the direction.
    pub from: Option<StreamVersion>,
    /// The direction.
    pub direction: Direction,
    /// The maximum number of events.
    pub limit: usize,
    /// The conditions.
    pub filter: EventFilter,
}

impl StreamQuery {
    /// Creates a query that starts at the oldest event that is left.
    #[must_use]
    pub fn forward(stream: &Key, limit: usize) -> Self {
        let filter = EventFilter::default();
        Self { stream: stream.clone(), from: None, direction: Direction::Forward, limit, filter }
    }

    /// Creates a query that starts at the newest event.
    #[must_use]
    pub fn backward(stream: &Key, limit: usize) -> Self {
        Self { direction: Direction::Backward, ..Self::forward(stream, limit) }
    }

    /// Sets the first version.
    #[must_use]
    pub fn from(mut self, version: StreamVersion) -> Self {
        self.from = Some(version);
        self
    }
}

/// A query for events of the whole log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// Only events beyond this position in the direction of reading. `None` starts at the oldest or newest event.
    pub after: Option<Position>,
    /// The direction.
    pub direction: Direction,
    /// The maximum number of events.
    pub limit: usize,
    /// The conditions.
    pub filter: EventFilter,
}

impl LogQuery {
    /// Creates a query for the log after a position, oldest first.
    #[must_use]
    pub fn after(position: Position, limit: usize) -> Self {
        Self { after: Some(position), ..Self::all(limit) }
    }

    /// Creates a query for the log from its beginning.
    #[must_use]
    pub fn all(limit: usize) -> Self {
        Self { after: None, direction: Direction::Forward, limit, filter: EventFilter::default() }
    }
}

/// A page of events, and the progress of the reader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventPage {
    /// The events, in the order of reading.
    pub events: Vec<Event>,
    /// The position up to which all events were scanned, matching or not, where the next query continues. For a stream,
    /// it is the position of the last scanned event. `None` when there was nothing to scan.
    pub scanned_to: Option<Position>,
    /// Whether there was nothing more to scan.
    pub end: bool,
    /// The store's clock at the read.
    pub now: Timestamp,
}

impl EventPage {
    /// Creates the page of a read that has scanned nothing yet.
    #[must_use]
    pub fn empty(now: Timestamp) -> Self {
        Self { events: Vec::new(), scanned_to: None, end: true, now }
    }
}

/// The scope of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Sweeps tombstones of documents older than this. New documents start above the versions of the swept tombstones.
    pub tombstones_before: Option<Timestamp>,
    /// Sweeps operation records older than this. Their ids can be used again.
    pub operations_before: Option<Timestamp>,
    /// The maximum number of rows of each kind.
    pub limit: usize,
}

impl Default for Sweep {
    /// Sweeps only expired documents, 1,000 at a time.
    fn default() -> Self {
        Self { tombstones_before: None, operations_before: None, limit: 1_000 }
    }
}

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swept {
    /// Expired documents that became tombstones.
    pub expired: u64,
    /// Tombstones that were removed.
    pub tombstones: u64,
    /// Operation records that were removed.
    pub operations: u64,
}
