//! What an aggregate is, and what is known of one.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::schema::EventSchema;
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::{Epoch, Position, StreamVersion};
use crate::key::{Arg, Key};

/// State that is the fold of its events.
///
/// The events are a serde enum: the name of a variant is the type of the event in the store, what it holds is the payload.
/// Commands are plain functions of the state that give events or say why not.
pub trait Aggregate: Default + Clone + Send + Sync + 'static {
    /// The kind of its streams: the stream of `apples` is `stock("apples")` for `"stock"`.
    const KIND: &'static str;
    /// Which fold this is. Raise it when [`apply`](Self::apply) or the state changes: snapshots of another fold are not used.
    const FOLD: u32 = 1;
    /// What happens to it.
    type Event: Serialize + DeserializeOwned + Send + Sync + 'static;

    /// What an event does to the state. It happened, so it cannot fail.
    fn apply(&mut self, event: &Self::Event);

    /// How events of older shapes read today.
    #[must_use]
    fn schema() -> EventSchema {
        EventSchema::new()
    }

    /// The stream of an id.
    ///
    /// # Errors
    /// [`InvalidInput`] when the kind is empty or the key is too long.
    fn stream(id: impl Into<Arg>) -> Result<Key, InvalidInput>
    where
        Self: Sized,
    {
        Key::of(Self::KIND, &[id.into()])
    }
}

/// An aggregate as it was when it was read.
#[derive(Debug)]
pub struct Loaded<A> {
    /// The state: the default when there are no events.
    pub state: Arc<A>,
    /// The version of the last event; `None` when there are none.
    pub version: Option<StreamVersion>,
    /// The position of the last event.
    pub position: Option<Position>,
    /// When it was committed.
    pub at: Option<Timestamp>,
    /// The epoch of the store in which it was read.
    pub epoch: Epoch,
}

impl<A> Clone for Loaded<A> {
    fn clone(&self) -> Self {
        let Self { state, version, position, at, epoch } = self;
        Self { state: Arc::clone(state), version: *version, position: *position, at: *at, epoch: *epoch }
    }
}

/// What a command did.
#[derive(Debug)]
pub struct Executed<A> {
    /// The state afterwards.
    pub state: Arc<A>,
    /// The version of the last event; `None` when there are none.
    pub version: Option<StreamVersion>,
    /// How many events the command appended.
    pub appended: usize,
    /// Where the last of them stands in the log; `None` when nothing was appended.
    pub position: Option<Position>,
    /// How often it decided.
    pub attempts: u32,
}
