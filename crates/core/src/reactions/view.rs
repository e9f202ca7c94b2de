//! What people see of reactions: how far they are, how far behind, who works on them, and what is wrong. Nothing is leased.

use std::time::Duration;

use serde::Serialize;

use super::definition::head;
use super::error::ReactionsError;
use super::names::{self, Row};
use super::operator::Operator;
use super::parked::Note;
use super::routed;
use super::stored::Stored;
use super::which::Which;
use crate::clock::Timestamp;
use crate::id::{EventType, Fence, Lane, Owner, Position};
use crate::key::Key;
use crate::store::{Blocked, Event, Get, LogQuery, Page, PageOf, StreamQuery, WorkRow};

/// How many events are looked at to tell how far behind something is.
const LOOK: usize = 1_000;
/// The same of one key: there are many on a page.
const KEY_LOOK: usize = 100;

/// How far behind something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lag {
    /// Events that wait.
    pub events: u64,
    /// Whether there may be more of them: not all were looked at.
    pub at_least: bool,
    /// How long the oldest of them has waited.
    pub behind: Duration,
}

/// One key of a reaction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeyView {
    /// The reaction.
    pub reaction: String,
    /// The key.
    pub key: Key,
    /// How far it has come in what it follows.
    pub position: Option<Position>,
    /// How far behind it is.
    pub lag: Lag,
    /// When it is next due; `None` when it rests.
    pub due: Option<Timestamp>,
    /// Attempts since the last progress.
    pub attempts: u32,
    /// How often its worker died or lost it.
    pub takeovers: u32,
    /// The last error.
    pub last_error: Option<String>,
    /// Why and since when it is blocked.
    pub blocked: Option<Blocked>,
    /// Who works on it.
    pub owner: Option<Owner>,
    /// Until when, unless the lease is renewed.
    pub until: Option<Timestamp>,
    /// The fence of the lease.
    pub fence: Option<Fence>,
}

/// One reaction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReactionView {
    /// Its name.
    pub name: String,
    /// The number of its definition: how many were registered.
    pub number: u64,
    /// The revision that the author gave it.
    pub revision: u32,
    /// The queue of its rows.
    pub lane: Lane,
    /// The types of events that it is about; empty for all.
    pub types: Vec<EventType>,
    /// Whether it chooses keys; otherwise they are streams.
    pub chooses_keys: bool,
    /// Keys that it has seen.
    pub keys: u64,
    /// Keys that are blocked.
    pub blocked_keys: u64,
    /// How far the log was routed to it.
    pub position: Position,
    /// The last position of the log.
    pub head: Position,
    /// How far behind the routing is.
    pub lag: Lag,
    /// Why and since when the routing is blocked.
    pub blocked: Option<Blocked>,
    /// Who routes.
    pub owner: Option<Owner>,
    /// Until when, unless the lease is renewed.
    pub until: Option<Timestamp>,
    /// The fence of the lease.
    pub fence: Option<Fence>,
}

/// An event that was set aside.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parked {
    /// The reaction.
    pub reaction: String,
    /// The key that it belongs to.
    pub key: Key,
    /// The event. If it is too large for a document, its payload and notes are left out here, and read from its stream when
    /// it is replayed.
    pub event: Event,
    /// Why it was set aside, or why the last replay failed.
    pub error: String,
    /// Attempts before it was set aside.
    pub attempts: u32,
    /// When that was.
    pub at: Timestamp,
    /// How often it was replayed in vain.
    pub replays: u32,
}

impl Operator {
    /// The keys that are meant, in the order of their rows. `next` of a page is for the next [`Page::after`].
    ///
    /// # Errors
    /// [`ReactionsError::Unknown`] when there is no such reaction, and what the store says.
    pub async fn keys(&self, which: &Which, page: Page) -> Result<PageOf<KeyView>, ReactionsError> {
        which.check()?;
        let noted = match &which.reaction {
            Some(name) => Some(self.definition(name).await?.stored),
            None => None,
        };
        let found = match which.rows()? {
            Some(_) => {
                let (rows, now) = self.rows(which).await?;
                PageOf { rows, next: None, now }
            }
            None => self.store.works(&which.filter()?, page).await?,
        };
        let mut rows = Vec::with_capacity(found.rows.len());
        for row in found.rows {
            let Some(Row::Key { reaction, key }) = Row::read(&row.key) else { continue };
            let noted = match &noted {
                Some(noted) => noted.clone(),
                None => self.definition(&reaction).await?.stored,
            };
            let lag = self.lag(&row, &noted, found.now).await?;
            rows.push(KeyView::of(reaction, key, row, lag));
        }
        Ok(PageOf { rows, next: found.next, now: found.now })
    }

