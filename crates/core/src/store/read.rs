//! What readers ask and get. Every page is bounded, and none computes more than it shows.

use serde::{Deserialize, Serialize};

use super::{Event, StreamRow};
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::{EventType, Position, StreamVersion};
use crate::key::{Key, KeyPrefix};
use crate::model::limits;

/// Which part of a list is wanted: rows whose keys come after `after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The last key of the page before.
    pub after: Option<Key>,
    /// At most so many rows; 0 counts as 1.
    pub limit: usize,
}

impl Page {
    /// The first rows.
    #[must_use]
    pub fn first(limit: usize) -> Self {
        Self { after: None, limit }
    }

    /// The rows after a key.
    #[must_use]
    pub fn after(key: &Key, limit: usize) -> Self {
        Self { after: Some(key.clone()), limit }
    }

    /// The number of rows to fetch.
    ///
    /// # Errors
    /// [`InvalidInput::Limit`] when it is above [`limits::PAGE_ROWS`].
    pub fn rows(&self) -> Result<usize, InvalidInput> {
        limits::within("the number of rows", "a page", self.limit, limits::PAGE_ROWS)?;
        Ok(self.limit.max(1))
    }
}

/// One part of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageOf<T> {
    /// The rows, in the order of their keys.
    pub rows: Vec<T>,
    /// Where the next page begins; `None` when this is the last.
    pub next: Option<Key>,
}

impl<T> PageOf<T> {
    /// Makes a page of rows that were fetched with one to spare.
    #[must_use]
    pub fn of(mut rows: Vec<T>, limit: usize, key: impl Fn(&T) -> Key) -> Self {
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = if more { rows.last().map(key) } else { None };
        Self { rows, next }
    }

    /// Makes a page of rows that come one by one: it ends with the row that fills it, or whose payload reaches
    /// [`limits::PAGE_BYTES`], and takes no more rows than it needs to know whether there are others.
    ///
    /// # Errors
    /// Those of the rows.
    pub fn gathered<E>(
        rows: impl IntoIterator<Item = Result<T, E>>,
        limit: usize,
        key: impl Fn(&T) -> Key,
        bytes: impl Fn(&T) -> usize,
    ) -> Result<Self, E> {
        let (mut taken, mut size) = (Vec::new(), 0_usize);
        for row in rows {
            let row = row?;
            if taken.len() == limit || size >= limits::PAGE_BYTES {
                let next = taken.last().map(key);
                return Ok(Self { rows: taken, next });
            }
            size = size.saturating_add(bytes(&row));
            taken.push(row);
        }
        Ok(Self { rows: taken, next: None })
    }
}

/// A stream as readers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamInfo {
    /// Its key.
    pub key: Key,
    /// The version of its last event, removed or not; `None` when it never had one.
    pub head: Option<StreamVersion>,
    /// The version of the oldest event that is left; `None` when none is.
    #[serde(default)]
    pub first: Option<StreamVersion>,
    /// When it was closed, if it was.
    pub closed_at: Option<Timestamp>,
}

impl StreamInfo {
    /// The row of a stream as readers see it.
    #[must_use]
    pub fn of(key: Key, row: &StreamRow) -> Self {
        Self { key, head: row.head, first: row.oldest(), closed_at: row.closed_at }
    }
}

/// Which way to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// Oldest first.
    #[default]
    Forward,
    /// Newest first.
    Backward,
}

/// Conditions on events; each one that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only these types; empty means all.
    pub types: Vec<EventType>,
    /// Only events at or after this instant.
    pub since: Option<Timestamp>,
    /// Only events before this instant.
    pub until: Option<Timestamp>,
    /// Only events of this conversation.
    pub correlation: Option<String>,
    /// Only streams in this range.
    pub streams: Option<KeyPrefix>,
}

impl EventFilter {
    /// Whether the event meets every condition.
    #[must_use]
    pub fn matches(&self, event: &Event) -> bool {
        (self.types.is_empty() || self.types.contains(&event.event_type))
            && self.since.is_none_or(|since| event.at >= since)
            && self.until.is_none_or(|until| event.at < until)
            && self.correlation.as_ref().is_none_or(|c| event.correlation.as_ref() == Some(c))
            && self.streams.as_ref().is_none_or(|prefix| prefix.contains(&event.stream))
    }
}

/// Which events of a stream are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamQuery {
    /// The stream.
    pub stream: Key,
    /// The first version; `None` begins at the end that the direction starts from.
    pub from: Option<StreamVersion>,
    /// Which way.
    pub direction: Direction,
    /// At most so many events.
    pub limit: usize,
    /// Conditions.
    pub filter: EventFilter,
}

impl StreamQuery {
    /// A stream from its beginning: the oldest event that is left.
    #[must_use]
    pub fn forward(stream: &Key, limit: usize) -> Self {
        let filter = EventFilter::default();
        Self { stream: stream.clone(), from: None, direction: Direction::Forward, limit, filter }
    }

    /// A stream from its end.
    #[must_use]
    pub fn backward(stream: &Key, limit: usize) -> Self {
        Self { direction: Direction::Backward, ..Self::forward(stream, limit) }
    }

    /// The same query, beginning at a version.
    #[must_use]
    pub fn from(mut self, version: StreamVersion) -> Self {
        self.from = Some(version);
        self
    }
}

/// Which events of the whole log are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// Events beyond this position, in the direction of reading; `None` begins at the end that it starts from.
    pub after: Option<Position>,
    /// Which way.
    pub direction: Direction,
    /// At most so many events.
    pub limit: usize,
    /// Conditions.
    pub filter: EventFilter,
}

impl LogQuery {
    /// The log after a position, oldest first.
    #[must_use]
    pub fn after(position: Position, limit: usize) -> Self {
        Self { after: Some(position), ..Self::all(limit) }
    }

    /// The log from its beginning.
    #[must_use]
    pub fn all(limit: usize) -> Self {
        Self { after: None, direction: Direction::Forward, limit, filter: EventFilter::default() }
    }
}

/// Events that were read, and how far the reader got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventPage {
    /// The events, in the order of reading.
    pub events: Vec<Event>,
    /// Everything up to here has been looked at, whether it matched or not: where the next query continues. For a
    /// stream, the position of the last event that was looked at. `None` when there was nothing to look at.
    pub scanned_to: Option<Position>,
    /// Whether there was nothing more to look at.
    pub end: bool,
}

/// What a sweep may remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Tombstones of documents older than this. New documents begin above the versions that are forgotten.
    pub tombstones_before: Option<Timestamp>,
    /// Operation records older than this. Their ids can be used again.
    pub operations_before: Option<Timestamp>,
    /// At most so many rows of each kind.
    pub limit: usize,
}

impl Default for Sweep {
    /// Expired documents only, 1,000 at a time.
    fn default() -> Self {
        Self { tombstones_before: None, operations_before: None, limit: 1_000 }
    }
}

/// What a sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swept {
    /// Expired documents that became tombstones.
    pub expired: u64,
    /// Tombstones that were forgotten.
    pub tombstones: u64,
    /// Operation records that were forgotten.
    pub operations: u64,
}
