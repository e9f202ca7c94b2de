//! The one contended pick-up.

use std::time::Duration;

use super::{Denied, Event, Lease, WorkRow};
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::{Epoch, Fence, Lane, Owner};
use crate::key::Key;
use crate::model::limits;

/// What a worker asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which rows.
    pub pick: Pick,
    /// Who asks. Must be unique among the workers of a store.
    pub owner: Owner,
    /// How long the lease lasts without renewal.
    pub ttl: Duration,
    /// How many events of the followed stream come with each grant. Times the rows they may be at most
    /// [`limits::CLAIM_EVENTS`].
    pub events: usize,
}

/// Which rows a claim means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Due rows of these lanes: a share by age, the rest by urgency, then lane by lane in turn, then age.
    Lanes {
        /// The lanes.
        lanes: Vec<Lane>,
        /// At most so many, and at least one. [`Store::next_ready`](super::Store::next_ready) reports when rows are ready
        /// without leasing any.
        limit: usize,
    },
    /// One row by name, whether it is due or not. An owner may take its own lease again; the older fence is stale
    /// from then on.
    Named {
        /// The row.
        key: Key,
        /// Creates the row in this lane when there is none, so that the first claim has exactly one winner, too.
        create: Option<Lane>,
    },
}

impl Claim {
    /// A claim of due rows.
    #[must_use]
    pub fn lanes(owner: &Owner, lanes: impl IntoIterator<Item = Lane>, limit: usize, ttl: Duration) -> Self {
        let pick = Pick::Lanes { lanes: lanes.into_iter().collect(), limit };
        Self { pick, owner: owner.clone(), ttl, events: 0 }
    }

    /// A claim of one row, created in `lane` when there is none.
    #[must_use]
    pub fn named(owner: &Owner, key: &Key, lane: &Lane, ttl: Duration) -> Self {
        let pick = Pick::Named { key: key.clone(), create: Some(lane.clone()) };
        Self { pick, owner: owner.clone(), ttl, events: 0 }
    }

    /// A claim of one row that must exist.
    #[must_use]
    pub fn existing(owner: &Owner, key: &Key, ttl: Duration) -> Self {
        let pick = Pick::Named { key: key.clone(), create: None };
        Self { pick, owner: owner.clone(), ttl, events: 0 }
    }

    /// The same claim, with events of the followed stream.
    #[must_use]
    pub fn with_events(mut self, events: usize) -> Self {
        self.events = events;
        self
    }

    /// Checks the claim against the limits.
    ///
    /// # Errors
    /// [`InvalidInput::Limit`] when it asks for too many rows or events, or for too many events in all, and
    /// [`InvalidInput::Name`] when it asks for no rows.
    pub fn validate(&self) -> Result<(), InvalidInput> {
        let rows = match &self.pick {
            Pick::Lanes { limit: 0, .. } => {
                let reason =
                    "a claim leases at least one row; use Store::next_ready to learn when rows are ready";
                return Err(InvalidInput::name("the number of rows of a claim", "0", reason));
            }
            Pick::Lanes { limit, .. } => *limit,
            Pick::Named { .. } => 1,
        };
        limits::within("the number of rows", "a claim", rows, limits::CLAIM_ROWS)?;
        limits::within("the number of events per grant", "a claim", self.events, limits::PAGE_ROWS)?;
        let subject = "a claim (ask for fewer rows, or for fewer events with each)";
        let events = rows.saturating_mul(self.events);
        limits::within("the number of rows times events per grant", subject, events, limits::CLAIM_EVENTS)
    }
}

/// One row that is now the worker's.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The row as granted: payload, position, attempts, lease.
    pub row: WorkRow,
    /// The fence of this grant.
    pub fence: Fence,
    /// The epoch in which the row was granted.
    pub epoch: Epoch,
    /// Whether the row was taken over with it: the lease of the holder before had ended, and it was not let go.
    pub taken_over: bool,
    /// Events of the followed stream after the row's position: as many as were asked for, or fewer when they are large
    /// ([`limits::CLAIM_BYTES`]).
    pub events: Vec<Event>,
    /// Whether the stream may have more events after these.
    pub more: bool,
}

/// The events of one grant while they are gathered.
#[derive(Debug)]
pub struct Gathering {
    events: Vec<Event>,
    most: usize,
    /// Bytes that are left of the share of the grant.
    room: usize,
}

impl Gathering {
    /// The events of one of `grants` grants of a claim that asks for at most `most` events with each.
    #[must_use]
    pub fn new(most: usize, grants: usize) -> Self {
        Self { events: Vec::new(), most, room: Self::share(grants) }
    }

    /// The bytes that each of so many grants may bring.
    #[must_use]
    pub fn share(grants: usize) -> usize {
        limits::CLAIM_BYTES / grants.max(1)
    }

    /// Whether another event is wanted.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.events.len() < self.most && (self.events.is_empty() || self.room > 0)
    }

    /// Adds an event, and tells whether another one is wanted.
    pub fn add(&mut self, event: Event) -> bool {
        self.room = self.room.saturating_sub(event.payload.len() + event.meta.len());
        self.events.push(event);
        self.is_open()
    }

    /// The events, and whether there may be more.
    #[must_use]
    pub fn end(self) -> (Vec<Event>, bool) {
        let more = self.most > 0 && !self.is_open();
        (self.events, more)
    }
}

impl Grant {
    /// What every write under this grant shows.
    #[must_use]
    pub fn lease(&self) -> Lease {
        let owner = self.row.lease.as_ref().map(|lease| lease.owner.clone());
        Lease { key: self.row.key.clone(), fence: self.fence, owner }
    }
}

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// The rows that were leased.
    pub grants: Vec<Grant>,
    /// When nothing was to be had in the lanes: when the next row can be, as far as is known now. A worker sleeps
    /// until then, or until the store's watch wakes it.
    pub next_at: Option<Timestamp>,
    /// Why a row that was asked for by name was not granted.
    pub denied: Option<Denied>,
    /// The store's clock at the claim.
    pub now: Timestamp,
}

impl Claimed {
    /// Creates the answer of a claim that found nothing.
    #[must_use]
    pub fn nothing(now: Timestamp) -> Self {
        Self { grants: Vec::new(), next_at: None, denied: None, now }
    }

    /// Returns the time until the next row is ready. It is never zero: a row that is ready and was not granted is being
    /// claimed by others.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        self.next_at.map(|at| at.since(self.now).max(Duration::from_millis(1)))
    }
}

/// The earliest instant at which a row of some lanes can be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextReady {
    /// When the first row is ready, as far as is known now. It may be past: then a row is ready. `None` when the lanes have
    /// no row that becomes ready by itself.
    pub at: Option<Timestamp>,
    /// The store's clock at the read.
    pub now: Timestamp,
}

impl NextReady {
    /// Returns whether a row was ready at the read.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.at.is_some_and(|at| at.has_come(self.now))
    }
}
