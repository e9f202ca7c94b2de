//! History of a record: one event for every write, in the same commit.

use serde::{Deserialize, Serialize};

use super::error::StateError;
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::{EventType, StreamVersion};
use crate::key::Key;
use crate::key::reserved::HISTORY;
use crate::payload::Payload;
use crate::store::{ApplyError, Batch, Delta, Event, EventPage, Expect, NewEvent, Store, StreamQuery};

/// The type of the event of each write.
const WRITTEN: &str = "tidelock.state";

/// The change of one write to a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryChange {
    /// The record was set to this value.
    Put(Payload),
    /// These deltas were merged into the record.
    Merge(Vec<Delta>),
    /// The record was deleted.
    Delete,
}

/// One write to a record, as its history contains it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistoryEntry {
    /// The number of the write, counted from 0 since the history began.
    pub number: StreamVersion,
    /// The commit time, by the store's clock.
    #[serde(rename = "recorded_at")]
    pub at: Timestamp,
    /// The number of mutations that shared the write.
    pub mutations: usize,
    /// The change.
    pub change: HistoryChange,
}

/// The event of a write.
#[derive(Serialize, Deserialize)]
struct HistoryEvent {
    mutations: usize,
    change: HistoryChange,
}

/// Creates the history events of one record.
pub(super) struct History {
    stream: Result<Key, InvalidInput>,
}

impl History {
    pub(super) fn of(record: &Key) -> Self {
        Self { stream: history_key(record) }
    }

    pub(super) fn put(&self, value: &Payload, mutations: usize) -> Result<Batch, StateError> {
        Ok(self.batch(HistoryChange::Put(value.clone()), mutations)?)
    }

    pub(super) fn delete(&self, mutations: usize) -> Result<Batch, StateError> {
        Ok(self.batch(HistoryChange::Delete, mutations)?)
    }

    pub(super) fn merge(&self, deltas: &[Delta], mutations: usize) -> Result<Batch, ApplyError> {
        self.batch(HistoryChange::Merge(deltas.to_vec()), mutations)
    }

    fn batch(&self, change: HistoryChange, mutations: usize) -> Result<Batch, ApplyError> {
        Ok(batch_of(&self.stream.clone()?, change, mutations)?)
    }
}

/// Returns the batch that a state with a history adds to each write: the event in the history stream. Programs that write a
/// record without a state add it with [`Batch::and`], so that the history contains their writes.
///
/// # Errors
/// [`InvalidInput`] when the key is too long for a history.
pub fn history_batch(record: &Key, change: HistoryChange, mutations: usize) -> Result<Batch, InvalidInput> {
    batch_of(&history_key(record)?, change, mutations)
}

fn batch_of(stream: &Key, change: HistoryChange, mutations: usize) -> Result<Batch, InvalidInput> {
    let event = NewEvent::new(EventType::new(WRITTEN)?, Payload::of(&HistoryEvent { mutations, change })?);
    Ok(Batch::new().append(stream, Expect::Any, [event]))
}

/// Returns the stream of a record's history: `history("user", "u-1", "cart")` for `user("u-1", "cart")`.
///
/// # Errors
/// [`InvalidInput`] when the key is too long for a history.
pub fn history_key(record: &Key) -> Result<Key, InvalidInput> {
    record.beside(HISTORY)
}

/// Returns the last writes to a record, newest first, and only those before `before` when it is given. The list is empty when
/// no history was kept. Large writes can make it shorter than `limit` before the end is reached. [`history_page`] reports the
/// end.
///
/// # Errors
/// As [`history_page`].
pub async fn history(
    store: &dyn Store,
    record: &Key,
    before: Option<StreamVersion>,
    limit: usize,
) -> Result<Vec<HistoryEntry>, StateError> {
    Ok(history_page(store, record, before, limit).await?.writes)
}

/// One page of a history, the newest write first.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryPage {
    /// The writes.
    pub writes: Vec<HistoryEntry>,
    /// Whether there are no older writes.
    pub end: bool,
}

/// Like [`history`], and reports whether the end was reached.
///
/// # Errors
/// [`StateError::Read`] when the store fails, [`StateError::History`] when an event in the stream was not written by a history.
pub async fn history_page(
    store: &dyn Store,
    record: &Key,
    before: Option<StreamVersion>,
    limit: usize,
) -> Result<HistoryPage, StateError> {
    let stream = history_key(record).map_err(ApplyError::from)?;
    let mut query = StreamQuery::backward(&stream, limit);
    if let Some(before) = before {
        let Some(last) = before.0.checked_sub(1) else {
            return Ok(HistoryPage { writes: Vec::new(), end: true });
        };
        query = query.from(StreamVersion(last));
    }
    let EventPage { events, end, .. } = store.read_stream(query).await?;
    let writes = events.iter().map(|event| past(record, event)).collect::<Result<_, _>>()?;
    Ok(HistoryPage { writes, end })
}

fn past(record: &Key, event: &Event) -> Result<HistoryEntry, StateError> {
    let told: HistoryEvent = event.payload.parse().map_err(|error| StateError::History {
        key: record.to_string(),
        event: event.version,
        reason: error.to_string(),
    })?;
    let HistoryEvent { mutations, change } = told;
    Ok(HistoryEntry { number: event.version, at: event.at, mutations, change })
}
