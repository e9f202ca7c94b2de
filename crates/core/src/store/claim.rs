//! Claims of work rows: requests, grants and replies.

use std::time::Duration;

use super::{ClaimDenied, Event, Lease, WorkRow};
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::{Epoch, Fence, Owner, QueueName};
use crate::key::Key;
use crate::model::limits;

/// A claim of work rows by a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The rows to claim.
    pub pick: ClaimTarget,
    /// The owner that claims. It must be unique among the workers of a store.
    pub owner: Owner,
    /// The duration of the lease without renewal.
    pub ttl: Duration,
    /// The number of events of the followed stream in each grant. Multiplied by the number of rows, it may be at most
    /// [`limits::CLAIM_EVENTS`].
    pub events: usize,
}

/// The rows that a claim selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimTarget {
    /// Due rows of these queues: a share by age, the rest by priority, then round-robin over the queues, then by age.
    Lanes {
        /// The queues.
        queues: Vec<QueueName>,
        /// The maximum number of rows, at least one. [`Store::next_ready`](super::Store::next_ready) reports when rows are
        /// ready without leasing any.
        limit: usize,
    },
    /// One row by key, whether it is due or not. An owner may acquire its own lease again, which makes the older fence
    /// stale.
    Named {
        /// The row.
        key: Key,
        /// Creates the row in this queue when there is none, so that the first claim also has exactly one winner.
        create: Option<QueueName>,
    },
}

impl Claim {
    /// Creates a claim of due rows.
    #[must_use]
    pub fn queues(
        owner: &Owner,
        queues: impl IntoIterator<Item = QueueName>,
        limit: usize,
        ttl: Duration,
    ) -> Self {
        let pick = ClaimTarget::Lanes { queues: queues.into_iter().collect(), limit };
        Self { pick, owner: owner.clone(), ttl, events: 0 }
    }

    /// Creates a claim of one row, which is created in `queue` when there is none.
    #[must_use]
    pub fn named(owner: &Owner, key: &Key, queue: &QueueName, ttl: Duration) -> Self {
        let pick = ClaimTarget::Named { key: key.clone(), create: Some(queue.clone()) };
        Self { pick, owner: owner.clone(), ttl, events: 0 }
    }

    /// Creates a claim of one row that must exist.
    #[must_use]
    pub fn existing(owner: &Owner, key: &Key, ttl: Duration) -> Self {
        let pick = ClaimTarget::Named { key: key.clone(), create: None };
        Self { pick, owner: owner.clone(), ttl, events: 0 }
    }

    /// Sets the number of events of the followed stream.
    #[must_use]
    pub fn with_events(mut self, events: usize) -> Self {
        self.events = events;
        self
    }

    /// Checks the claim against the limits.
    ///
    /// # Errors
    /// [`InvalidInput::Limit`] when it claims too many rows or events, or too many events in all, and
    /// [`InvalidInput::Name`] when it claims no rows.
    pub fn validate(&self) -> Result<(), InvalidInput> {
        let rows = match &self.pick {
            ClaimTarget::Lanes { limit: 0, .. } => {
                let reason =
                    "a claim leases at least one row; use Store::next_ready to learn when rows are ready";
                return Err(InvalidInput::name("the number of rows of a claim", "0", reason));
            }
            ClaimTarget::Lanes { limit, .. } => *limit,
            ClaimTarget::Named { .. } => 1,
        };
        limits::within("the number of rows", "a claim", rows, limits::CLAIM_ROWS)?;
        limits::within("the number of events per grant", "a claim", self.events, limits::PAGE_ROWS)?;
        let subject = "a claim (ask for fewer rows, or for fewer events with each)";
        let events = rows.saturating_mul(self.events);
        limits::within("the number of rows times events per grant", subject, events, limits::CLAIM_EVENTS)
    }
}

/// A granted row.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The row as granted: payload, position, attempts, lease.
    pub row: WorkRow,
    /// The fence of this grant.
    pub fence: Fence,
    /// The epoch in which the row was granted.
    pub epoch: Epoch,
    /// Whether the row was taken over: the lease of the previous holder had expired without a release.
    pub taken_over: bool,
    /// Events of the followed stream after the row's position, up to the requested number. Large events reduce the number
    /// ([`limits::CLAIM_BYTES`]).
    pub events: Vec<Event>,
    /// Whether the stream may have more events after these.
    pub more: bool,
}

/// A collector of the events of one grant.
#[derive(Debug)]
pub struct Gathering {
    events: Vec<Event>,
    most: usize,
    /// The remaining bytes of the grant's share.
    room: usize,
}

impl Gathering {
    /// Creates a collector for one of `grants` grants, with at most `most` events.
    #[must_use]
    pub fn new(most: usize, grants: usize) -> Self {
        Self { events: Vec::new(), most, room: Self::share(grants) }
    }

    /// Returns the number of bytes that each of `grants` grants may carry.
    #[must_use]
    pub fn share(grants: usize) -> usize {
        limits::CLAIM_BYTES / grants.max(1)
    }

    /// Returns whether the collector accepts another event.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.events.len() < self.most && (self.events.is_empty() || self.room > 0)
    }

    /// Adds an event. Returns whether the collector accepts another one.
    pub fn add(&mut self, event: Event) -> bool {
        self.room = self.room.saturating_sub(event.payload.len() + event.meta.len());
        self.events.push(event);
        self.is_open()
    }

    /// Returns the events, and whether there may be more.
    #[must_use]
    pub fn end(self) -> (Vec<Event>, bool) {
        let more = self.most > 0 && !self.is_open();
        (self.events, more)
    }
}

impl Grant {
    /// Returns the lease that every write under this grant presents.
    #[must_use]
    pub fn lease(&self) -> Lease {
        let owner = self.row.lease.as_ref().map(|lease| lease.owner.clone());
        Lease { key: self.row.key.clone(), fence: self.fence, owner }
    }
}

/// The reply to a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// The rows that were leased.
    pub grants: Vec<Grant>,
    /// The time at which the next row is claimable, as far as is known, when no row of the queues was. A worker sleeps until
    /// then, or until the store's watch wakes it.
    pub next_at: Option<Timestamp>,
    /// The reason why a row that was claimed by key was not granted.
    pub denied: Option<ClaimDenied>,
    /// The store's clock at the claim.
    pub now: Timestamp,
}

impl Claimed {
    /// Creates the reply to a claim that found nothing.
    #[must_use]
    pub fn nothing(now: Timestamp) -> Self {
        Self { grants: Vec::new(), next_at: None, denied: None, now }
    }

    /// Returns the time until the next row is ready. It is never zero, because a row that is ready and was not granted is
    /// being claimed by others.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        self.next_at.map(|at| at.since(self.now).max(Duration::from_millis(1)))
    }
}

/// The earliest instant at which a row of some queues can be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextReady {
    /// The time at which the first row is ready, as far as is known. A past time means that a row is ready. `None` when no
    /// row of the queues becomes ready without a write.
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
