//! Builder of a reaction.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::context::ReactionCtx;
use super::effects::Effects;
use crate::events::{Aggregate, EventNames, StartFrom, Upcasters};
use crate::failure::Failure;
use crate::id::{EventType, QueueName};
use crate::key::{Key, KeyPrefix};
use crate::model::limits::PAGE_ROWS;
use crate::model::retry::RetryPolicy;
use crate::store::Event;
use crate::worker::{MAX_TTL, MIN_TTL};

/// The policy for an event whose attempts are used up, or whose error is permanent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenExhausted {
    /// Blocks its key until an operator unblocks it. No event is handled out of order; other keys continue.
    #[default]
    Block,
    /// Parks it as a dead letter in a document, and continues with the next event of the key. Operators replay or drop it.
    Park,
}

/// The default retry policy: ten attempts, with waits of up to 0.2, 0.4, 0.8 … seconds between them, at most five minutes.
const RETRY: RetryPolicy = RetryPolicy {
    max_attempts: 10,
    base: Duration::from_millis(200),
    factor: 2.0,
    cap: Duration::from_mins(5),
};
/// The default limit of events per grant.
const EVENTS: usize = 100;

pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Result<Effects, Failure>> + Send>>;
pub(super) type Choose = Arc<dyn Fn(&Event) -> Option<Key> + Send + Sync>;

/// The user's handler.
#[derive(Clone)]
pub(super) enum Handler {
    Each(Arc<dyn Fn(ReactionCtx, Event) -> HandlerFuture + Send + Sync>),
    Batch(Arc<dyn Fn(ReactionCtx, Vec<Event>) -> HandlerFuture + Send + Sync>),
}

/// An event handler with stored progress.
///
/// Its name is its identity in the store, and its progress is stored under it. Processes that run a reaction of the same
/// name on the same store share the work. Choose another name for another reaction, and keep the name when the code
/// changes.
///
/// Each key has its own work row with its own position, attempts and lease. So keys run in parallel, and a failing key
/// delays no other. One worker at a time handles a key, in the order of its events.
#[must_use = "it does nothing before it is given to Reactions"]
#[derive(Clone)]
pub struct Reaction {
    pub(super) name: String,
    pub(super) types: Vec<String>,
    pub(super) names: Option<EventNames>,
    pub(super) streams: Option<KeyPrefix>,
    pub(super) queue: Option<QueueName>,
    pub(super) to: Option<Choose>,
    pub(super) handler: Option<Handler>,
    pub(super) upcasters: Upcasters,
    pub(super) revision: u32,
    pub(super) retry: RetryPolicy,
    pub(super) exhausted: WhenExhausted,
    pub(super) lease_ttl: Option<Duration>,
    pub(super) events: usize,
    pub(super) together: usize,
    pub(super) start: StartFrom,
    pub(super) ends_for_good: bool,
}