    /// All reactions that have run on the store, and how far they are.
    ///
    /// # Errors
    /// What the store says.
    pub async fn reactions(&self) -> Result<Vec<ReactionView>, ReactionsError> {
        let mut views = Vec::new();
        for (name, noted) in self.definitions().await? {
            let mut found = self.store.read(&[Get::Work(names::router(&name)?)]).await?;
            let (router, now) = (found.take_work(0), found.now);
            let position = router.as_ref().and_then(|row| row.position).unwrap_or(Position(0));
            let lease = router.as_ref().and_then(|row| row.lease.clone());
            let rows = Which::of(name.as_str());
            views.push(ReactionView {
                keys: self.store.count_work(&rows.filter()?).await?,
                blocked_keys: self.store.count_work(&rows.that_are_blocked().filter()?).await?,
                lag: self.routing_lag(&noted, position, now).await?,
                head: head(&self.store).await?,
                position,
                blocked: router.and_then(|row| row.blocked),
                owner: lease.as_ref().map(|lease| lease.owner.clone()),
                until: lease.as_ref().map(|lease| lease.until),
                fence: lease.map(|lease| lease.fence),
                number: noted.number,
                revision: noted.facts.revision,
                chooses_keys: noted.facts.keyed,
                lane: noted.facts.lane.clone(),
                types: noted.facts.interest.types.clone(),
                name,
            });
        }
        Ok(views)
    }

    /// The parked events of a reaction, in the order of their keys. `next` of a page is for the next [`Page::after`].
    ///
    /// # Errors
    /// [`ReactionsError::Unknown`] when there is no such reaction, and what the store says.
    pub async fn parked(&self, reaction: &str, page: Page) -> Result<PageOf<Parked>, ReactionsError> {
        self.definition(reaction).await?;
        let found = self.store.documents(&names::all_parked(reaction), page).await?;
        let mut rows = Vec::with_capacity(found.rows.len());
        for document in &found.rows {
            let Some((key, _)) = names::read_parked(&document.key) else { continue };
            let Note { event, error, attempts, at, replays, .. } = Note::read(document)?;
            rows.push(Parked { reaction: reaction.to_owned(), key, event, error, attempts, at, replays });
        }
        Ok(PageOf { rows, next: found.next, now: found.now })
    }

    /// How far a row is behind what it follows, seen from the end of it.
    async fn lag(&self, row: &WorkRow, noted: &Stored, now: Timestamp) -> Result<Lag, ReactionsError> {
        let Some(follow) = &row.follow else { return Ok(Lag::default()) };
        let newest = self.store.read_stream(StreamQuery::backward(follow, KEY_LOOK)).await?;
        let seen = row.position.unwrap_or(Position(0));
        let pending = newest.events.iter().take_while(|event| event.position > seen);
        let chooses = noted.facts.keyed;
        let at =
            |event: &Event| if chooses { routed::original(event).ok().map(|e| e.at) } else { Some(event.at) };
        let waiting: Vec<&Event> = pending.filter(|event| chooses || noted.wants(event)).collect();
        let at_least = !newest.end && newest.events.last().is_some_and(|event| event.position > seen);
        let behind = waiting.last().and_then(|event| at(event)).map_or(Duration::ZERO, |at| now.since(at));
        Ok(Lag { events: waiting.len() as u64, at_least, behind })
    }

    async fn routing_lag(
        &self,
        noted: &Stored,
        position: Position,
        now: Timestamp,
    ) -> Result<Lag, ReactionsError> {
        let query = LogQuery { filter: noted.filter(), ..LogQuery::after(position, LOOK) };
        let page = self.store.read_log(query).await?;
        let waiting: Vec<&Event> = page.events.iter().filter(|event| noted.wants(event)).collect();
        let behind = waiting.first().map_or(Duration::ZERO, |event| now.since(event.at));
        Ok(Lag { events: waiting.len() as u64, at_least: !page.end, behind })
    }
}

impl KeyView {
    fn of(reaction: String, key: Key, row: WorkRow, lag: Lag) -> Self {
        let WorkRow { position, due, attempts, takeovers, last_error, blocked, lease, .. } = row;
        let owner = lease.as_ref().map(|lease| lease.owner.clone());
        let (until, fence) =
            (lease.as_ref().map(|lease| lease.until), lease.as_ref().map(|lease| lease.fence));
        Self {
            reaction,
            key,
            position,
            lag,
            due,
            attempts,
            takeovers,
            last_error,
            blocked,
            owner,
            until,
            fence,
        }
    }
}
