//! Read-only views of reactions: progress, lag, owners and errors. They acquire no lease.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::definition::head;
use super::error::ReactionsError;
use super::filter::ReactionFilter;
use super::inbox;
use super::keys::{self, Row};
use super::operator::Operator;
use super::parked::Note;
use super::stored::Stored;
use crate::clock::Timestamp;
use crate::id::{EventType, Fence, Owner, Position, QueueName};
use crate::key::Key;
use crate::store::{Blocked, Event, Get, LogQuery, Page, PageOf, StreamQuery, WorkRow};

/// The number of events that are read to determine the lag of routing.
const LOOK: usize = 1_000;
/// The number of such pages without a wanted event after which the search ends.
const PAGES: usize = 20;
/// The number of events that are read for the lag of one key. A page has many keys.
const KEY_LOOK: usize = 100;

/// The lag of a router or a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReactionLag {
    /// The number of waiting events.
    pub events: u64,
    /// Whether there may be more waiting events, because not all were read.
    pub at_least: bool,
    /// The waiting time of the oldest of them, in JSON as seconds.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub behind: Duration,
}

/// Writes a duration as seconds.
fn seconds<S: Serializer>(time: &Duration, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_f64(time.as_secs_f64())
}

/// One key of a reaction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReactionKeyView {
    /// The reaction.
    pub reaction: String,
    /// The key.
    pub key: Key,
    /// The position in the stream or inbox that it follows.
    pub position: Option<Position>,
    /// The lag of the key.
    pub lag: ReactionLag,
    /// When the key is next due; `None` when it rests.
    #[serde(rename = "due_at")]
    pub due: Option<Timestamp>,
    /// Attempts since the last progress.
    pub attempts: u32,
    /// How often a worker died or lost the lease.
    pub takeovers: u32,
    /// The last error.
    pub last_error: Option<String>,
    /// The reason and the start of its block.
    pub blocked: Option<Blocked>,
    /// The owner of the lease.
    pub owner: Option<Owner>,
    /// When the lease expires, unless it is renewed.
    #[serde(rename = "lease_expires_at")]
    pub until: Option<Timestamp>,
    /// The fencing token of the lease.
    pub fence: Option<Fence>,
}

/// One reaction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReactionView {
    /// Its name.
    pub name: String,
    /// The number of its definition, starting at 1.
    pub number: u64,
    /// The author's revision.
    pub revision: u32,
    /// The queue of its rows.
    pub queue: QueueName,
    /// The event types that it subscribes to; empty for all.
    pub types: Vec<EventType>,
    /// Whether it chooses keys; otherwise they are streams.
    pub chooses_keys: bool,
    /// The number of its keys.
    pub keys: u64,
    /// The number of blocked keys.
    pub blocked_keys: u64,
    /// The position up to which the log was routed.
    pub position: Position,
    /// The last position of the log.
    pub head: Position,
    /// The lag of the routing.
    pub lag: ReactionLag,
    /// The reason and the start of the router's block.
    pub blocked: Option<Blocked>,
    /// The owner of the router's lease.
    pub owner: Option<Owner>,
    /// When the lease expires, unless it is renewed.
    #[serde(rename = "lease_expires_at")]
    pub until: Option<Timestamp>,
    /// The fencing token of the lease.
    pub fence: Option<Fence>,
}

/// A parked event (dead letter).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ParkedEvent {
    /// The reaction.
    pub reaction: String,
    /// The key that it belongs to.
    pub key: Key,
    /// The event. If it is too large for a document, its payload and metadata are omitted here. A replay reads them from
    /// its stream.
    pub event: Event,
    /// The reason why it was parked, or the error of the last replay.
    pub error: String,
    /// Attempts before it was parked.
    pub attempts: u32,
    /// When it was parked, or when the last replay failed.
    #[serde(rename = "parked_at")]
    pub at: Timestamp,
    /// The number of failed replays.
    pub replays: u32,
}

