//! A reaction as it runs: checked once, and noted in the store for those who look at it from outside.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::decide::{Interest, Routing, Rules};
use super::error::ReactionsError;
use super::names::{self, MAX_NAME_BYTES};
use super::reaction::{Choose, Handler, Reaction};
use super::stats::Counters;
use crate::clock::Due;
use crate::error::InvalidInput;
use crate::events::Start;
use crate::id::{EventType, Lane, Position};
use crate::key::KeyPrefix;
use crate::lease::NEVER;
use crate::payload::Payload;
use crate::store::{
    ApplyError, Batch, Direction, Document, Expect, LogQuery, NewWork, Page, Pattern, Refusal, SharedStore,
    StoreError, WorkFilter,
};

/// A reaction that was checked.
pub(super) struct Definition {
    pub(super) name: Arc<str>,
    pub(super) interest: Interest,
    pub(super) lane: Lane,
    pub(super) to: Option<Choose>,
    pub(super) handler: Handler,
    pub(super) rules: Rules,
    pub(super) ttl: Duration,
    pub(super) events: usize,
    pub(super) together: usize,
    pub(super) start: Start,
    pub(super) counters: Counters,
}

impl Definition {
    /// Checks a reaction. One without a lease time of its own gets the default.
    pub(super) fn check(reaction: Reaction, default_ttl: Duration) -> Result<Self, ReactionsError> {
        let Reaction {
            name,
            types,
            streams,
            lane,
            to,
            handler,
            retry,
            exhausted,
            lease_ttl,
            events,
            together,
            start,
        } = reaction;
        check_name(&name)?;
        let invalid = |error: InvalidInput| ReactionsError::Invalid { name: name.clone(), error };
        let Some(handler) = handler else { return Err(ReactionsError::NoHandler { name }) };
        let mut types =
            types.into_iter().map(EventType::new).collect::<Result<Vec<_>, _>>().map_err(invalid)?;
        types.sort_unstable();
        types.dedup();
        let lane = lane.map_or_else(|| names::own_lane(&name), Ok).map_err(invalid)?;
        let (interest, rules) = (Interest { types, streams }, Rules { retry, exhausted });
        let (name, counters) = (name.into(), Counters::default());
        let ttl = lease_ttl.unwrap_or(default_ttl);
        Ok(Self { name, interest, lane, to, handler, rules, ttl, events, together, start, counters })
    }

    /// Where events go in this life of the reaction.
    pub(super) fn routing(&self, generation: u64) -> Routing<'_> {
        Routing { name: &self.name, interest: &self.interest, to: self.to.as_ref(), generation }
    }

    /// Whether several events are handed over at once.
    pub(super) fn several(&self) -> bool {
        matches!(self.handler, Handler::Batch(_))
    }

    fn noted(&self, generation: u64) -> Noted {
        let Interest { types, streams } = self.interest.clone();
        Noted { generation, keyed: Some(self.to.is_some()), types, streams, lane: self.lane.clone() }
    }

    /// Notes the reaction in the store, and creates the row that routes, where that has not been done.
    pub(super) async fn subscribe(&self, store: &SharedStore) -> Result<(), ReactionsError> {
        let (document, router) = (names::definition(&self.name)?, names::router(&self.name)?);
        loop {
            let before = store.document(&document).await?;
            let was = before.as_ref().map(Noted::read).transpose()?;
            self.same_way(was.as_ref())?;
            let noted = self.noted(was.as_ref().map_or(0, |was| was.generation));
            let mut batch = Batch::new();
            if was.as_ref() != Some(&noted) {
                let expect = before.map_or(Expect::Absent, |document| Expect::Exact(document.version));
                batch = batch.put(&document, expect, Payload::of(&noted)?);
            }
            if store.work(&router).await?.is_none() {
                let position = Some(first_position(store, self.start).await?);
                let standing = NewWork::standing(router.clone(), names::routers()?).due(Due::At(NEVER));
                batch = batch.enqueue(NewWork { position, ..standing });
            }
            if !batch.effects().is_empty() {
                match store.apply(batch).await {
                    Err(ApplyError::Refused(refusal)) if matches!(*refusal, Refusal::Document { .. }) => {
                        continue;
                    }
                    other => drop(other?),
                }
            }
            if let Some(was) = was.filter(|was| was.lane != self.lane) {
                self.move_rows(store, &was.lane).await?;
            }
            return Ok(());
        }
    }

    /// Rows are kept by stream, or by chosen key. Neither can go on with the rows of the other.
    fn same_way(&self, was: Option<&Noted>) -> Result<(), ReactionsError> {
        let way = |keyed| if keyed { "keys that it chooses" } else { "streams" };
        match was.and_then(|was| was.keyed) {
            Some(keyed) if keyed != self.to.is_some() => Err(ReactionsError::Changed {
                name: self.name.to_string(),
                was: way(keyed),
                is: way(self.to.is_some()),
            }),
            _ => Ok(()),
        }
    }

    /// Moves rows that have something to do to the lane that the reaction has now. Others move when they are woken.
    async fn move_rows(&self, store: &SharedStore, from: &Lane) -> Result<(), ReactionsError> {
        let pattern = Some(Pattern::new(&names::rows_matching(Some(&self.name), None))?);
        let filter = WorkFilter { lane: Some(from.clone()), pattern, ..WorkFilter::default() };
        let mut page = Page::first(1_000);
        loop {
            let found = store.works(&filter, page).await?;
            let busy = found
                .rows
                .iter()
                .filter(|row| row.due.is_some() || row.blocked.is_some() || row.lease.is_some());
            let moved = busy.fold(Batch::new(), |batch, row| {
                let work = NewWork::standing(row.key.clone(), self.lane.clone()).priority(row.priority);
                batch.enqueue(NewWork { expect: Expect::Any, ..work })
            });
            store.apply(moved).await?;
            let Some(next) = found.next else { return Ok(()) };
            page = Page::after(&next, 1_000);
        }
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition").field("name", &self.name).finish_non_exhaustive()
    }
}

fn check_name(name: &str) -> Result<(), ReactionsError> {
    let reason = if name.is_empty() {
        "it is empty".to_owned()
    } else if name.len() > MAX_NAME_BYTES {
        format!("it has {} bytes, at most {MAX_NAME_BYTES} are allowed", name.len())
    } else if name.chars().any(char::is_control) {
        "it holds a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(ReactionsError::Name { name: name.chars().take(80).collect(), reason })
}

async fn first_position(store: &SharedStore, start: Start) -> Result<Position, StoreError> {
    Ok(match start {
        Start::Beginning => Position(0),
        Start::After(position) => position,
        Start::Now => head(store).await?,
    })
}

/// The position of the last event of the log.
pub(super) async fn head(store: &SharedStore) -> Result<Position, StoreError> {
    let last = LogQuery { direction: Direction::Backward, ..LogQuery::all(1) };
    Ok(store.read_log(last).await?.events.first().map_or(Position(0), |event| event.position))
}

/// What is noted about a reaction in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Noted {
    /// How often the reaction was reset as a whole.
    pub(super) generation: u64,
    /// Whether it chooses keys; nobody has said so yet after a reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) keyed: Option<bool>,
    #[serde(default)]
    pub(super) types: Vec<EventType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) streams: Option<KeyPrefix>,
    pub(super) lane: Lane,
}

impl Noted {
    pub(super) fn read(document: &Document) -> Result<Self, InvalidInput> {
        document.value.parse()
    }

    /// Which events it is about.
    pub(super) fn interest(&self) -> Interest {
        Interest { types: self.types.clone(), streams: self.streams.clone() }
    }
}
