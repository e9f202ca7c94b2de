//! A reaction as its author writes it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::effects::{Effects, ReactionError};
use super::turn::Turn;
use crate::events::{Aggregate, Start, Upcasters};
use crate::id::{EventType, Lane};
use crate::key::{Key, KeyPrefix};
use crate::model::limits::PAGE_ROWS;
use crate::model::retry::RetryPolicy;
use crate::store::Event;
use crate::worker::{MAX_TTL, MIN_TTL};

/// What becomes of an event whose attempts are used up, or whose error is not to be retried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenExhausted {
    /// Its key is blocked until an operator unblocks it. Nothing is handled out of order; other keys go on.
    #[default]
    Block,
    /// It is set aside in a document, and its key goes on with the next event. Operators replay or drop it.
    Park,
}

/// The policy of a reaction that was given none: ten attempts, waiting up to 0.2, 0.4, 0.8 … seconds between them, at most
/// five minutes.
const RETRY: RetryPolicy = RetryPolicy {
    max_attempts: 10,
    base: Duration::from_millis(200),
    factor: 2.0,
    cap: Duration::from_mins(5),
};
/// How many events a grant brings, unless it is said.
const EVENTS: usize = 100;

pub(super) type Answer = Pin<Box<dyn Future<Output = Result<Effects, ReactionError>> + Send>>;
pub(super) type Choose = Arc<dyn Fn(&Event) -> Option<Key> + Send + Sync>;

/// The user's code.
#[derive(Clone)]
pub(super) enum Handler {
    Each(Arc<dyn Fn(Turn, Event) -> Answer + Send + Sync>),
    Batch(Arc<dyn Fn(Turn, Vec<Event>) -> Answer + Send + Sync>),
}

/// Something that is to happen after events.
///
/// Its name is its identity in the store: its progress is kept under it, and processes that run a reaction of the same name
/// on the same store share the work. Choose another name for another reaction, and keep it when the code changes.
///
/// Each key has its own row of work with its own position, attempts and lease. So keys run in parallel, one key is handled
/// by one worker at a time, in the order of its events, and a key that fails holds up no other.
#[must_use = "it does nothing before it is given to Reactions"]
#[derive(Clone)]
pub struct Reaction {
    pub(super) name: String,
    pub(super) types: Vec<String>,
    pub(super) streams: Option<KeyPrefix>,
    pub(super) lane: Option<Lane>,
    pub(super) to: Option<Choose>,
    pub(super) handler: Option<Handler>,
    pub(super) upcasters: Upcasters,
    pub(super) revision: u32,
    pub(super) retry: RetryPolicy,
    pub(super) exhausted: WhenExhausted,
    pub(super) lease_ttl: Option<Duration>,
    pub(super) events: usize,
    pub(super) together: usize,
    pub(super) start: Start,
    pub(super) ends_for_good: bool,
}

