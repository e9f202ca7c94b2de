//! Typed reactions: handlers of the events of one aggregate, decoded in their current shape.
//!
//! [`TypedReaction`] is the stage of the builder before the handler. The handler turns it into a plain [`Reaction`], which
//! has the other settings.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;

use super::context::ReactionCtx;
use super::effects::Effects;
use super::error::ReactionsError;
use super::reaction::{HandlerFuture, Reaction};
use crate::error::InvalidInput;
use crate::events::{Aggregate, EventDecoder, EventMetadata, EventNames, TypedEvent};
use crate::failure::Failure;
use crate::key::{Arg, KeyPrefix};
use crate::store::{Event, NewEvent};

impl Reaction {
    /// Creates a reaction to the events of an aggregate. The handler receives decoded events in their current shape, as
    /// [`Aggregate::schema`] defines it. The name is as for [`new`](Self::new).
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use tidelock_core::events::Aggregate;
    /// use tidelock_core::reactions::Reaction;
    ///
    /// # #[derive(Clone, Default)]
    /// # struct Stock;
    /// # #[derive(Serialize, Deserialize)]
    /// # enum StockEvent { Received { count: u32 }, Reserved { order: String, count: u32 } }
    /// # impl Aggregate for Stock {
    /// #     const KIND: &'static str = "stock";
    /// #     type Event = StockEvent;
    /// #     fn apply(&mut self, _: &StockEvent) {}
    /// # }
    /// let notify = Reaction::of::<Stock>("notify").on(["Reserved"]).each(async |cx, id, event| {
    ///     if let StockEvent::Reserved { order, count } = event {
    ///         println!("{order}: {count} of {id} at {}, {}", cx.event().at, cx.effect_key());
    ///     }
    ///     Ok(())
    /// });
    /// # drop(notify);
    /// ```
    pub fn of<A: Aggregate>(name: impl Into<String>) -> TypedReaction<A> {
        let reaction = Self::new(name).streams(KeyPrefix::kind(A::KIND)).upcast::<A>();
        TypedReaction { reaction: reaction.names(Some(EventNames::of::<A>())), aggregate: PhantomData }
    }

    /// Checks the subscribed types against the events of the aggregate. An untyped reaction has nothing to check.
    pub(crate) fn check_names(&self) -> Result<(), ReactionsError> {
        let Some(names) = &self.names else { return Ok(()) };
        let Some(event) = names.first_unknown(&self.types) else { return Ok(()) };
        let (name, event) = (self.name.clone(), event.to_owned());
        Err(ReactionsError::UnknownEvent { name, kind: names.kind, event, known: names.known.to_vec() })
    }
}

/// A reaction to the events of one aggregate that has no handler yet. [`each`](Self::each) or [`batch`](Self::batch) sets
/// the handler and returns the [`Reaction`], which has the other settings.
///
/// An event that does not fit the enum of the aggregate is a permanent failure: its key is blocked, or the event is
/// [parked](super::WhenExhausted). An event of a newer shape is deferred, so that a newer program can handle it. A type
/// that is not in the enum is skipped if the schema says [`UnknownEvents::Skip`](crate::events::UnknownEvents::Skip).
#[must_use = "it does nothing without a handler"]
pub struct TypedReaction<A> {
    reaction: Reaction,
    aggregate: PhantomData<fn() -> A>,
}

impl<A: Aggregate> TypedReaction<A> {
    /// Subscribes to these events, by their current names; further calls add names. Without a call, the reaction receives
    /// all events of the aggregate. A name that is not a variant of [`Aggregate::Event`] is
    /// [an error](ReactionsError::UnknownEvent) when the reaction is started.
    pub fn on<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.reaction = self.reaction.on(names);
        self
    }

    /// Handles one event at a time, like [`Reaction::each`]. The handler receives the id of the aggregate and the event.
    pub fn each<F, Fut, R>(self, handler: F) -> Reaction
    where
        F: FnOnce(EventCtx, Arg, A::Event) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Effects> + 'static,
    {
        let decoder = EventDecoder::<A>::new();
        self.reaction.each_answer(move |ctx, event| {
            let typed = decoder.typed(event).map_err(Failure::permanent);
            finish(typed.map(|typed| {
                let TypedEvent { id, event, raw } = typed?;
                Some(handler.clone()(EventCtx { ctx, event: raw }, id, event))
            }))
        })
    }

    /// Handles several events at once, like [`Reaction::batch`]. An event that cannot be decoded fails alone.
    pub fn batch<F, Fut, R>(self, handler: F) -> Reaction
    where
        F: FnOnce(ReactionCtx, Vec<TypedEvent<A>>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Into<Effects> + 'static,
    {
        let decoder = EventDecoder::<A>::new();
        self.reaction.batch_answer(move |ctx, events| {
            let typed = events.into_iter().filter_map(|event| decoder.typed(event).transpose());
            let typed = typed.collect::<Result<Vec<_>, _>>().map_err(Failure::permanent);
            finish(typed.map(|typed| (!typed.is_empty()).then(|| handler.clone()(ctx, typed))))
        })
    }
}

/// Awaits a handler. There is none if every event was skipped.
fn finish<Fut, R>(run: Result<Option<Fut>, Failure>) -> HandlerFuture
where
    Fut: Future<Output = Result<R, Failure>> + Send + 'static,
    R: Into<Effects> + 'static,
{
    Box::pin(async move {
        match run? {
            Some(run) => run.await.map(Into::into),
            None => Ok(Effects::none()),
        }
    })
}

impl<A> fmt::Debug for TypedReaction<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedReaction").field(&self.reaction).finish()
    }
}

/// The context of a handler run for one event: a [`ReactionCtx`] that knows the event.
#[derive(Clone, Debug)]
pub struct EventCtx {
    ctx: ReactionCtx,
    event: Event,
}

impl EventCtx {
    /// Returns the event as the store returned it, upcast: position, version, time, correlation and metadata.
    #[must_use]
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Returns the context for consequences of the event, as [`ReactionCtx::context`] does.
    #[must_use]
    pub fn context(&self) -> EventMetadata {
        self.ctx.context(&self.event)
    }

    /// Returns the id of the conversation that the event belongs to or starts.
    #[must_use]
    pub fn correlation(&self) -> String {
        self.ctx.correlation(&self.event)
    }

    /// Stamps a new event as a consequence of the event, as [`ReactionCtx::follow_up`] does.
    ///
    /// # Errors
    /// Returns [`InvalidInput`] when the metadata of the event cannot be encoded.
    pub fn follow_up(&self, new: NewEvent) -> Result<NewEvent, InvalidInput> {
        self.ctx.follow_up(&self.event, new)
    }

    /// Creates an event of an aggregate as a consequence of the event, in its current shape.
    ///
    /// # Errors
    /// Returns [`InvalidInput`] when the event cannot be encoded.
    pub fn follow_up_of<B: Aggregate>(&self, new: &B::Event) -> Result<NewEvent, InvalidInput> {
        self.ctx.follow_up_of::<B>(&self.event, new)
    }

    /// Returns the idempotency key of this reaction to the event, as [`ReactionCtx::effect_key`] does.
    #[must_use]
    pub fn effect_key(&self) -> String {
        self.ctx.effect_key(&self.event)
    }
}

impl Deref for EventCtx {
    type Target = ReactionCtx;

    fn deref(&self) -> &ReactionCtx {
        &self.ctx
    }
}
