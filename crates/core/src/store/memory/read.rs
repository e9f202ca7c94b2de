//! Reads of the reference store.

use std::ops::Bound;

use super::super::{
    Direction, EventFilter, EventPage, Get, LogQuery, PageOf, Resolution, StoreError, StoredDocument,
    StoredRow, StreamInfo, StreamQuery, WorkFilter, WorkRow,
};
use super::tables::Tables;
use crate::clock::Timestamp;
use crate::id::{Position, QueueName};
use crate::key::{Key, KeyPrefix};
use crate::model::rows::Event;
use crate::model::{epoch, lease, limits};

impl Tables {
    pub(super) fn get(&self, get: &Get, now: Timestamp) -> Option<StoredRow> {
        match get {
            Get::Document(key) => self.document(key, now).map(StoredRow::Document),
            Get::Stream(key) => self.stream(key).map(StoredRow::Stream),
            Get::Work(key) => self.work(key).map(|row| StoredRow::Work(Box::new(row))),
            Get::Operation(id) => {
                self.operation(*id).and_then(Resolution::into_receipt).map(StoredRow::Operation)
            }
        }
    }

    pub(super) fn document(&self, key: &Key, now: Timestamp) -> Option<StoredDocument> {
        self.documents.get(key)?.visible(key, now)
    }

    pub(super) fn documents(
        &self,
        prefix: &KeyPrefix,
        after: Option<&Key>,
        limit: usize,
        now: Timestamp,
    ) -> PageOf<StoredDocument> {
        let rows = self.visible(prefix, after, now);
        gathered(rows, limit, now, |found| found.key.clone(), |found| found.value.len())
    }

    pub(super) fn count_documents(&self, prefix: &KeyPrefix, now: Timestamp) -> u64 {
        self.visible(prefix, None, now).count() as u64
    }

    /// Returns the visible documents of a range, after a key.
    fn visible<'a>(
        &'a self,
        prefix: &'a KeyPrefix,
        after: Option<&Key>,
        now: Timestamp,
    ) -> impl Iterator<Item = StoredDocument> + 'a {
        let start = match after.map(Key::canonical) {
            Some(after) if after >= prefix.from() => Bound::Excluded(after),
            _ => Bound::Included(prefix.from()),
        };
        let rows = self.documents.range::<str, _>((start, Bound::Unbounded));
        let rows = rows.take_while(move |(key, _)| prefix.contains(key));
        rows.filter_map(move |(key, row)| row.visible(key, now))
    }

    pub(super) fn stream(&self, key: &Key) -> Option<StreamInfo> {
        self.streams.get(key).map(|row| StreamInfo::of(key.clone(), row))
    }

    pub(super) fn streams(
        &self,
        prefix: &KeyPrefix,
        after: Option<&Key>,
        limit: usize,
        now: Timestamp,
    ) -> PageOf<StreamInfo> {
        let rows = self.streams.range::<Key, _>((beyond(after), Bound::Unbounded));
        let rows = rows.filter(|(key, _)| prefix.contains(key));
        let rows = rows.map(|(key, row)| StreamInfo::of(key.clone(), row));
        PageOf::of(rows.take(limit + 1).collect(), limit, now, |s| s.key.clone())
    }

    pub(super) fn read_stream(&self, query: &StreamQuery, limit: usize, now: Timestamp) -> EventPage {
        let positions = self.by_stream.get(&query.stream).map_or(&[][..], Vec::as_slice);
        let events = positions.iter().filter_map(|position| self.events.get(position));
        match query.direction {
            Direction::Forward => {
                let wanted = events.filter(|e| query.from.is_none_or(|from| e.version >= from));
                scan(wanted, &query.filter, limit, now)
            }
            Direction::Backward => {
                let wanted = events.rev().filter(|e| query.from.is_none_or(|from| e.version <= from));
                scan(wanted, &query.filter, limit, now)
            }
        }
    }

    pub(super) fn read_log(
        &self,
        query: &LogQuery,
        limit: usize,
        now: Timestamp,
    ) -> Result<EventPage, StoreError> {
        Ok(match query.direction {
            Direction::Forward => {
                if let Some(after) = query.after {
                    let cuts = self.cuts.iter().cloned();
                    epoch::check_position(after, self.counters.position, cuts)
                        .map_err(|bad| StoreError::position(after, bad))?;
                }
                let start = query.after.map_or(Bound::Unbounded, Bound::Excluded);
                let events = self.events.range::<Position, _>((start, Bound::Unbounded));
                scan(events.map(|(_, event)| event), &query.filter, limit, now)
            }
            Direction::Backward => {
                let end = query.after.map_or(Bound::Unbounded, Bound::Excluded);
                let events = self.events.range::<Position, _>((Bound::Unbounded, end)).rev();
                scan(events.map(|(_, event)| event), &query.filter, limit, now)
            }
        })
    }

    pub(super) fn work(&self, key: &Key) -> Option<WorkRow> {
        self.work.get(key).cloned()
    }

    pub(super) fn works(
        &self,
        filter: &WorkFilter,
        after: Option<&Key>,
        limit: usize,
        now: Timestamp,
    ) -> PageOf<WorkRow> {
        let rows = self.work.range::<Key, _>((beyond(after), Bound::Unbounded));
        let rows = rows.map(|(_, row)| row).filter(|row| filter.matches(row)).cloned();
        gathered(rows, limit, now, |row| row.key.clone(), |row| row.payload.len())
    }

    pub(super) fn next_ready(&self, queues: &[QueueName]) -> Option<Timestamp> {
        self.work.values().filter(|row| queues.contains(&row.queue)).filter_map(lease::ready_at).min()
    }

    pub(super) fn count_work(&self, filter: &WorkFilter) -> u64 {
        self.work.values().filter(|row| filter.matches(row)).count() as u64
    }
}

fn beyond(after: Option<&Key>) -> Bound<&Key> {
    after.map_or(Bound::Unbounded, Bound::Excluded)
}

/// Creates a page of rows from an infallible iterator.
fn gathered<T>(
    rows: impl Iterator<Item = T>,
    limit: usize,
    now: Timestamp,
    key: impl Fn(&T) -> Key,
    bytes: impl Fn(&T) -> usize,
) -> PageOf<T> {
    match PageOf::gathered(rows.map(Ok::<T, std::convert::Infallible>), limit, now, key, bytes) {
        Ok(page) => page,
    }
}

fn scan<'a>(
    events: impl Iterator<Item = &'a Event>,
    filter: &EventFilter,
    limit: usize,
    now: Timestamp,
) -> EventPage {
    let mut page = EventPage::empty(now);
    let mut bytes = 0;
    for event in events {
        if page.events.len() == limit || bytes >= limits::PAGE_BYTES {
            page.end = false;
            break;
        }
        page.scanned_to = Some(event.position);
        if filter.matches(event) {
            bytes += event.payload.len() + event.meta.len();
            page.events.push(event.clone());
        }
    }
    page
}