impl Reaction {
    /// A reaction of that name: 1 to 128 bytes, no control characters.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            types: Vec::new(),
            streams: None,
            lane: None,
            to: None,
            handler: None,
            upcasters: Upcasters::default(),
            revision: 1,
            retry: RETRY,
            exhausted: WhenExhausted::default(),
            lease_ttl: None,
            events: EVENTS,
            together: 1,
            start: Start::Beginning,
            ends_for_good: false,
        }
    }

    /// Reacts to events of these types; this may be said several times. Without it, to all events but those that Tidelock
    /// keeps for itself, whose types begin with `tidelock.`.
    ///
    /// A type that is added later counts for events that are committed after the start of the first process that has it. To
    /// go over older events, reset the reaction, or give the type to a reaction of another name.
    pub fn on<T: Into<String>>(mut self, types: impl IntoIterator<Item = T>) -> Self {
        self.types.extend(types.into_iter().map(Into::into));
        self
    }

    /// The same as [`on`](Self::on), for types that were checked before.
    pub fn on_types(self, types: impl IntoIterator<Item = EventType>) -> Self {
        self.on(types)
    }

    /// Only events of the streams in this range.
    pub fn streams(mut self, range: KeyPrefix) -> Self {
        self.streams = Some(range);
        self
    }

    /// The queue that its rows wait in: by default one of its own. Processes that claim from a lane should run all
    /// reactions of that lane; rows of others are put off for a while.
    pub fn lane(mut self, lane: Lane) -> Self {
        self.lane = Some(lane);
        self
    }

    /// Hands over events of this aggregate in their present shape, as [`Aggregate::schema`] says; this may be said for
    /// several aggregates. The function of [`to`](Self::to) gets them in that shape as well. Types that were renamed are
    /// meant by their present name.
    ///
    /// An event of a newer shape than this program knows is put off, so that a newer program can handle it.
    pub fn upcast<A: Aggregate>(mut self) -> Self {
        self.upcasters = self.upcasters.with::<A>();
        self
    }

    /// Numbers the definition, for changes that show nowhere else: 1. Raise it when the function of [`to`](Self::to)
    /// changes, to return to types or a queue that a later release has replaced, or to begin again a reaction that was ended.
    /// A lower number never replaces a higher one.
    ///
    /// Processes whose definition (types, streams, queue, shapes, revision) was replaced by a newer one do nothing for the
    /// reaction: see [`Standing`](super::Standing).
    pub fn revision(mut self, revision: u32) -> Self {
        self.revision = revision;
        self
    }

    /// Lets no definition bring the reaction back once it was ended.
    pub(crate) fn ends_for_good(mut self) -> Self {
        self.ends_for_good = true;
        self
    }

    pub(crate) fn upcasters(mut self, upcasters: Upcasters) -> Self {
        self.upcasters = upcasters;
        self
    }

    /// Chooses the key that an event belongs to, which orders and isolates the work; `None` when the event is not for this
    /// reaction. By default the key is the event's stream.
    ///
    /// With a key chosen like this, events of several streams come to one row, in the order of the log. They are copied to
    /// an inbox of that key on the way. The choice must depend on nothing but the event.
    pub fn to(mut self, choose: impl Fn(&Event) -> Option<Key> + Send + Sync + 'static) -> Self {
        self.to = Some(Arc::new(choose));
        self
    }

    /// Handles one event at a time. What one event did is committed before the next one is handed over, unless
    /// [`together`](Self::together) says otherwise.
    pub fn each<F, Fut, R>(mut self, handler: F) -> Self
    where
        F: Fn(Turn, Event) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, ReactionError>> + Send + 'static,
        R: Into<Effects>,
    {
        let each = move |turn: Turn, event: Event| -> Answer {
            let answer = handler(turn, event);
            Box::pin(async move { answer.await.map(Into::into) })
        };
        self.handler = Some(Handler::Each(Arc::new(each)));
        self
    }

    /// Handles several events of a key at once, as many as a grant brings, in one commit. After a failure they come one by
    /// one, so that a bad event is found and its neighbours are not blamed.
    pub fn batch<F, Fut, R>(mut self, handler: F) -> Self
    where
        F: Fn(Turn, Vec<Event>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, ReactionError>> + Send + 'static,
        R: Into<Effects>,
    {
        let batch = move |turn: Turn, events: Vec<Event>| -> Answer {
            let answer = handler(turn, events);
            Box::pin(async move { answer.await.map(Into::into) })
        };
        self.handler = Some(Handler::Batch(Arc::new(batch)));
        self
    }

    /// How often and how fast it is tried again: by default ten attempts in all, waiting up to 0.2 seconds first, twice as
    /// long each time, and at most five minutes. The wait is kept in the store, so it outlives the process.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = RetryPolicy { max_attempts: policy.max_attempts.max(1), ..policy };
        self
    }

    /// What becomes of an event whose attempts are used up: by default its key is blocked.
    pub fn when_exhausted(mut self, then: WhenExhausted) -> Self {
        self.exhausted = then;
        self
    }

    /// Sets the lease time of a key, instead of that of [`Reactions`](super::Reactions::lease_ttl).
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.lease_ttl = Some(ttl.clamp(MIN_TTL, MAX_TTL));
        self
    }

    /// How many events a grant brings at most: 100.
    pub fn events_per_grant(mut self, events: usize) -> Self {
        self.events = events.clamp(1, PAGE_ROWS);
        self
    }

    /// Commits the effects of up to so many events in one batch, for [`each`](Self::each): 1. More is faster for a key with
    /// many events, and the handler must then not read what it writes: what the events before did may not be there yet.
    pub fn together(mut self, events: usize) -> Self {
        self.together = events.max(1);
        self
    }

    /// Where it begins when it is started for the first time: with the first event of the log. Later it goes on where it
    /// was.
    pub fn start_from(mut self, start: Start) -> Self {
        self.start = start;
        self
    }
}

impl fmt::Debug for Reaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, types, streams, lane, .. } = self;
        f.debug_struct("Reaction")
            .field("name", name)
            .field("types", types)
            .field("streams", streams)
            .field("lane", lane)
            .finish_non_exhaustive()
    }
}
