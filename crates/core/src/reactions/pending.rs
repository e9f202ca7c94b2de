//! Pending work of reactions on a stream, checked before its events are removed.

use std::fmt;

use serde::Serialize;

use super::error::ReactionsError;
use super::filter::ReactionFilter;
use super::inbox;
use super::keys::{self, Row};
use super::operator::Operator;
use super::parked::Note;
use super::stored::Stored;
use crate::id::{Position, StreamVersion};
use crate::key::Key;
use crate::store::{Event, Page, StreamQuery, WorkRow};

/// The number of events, rows or documents that are read at once.
const PAGE: usize = 1_000;
/// The most findings that are returned.
const MOST: usize = 100;

/// Work that a reaction still has to do for a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pending {
    /// The reaction.
    pub reaction: String,
    /// The key with pending work; the stream itself, while its events are not routed.
    pub key: Key,
    /// The condition that the work waits for.
    pub waits: PendingReason,
}

/// The condition that pending work waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PendingReason {
    /// The router, which has not reached the events yet.
    Routing,
    /// A worker, or the due time.
    Worker,
    /// An operator, because the key is blocked.
    Unblocking,
    /// An operator, because an event is parked.
    Parked,
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reaction, key, waits } = self;
        let why = match waits {
            PendingReason::Routing => "its events are not routed",
            PendingReason::Worker => "events wait for a worker",
            PendingReason::Unblocking => "it is blocked",
            PendingReason::Parked => "an event is parked",
        };
        write!(f, "{reaction:?} for {key} ({why})")
    }
}

impl Operator {
    /// Returns the pending work of reactions on the events of a stream below a version. The result has at most 100
    /// findings, in the order of the reactions' names. It includes every reaction that is registered and not ended, even if
    /// no process runs it.
    ///
    /// For a reaction that chooses keys, this scans all its rows.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn pending(&self, stream: &Key, below: StreamVersion) -> Result<Vec<Pending>, ReactionsError> {
        let mut all = Vec::new();
        for (name, stored) in self.definitions().await? {
            let found = |key: &Key, waits| Pending { reaction: name.clone(), key: key.clone(), waits };
            if let Some(last) = self.last_wanted(stream, below, &stored).await? {
                let router = self.store.work(&keys::router(&name)?).await?;
                if router.and_then(|row| row.position).unwrap_or(Position(0)) < last.position {
                    all.push(found(stream, PendingReason::Routing));
                } else if stored.facts.keyed {
                    let rows = self.inboxes_with(&name, stream).await?;
                    all.extend(rows.iter().map(|(key, waits)| found(key, *waits)));
                } else if let Some(row) = self.store.work(&keys::row(&name, stream)?).await?
                    && row.position.unwrap_or(Position(0)) < last.position
                {
                    all.push(found(stream, waits(&row)));
                }
            }
            let parked = self.parked_of(&name, stream, below).await?;
            all.extend(parked.iter().map(|key| found(key, PendingReason::Parked)));
            if all.len() >= MOST {
                all.truncate(MOST);
                break;
            }
        }
        Ok(all)
    }

    /// Returns the newest event of a stream below a version that a reaction wants.
    async fn last_wanted(
        &self,
        stream: &Key,
        below: StreamVersion,
        stored: &Stored,
    ) -> Result<Option<Event>, ReactionsError> {
        let Some(mut from) = below.0.checked_sub(1) else { return Ok(None) };
        if stored.facts.interest.streams.as_ref().is_some_and(|range| !range.contains(stream)) {
            return Ok(None);
        }
        loop {
            let query = StreamQuery::backward(stream, PAGE).from(StreamVersion(from));
            let page = self.store.read_stream(query).await?;
            let oldest = page.events.last().map(|event| event.version.0);
            if let Some(event) = page.events.into_iter().find(|event| stored.wants(event)) {
                return Ok(Some(event));
            }
            match oldest.and_then(|oldest| oldest.checked_sub(1)) {
                Some(next) if !page.end => from = next,
                _ => return Ok(None),
            }
        }
    }

    /// Returns the keys of a reaction whose inboxes hold unhandled events of a stream.
    async fn inboxes_with(
        &self,
        name: &str,
        stream: &Key,
    ) -> Result<Vec<(Key, PendingReason)>, ReactionsError> {
        let (filter, mut page) = (ReactionFilter::of(name).filter()?, Page::first(PAGE));
        let mut found = Vec::new();
        loop {
            let rows = self.store.works(&filter, page).await?;
            let busy = |row: &&WorkRow| row.due.is_some() || row.lease.is_some() || row.blocked.is_some();
            for row in rows.rows.iter().filter(busy) {
                let Some(Row::Key { key, .. }) = Row::read(&row.key) else { continue };
                if found.len() < MOST && self.waits_in(row, stream).await? {
                    found.push((key, waits(row)));
                }
            }
            let Some(next) = rows.next else { return Ok(found) };
            page = Page::after(&next, PAGE);
        }
    }

    /// Returns whether the inbox of a row holds an unhandled event of a stream.
    async fn waits_in(&self, row: &WorkRow, stream: &Key) -> Result<bool, ReactionsError> {
        let Some(inbox) = &row.follow else { return Ok(false) };
        let (seen, mut query) = (row.position.unwrap_or(Position(0)), StreamQuery::backward(inbox, PAGE));
        loop {
            let page = self.store.read_stream(query).await?;
            let mut waiting = page.events.iter().take_while(|event| event.position > seen);
            if waiting.any(|copy| inbox::original(copy).is_ok_and(|event| event.stream == *stream)) {
                return Ok(true);
            }
            let oldest = page.events.last().filter(|event| event.position > seen);
            match oldest.and_then(|event| event.version.0.checked_sub(1)) {
                Some(next) if !page.end => {
                    query = StreamQuery::backward(inbox, PAGE).from(StreamVersion(next));
                }
                _ => return Ok(false),
            }
        }
    }

    /// Returns the keys of a reaction for which an event of a stream is parked.
    async fn parked_of(
        &self,
        name: &str,
        stream: &Key,
        below: StreamVersion,
    ) -> Result<Vec<Key>, ReactionsError> {
        let (mut keys, mut page) = (Vec::new(), Page::first(PAGE));
        loop {
            let found = self.store.documents(&keys::all_parked(name), page).await?;
            for document in &found.rows {
                let event = Note::read(document)?.event;
                if event.stream == *stream
                    && event.version < below
                    && let Some((key, _)) = keys::read_parked(&document.key)
                    && !keys.contains(&key)
                {
                    keys.push(key);
                }
            }
            let Some(next) = found.next else { return Ok(keys) };
            page = Page::after(&next, PAGE);
        }
    }
}

fn waits(row: &WorkRow) -> PendingReason {
    if row.blocked.is_some() { PendingReason::Unblocking } else { PendingReason::Worker }
}