impl Operator {
    /// Returns the selected keys, in the order of their rows. Pass `next` of a page to [`Page::after`].
    ///
    /// # Errors
    /// Returns [`ReactionsError::Unknown`] when the reaction does not exist, or the error of the store.
    pub async fn keys(
        &self,
        which: &ReactionFilter,
        page: Page,
    ) -> Result<PageOf<ReactionKeyView>, ReactionsError> {
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
            rows.push(ReactionKeyView::of(reaction, key, row, lag));
        }
        Ok(PageOf { rows, next: found.next, now: found.now })
    }

    /// Returns all reactions that are registered on the store and not ended, with their progress.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn reactions(&self) -> Result<Vec<ReactionView>, ReactionsError> {
        let mut views = Vec::new();
        for (name, noted) in self.definitions().await? {
            let mut found = self.store.read(&[Get::Work(keys::router(&name)?)]).await?;
            let (router, now) = (found.take_work(0), found.now);
            let position = router.as_ref().and_then(|row| row.position).unwrap_or(Position(0));
            let lease = router.as_ref().and_then(|row| row.lease.clone());
            let rows = ReactionFilter::of(name.as_str());
            views.push(ReactionView {
                keys: self.store.count_work(&rows.filter()?).await?,
                blocked_keys: self.store.count_work(&rows.blocked_only().filter()?).await?,
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
                queue: noted.facts.queue.clone(),
                types: noted.facts.interest.types.clone(),
                name,
            });
        }
        Ok(views)
    }

    /// Returns the parked events of a reaction, in the order of their keys. Pass `next` of a page to [`Page::after`].
    ///
    /// # Errors
    /// Returns [`ReactionsError::Unknown`] when the reaction does not exist, or the error of the store.
    pub async fn parked(&self, reaction: &str, page: Page) -> Result<PageOf<ParkedEvent>, ReactionsError> {
        self.definition(reaction).await?;
        let found = self.store.documents(&keys::all_parked(reaction), page).await?;
        let mut rows = Vec::with_capacity(found.rows.len());
        for document in &found.rows {
            let Some((key, _)) = keys::read_parked(&document.key) else { continue };
            let Note { event, error, attempts, at, replays, .. } = Note::read(document)?;
            rows.push(ParkedEvent {
                reaction: reaction.to_owned(),
                key,
                event,
                error,
                attempts,
                at,
                replays,
            });
        }
        Ok(PageOf { rows, next: found.next, now: found.now })
    }

    /// Returns the lag of a row behind its stream or inbox, reading backward from the end.
    async fn lag(
        &self,
        row: &WorkRow,
        noted: &Stored,
        now: Timestamp,
    ) -> Result<ReactionLag, ReactionsError> {
        let Some(follow) = &row.follow else { return Ok(ReactionLag::default()) };
        let newest = self.store.read_stream(StreamQuery::backward(follow, KEY_LOOK)).await?;
        let seen = row.position.unwrap_or(Position(0));
        let pending = newest.events.iter().take_while(|event| event.position > seen);
        let chooses = noted.facts.keyed;
        let at =
            |event: &Event| if chooses { inbox::original(event).ok().map(|e| e.at) } else { Some(event.at) };
        let waiting: Vec<&Event> = pending.filter(|event| chooses || noted.wants(event)).collect();
        let at_least = !newest.end && newest.events.last().is_some_and(|event| event.position > seen);
        let behind = waiting.last().and_then(|event| at(event)).map_or(Duration::ZERO, |at| now.since(at));
        Ok(ReactionLag { events: waiting.len() as u64, at_least, behind })
    }

    async fn routing_lag(
        &self,
        noted: &Stored,
        position: Position,
        now: Timestamp,
    ) -> Result<ReactionLag, ReactionsError> {
        let mut after = position;
        for _ in 0..PAGES {
            let query = LogQuery { filter: noted.filter(), ..LogQuery::after(after, LOOK) };
            let page = self.store.read_log(query).await?;
            let waiting: Vec<&Event> = page.events.iter().filter(|event| noted.wants(event)).collect();
            match (waiting.first(), page.scanned_to) {
                // Only internal events so far, which the store cannot filter out.
                (None, Some(scanned)) if !page.end && scanned > after => after = scanned,
                (first, _) => {
                    let behind = first.map_or(Duration::ZERO, |event| now.since(event.at));
                    return Ok(ReactionLag { events: waiting.len() as u64, at_least: !page.end, behind });
                }
            }
        }
        Ok(ReactionLag { at_least: true, ..ReactionLag::default() })
    }
}

impl ReactionKeyView {
    fn of(reaction: String, key: Key, row: WorkRow, lag: ReactionLag) -> Self {
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