impl Reaction {
    /// Creates a reaction. The name has 1 to 128 bytes and no control characters.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            types: Vec::new(),
            names: None,
            streams: None,
            queue: None,
            to: None,
            handler: None,
            upcasters: Upcasters::default(),
            revision: 1,
            retry: RETRY,
            exhausted: WhenExhausted::default(),
            lease_ttl: None,
            events: EVENTS,
            together: 1,
            start: StartFrom::Beginning,
            ends_for_good: false,
        }
    }

    /// Subscribes to events of these types; further calls add types. Without a call, the reaction receives all events
    /// except Tidelock's own, whose types start with `tidelock.`.
    ///
    /// A type added later applies to events that are committed after the start of the first process that has it. To handle
    /// older events, reset the reaction, or subscribe a reaction of another name to the type.
    pub fn on<T: Into<String>>(mut self, types: impl IntoIterator<Item = T>) -> Self {
        self.types.extend(types.into_iter().map(Into::into));
        self
    }

    /// Subscribes like [`on`](Self::on), with types that are already validated.
    pub fn on_types(self, types: impl IntoIterator<Item = EventType>) -> Self {
        self.on(types)
    }

    /// Restricts the reaction to events of the streams in this range.
    pub fn streams(mut self, range: KeyPrefix) -> Self {
        self.streams = Some(range);
        self
    }

    /// Sets the queue of its rows. By default each reaction has a queue of its own. Processes that poll a queue should run
    /// all reactions of that queue; rows of unknown reactions are deferred.
    pub fn queue(mut self, queue: QueueName) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Converts events of this aggregate to their current shape, as [`Aggregate::schema`] defines it. It can be called for
    /// several aggregates. The function of [`to`](Self::to) receives the converted events as well. Renamed types are
    /// selected by their current name.
    ///
    /// An event of a newer shape than this program knows is deferred, so that a newer program can handle it.
    pub fn upcast<A: Aggregate>(mut self) -> Self {
        self.upcasters = self.upcasters.with::<A>();
        self
    }

    /// Sets the revision of the definition, for changes that are not visible otherwise. The default is 1. Raise it when the
    /// function of [`to`](Self::to) changes, or to restart a reaction that was ended. Raise it also to return to types or a
    /// queue that a later release has replaced. A lower revision never replaces a higher one.
    ///
    /// Processes whose definition (types, streams, queue, shapes, revision) was replaced by a newer one do nothing for the
    /// reaction, see [`DefinitionState`](super::DefinitionState).
    pub fn revision(mut self, revision: u32) -> Self {
        self.revision = revision;
        self
    }

    /// Makes the end of the reaction final: no later definition restarts it.
    pub(crate) fn ends_for_good(mut self) -> Self {
        self.ends_for_good = true;
        self
    }

    /// Sets the names that the types are checked against at the start.
    pub(crate) fn names(mut self, names: Option<EventNames>) -> Self {
        self.names = names;
        self
    }

    pub(crate) fn upcasters(mut self, upcasters: Upcasters) -> Self {
        self.upcasters = upcasters;
        self
    }

    /// Sets the function that chooses the key of an event. The key orders and isolates the work. The function returns
    /// `None` when the event is not for this reaction. By default the key is the event's stream.
    ///
    /// With chosen keys, one row handles events of several streams, in the order of the log. The router copies them to an
    /// inbox of the key. The choice must depend only on the event.
    pub fn to(mut self, choose: impl Fn(&Event) -> Option<Key> + Send + Sync + 'static) -> Self {
        self.to = Some(Arc::new(choose));
        self
    }

    /// Handles one event at a time. The effects of an event are committed before the handler receives the next one, unless
    /// [`together`](Self::together) is set.
    ///
    /// The handler is an async function or closure. It is cloned for each event, so its captures should be cheap to clone, and
    /// an `async move` closure can borrow from them and from the context:
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidelock_core::reactions::Reaction;
    ///
    /// # struct Mailer;
    /// # impl Mailer { async fn send(&self, _: &str, _: &str) -> Result<(), std::io::Error> { Ok(()) } }
    /// let mailer = Arc::new(Mailer);
    /// let mail = Reaction::new("mail").on(["Placed"]).each(async move |cx, event| {
    ///     mailer.send(event.payload.as_str(), &cx.effect_key(&event)).await?;
    ///     Ok(())
    /// });
    /// # drop(mail);
    /// ```
    pub fn each<F, Fut, R>(self, handler: F) -> Self
    where
        F: FnOnce(ReactionCtx, Event) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Effects>,
    {
        self.each_answer(move |cx, event| {
            let answer = handler.clone()(cx, event);
            Box::pin(async move { answer.await.map(Into::into) })
        })
    }

    /// Sets a handler of single events whose future is boxed.
    pub(crate) fn each_answer(
        mut self,
        handler: impl Fn(ReactionCtx, Event) -> HandlerFuture + Send + Sync + 'static,
    ) -> Self {
        self.handler = Some(Handler::Each(Arc::new(handler)));
        self
    }

    /// Handles several events of a key at once, up to the limit of a grant, in one commit. After a failure the handler
    /// receives them one by one, so that a bad event does not affect its neighbours.
    pub fn batch<F, Fut, R>(self, handler: F) -> Self
    where
        F: FnOnce(ReactionCtx, Vec<Event>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Effects>,
    {
        self.batch_answer(move |cx, events| {
            let answer = handler.clone()(cx, events);
            Box::pin(async move { answer.await.map(Into::into) })
        })
    }

    /// Sets a handler of several events whose future is boxed.
    pub(super) fn batch_answer(
        mut self,
        handler: impl Fn(ReactionCtx, Vec<Event>) -> HandlerFuture + Send + Sync + 'static,
    ) -> Self {
        self.handler = Some(Handler::Batch(Arc::new(handler)));
        self
    }

    /// Sets the retry policy. By default there are ten attempts in total, with exponential backoff. The first wait is up to
    /// 0.2 seconds, each next one is twice as long, and none exceeds five minutes. The wait is stored, so it survives the
    /// process.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = RetryPolicy { max_attempts: policy.max_attempts.max(1), ..policy };
        self
    }

    /// Sets the policy for an event whose attempts are used up. By default its key is blocked.
    pub fn when_exhausted(mut self, then: WhenExhausted) -> Self {
        self.exhausted = then;
        self
    }

    /// Sets the lease time of a key, instead of that of [`Reactions`](super::Reactions::lease_ttl).
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.lease_ttl = Some(ttl.clamp(MIN_TTL, MAX_TTL));
        self
    }

    /// Sets the most events per grant. The default is 100.
    pub fn events_per_grant(mut self, events: usize) -> Self {
        self.events = events.clamp(1, PAGE_ROWS);
        self
    }

    /// Sets the most events whose effects are committed in one batch, for [`each`](Self::each). The default is 1. More is
    /// faster for keys with many events. The handler must then not read its own writes, because the effects of earlier
    /// events may be uncommitted.
    pub fn together(mut self, events: usize) -> Self {
        self.together = events.max(1);
        self
    }

    /// Sets the start position for the first start of the reaction. The default is the first event of the log. Later starts
    /// resume at the stored position.
    pub fn start_from(mut self, start: StartFrom) -> Self {
        self.start = start;
        self
    }
}

impl fmt::Debug for Reaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, types, streams, queue, .. } = self;
        f.debug_struct("Reaction")
            .field("name", name)
            .field("types", types)
            .field("streams", streams)
            .field("queue", queue)
            .finish_non_exhaustive()
    }
}
