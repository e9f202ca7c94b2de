//! Context of a handler run.

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::error::InvalidInput;
use crate::events::{Aggregate, EventMetadata, Upcasters, encode, stamped_shape};
use crate::id::EventId;
use crate::key::Key;
use crate::store::{Event, NewEvent, SharedStore};

/// The context of one handler run: its reaction, key, attempt and cancellation.
#[derive(Clone)]
pub struct ReactionCtx {
    pub(super) reaction: Arc<str>,
    pub(super) key: Key,
    pub(super) attempt: u32,
    pub(super) store: SharedStore,
    pub(super) upcasters: Arc<Upcasters>,
    pub(super) token: CancellationToken,
}

impl ReactionCtx {
    /// Returns the name of the reaction.
    #[must_use]
    pub fn reaction(&self) -> &str {
        &self.reaction
    }

    /// Returns the key of the events: the stream, or the key that [`Reaction::to`](super::Reaction::to) chose. No other
    /// handler run of this reaction has the key at the same time, in any process.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the attempt number, starting at 1. An attempt whose worker died counts, if its handler had started.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns a token that fires when the handler run ends. It fires early when the lease may soon expire, or when the
    /// shutdown timeout expires; the handler's future is dropped then. Use it to stop tasks and threads that the handler
    /// has started.
    #[must_use]
    pub fn cancelled(&self) -> &CancellationToken {
        &self.token
    }

    /// Returns the store. Writes through it are not part of the handler's effects, so they may happen twice.
    #[must_use]
    pub fn store(&self) -> &SharedStore {
        &self.store
    }

    /// Returns the context for consequences of the event: the same conversation, with the event as the cause.
    #[must_use]
    pub fn context(&self, event: &Event) -> EventMetadata {
        EventMetadata::caused_by(event)
    }

    /// Returns the id of the conversation that the event belongs to or starts.
    #[must_use]
    pub fn correlation(&self, event: &Event) -> String {
        event.correlation.clone().unwrap_or_else(|| event.id.to_string())
    }

    /// Returns the id that is recorded as the cause of the event's consequences.
    #[must_use]
    pub fn causation(&self, event: &Event) -> EventId {
        event.id
    }

    /// Stamps a new event as a consequence of this one, in the same conversation and caused by it. The `meta` of the new
    /// event is replaced, except for the shape. Put further notes into the [`context`](Self::context).
    ///
    /// An event without a shape gets the current one, if an aggregate of [`Reaction::upcast`](super::Reaction::upcast)
    /// knows its type, and otherwise the first. For events of other aggregates, see [`follow_up_of`](Self::follow_up_of).
    ///
    /// # Errors
    /// Returns [`InvalidInput`] when the metadata of the event cannot be encoded.
    pub fn follow_up(&self, event: &Event, new: NewEvent) -> Result<NewEvent, InvalidInput> {
        let shape = stamped_shape(&new).unwrap_or_else(|| self.upcasters.version(new.event_type.as_str()));
        self.context(event).stamp(new, shape)
    }

    /// Creates an event of an aggregate as a consequence of this one, in its current shape.
    ///
    /// # Errors
    /// Returns [`InvalidInput`] when the event cannot be encoded.
    pub fn follow_up_of<A: Aggregate>(
        &self,
        event: &Event,
        new: &A::Event,
    ) -> Result<NewEvent, InvalidInput> {
        let (event_type, payload) = encode(new)?;
        let shape = A::schema().version(event_type.as_str());
        self.context(event).stamp(NewEvent::new(event_type, payload), shape)
    }

    /// Returns the idempotency key of this reaction to this event. It is the same for every attempt and in every process.
    /// Pass it to external systems, so that they can recognise a repeated effect.
    #[must_use]
    pub fn effect_key(&self, event: &Event) -> String {
        format!("{}:{}", self.reaction, event.position)
    }
}

impl fmt::Debug for ReactionCtx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reaction, key, attempt, .. } = self;
        f.debug_struct("ReactionCtx")
            .field("reaction", reaction)
            .field("key", key)
            .field("attempt", attempt)
            .finish_non_exhaustive()
    }
}
