//! What a handler knows about its turn.

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::error::InvalidInput;
use crate::events::{Aggregate, Context, Upcasters, encode, stamped_shape};
use crate::id::EventId;
use crate::key::Key;
use crate::store::{Event, NewEvent, SharedStore};

/// One turn of a handler: for which reaction and key it runs, which attempt it is, and when it must stop.
#[derive(Clone)]
pub struct Turn {
    pub(super) reaction: Arc<str>,
    pub(super) key: Key,
    pub(super) attempt: u32,
    pub(super) store: SharedStore,
    pub(super) upcasters: Arc<Upcasters>,
    pub(super) token: CancellationToken,
}

impl Turn {
    /// The name of the reaction.
    #[must_use]
    pub fn reaction(&self) -> &str {
        &self.reaction
    }

    /// The key whose events these are: the stream, or what [`Reaction::to`](super::Reaction::to) chose. No other turn of
    /// this reaction runs for it, in any process.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Which attempt this is, counted from 1. Attempts of workers that died count.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// A token that fires when the turn ends without a commit: the lease may soon be somebody else's, or the program shuts
    /// down. The handler's future is dropped then. The token is for what goes on elsewhere: tasks and threads of its own.
    #[must_use]
    pub fn cancelled(&self) -> &CancellationToken {
        &self.token
    }

    /// The store. What a handler writes with it stands outside of its effects: it may be done twice.
    #[must_use]
    pub fn store(&self) -> &SharedStore {
        &self.store
    }

    /// The conversation that the event belongs to, for what follows from it: the event is its cause.
    #[must_use]
    pub fn context(&self, event: &Event) -> Context {
        Context::caused_by(event)
    }

    /// The id of the conversation that the event belongs to, or begins.
    #[must_use]
    pub fn correlation(&self, event: &Event) -> String {
        event.correlation.clone().unwrap_or_else(|| event.id.to_string())
    }

    /// What is noted as the cause of what follows from the event.
    #[must_use]
    pub fn causation(&self, event: &Event) -> EventId {
        event.id
    }

    /// A new event that follows from this one: of the same conversation, and caused by it. What stood in its `meta` is
    /// replaced, except for the shape; notes of one's own go into the [`context`](Self::context).
    ///
    /// An event that says no shape has the present one, if an aggregate of [`Reaction::upcast`](super::Reaction::upcast) knows
    /// its type, and else the first. For events of other aggregates, see [`follow_up_of`](Self::follow_up_of).
    ///
    /// # Errors
    /// [`InvalidInput`] when the notes of the event cannot be written.
    pub fn follow_up(&self, event: &Event, new: NewEvent) -> Result<NewEvent, InvalidInput> {
        let shape = stamped_shape(&new).unwrap_or_else(|| self.upcasters.version(new.event_type.as_str()));
        self.context(event).stamp(new, shape)
    }

    /// A new event of an aggregate that follows from this one, in its present shape.
    ///
    /// # Errors
    /// [`InvalidInput`] when the event cannot be written.
    pub fn follow_up_of<A: Aggregate>(
        &self,
        event: &Event,
        new: &A::Event,
    ) -> Result<NewEvent, InvalidInput> {
        let (event_type, payload) = encode(new)?;
        let shape = A::schema().version(event_type.as_str());
        self.context(event).stamp(NewEvent::new(event_type, payload), shape)
    }

    /// The name of this reaction to this event, the same at every attempt and in every process. Hand it to effects outside
    /// of the store, so that the other side can tell that it has done them already.
    #[must_use]
    pub fn effect_key(&self, event: &Event) -> String {
        format!("{}:{}", self.reaction, event.position)
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reaction, key, attempt, .. } = self;
        f.debug_struct("Turn")
            .field("reaction", reaction)
            .field("key", key)
            .field("attempt", attempt)
            .finish_non_exhaustive()
    }
}
