//! Aggregates, and their loaded state.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::schema::EventSchema;
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::{Epoch, Position, StreamVersion};
use crate::key::{Arg, Key};
use crate::store::Expect;

/// A state that is the fold of its events.
///
/// The events are a serde enum. The name of a variant is the event type in the store, and its content is the payload.
/// Commands are plain functions of the state that return events or an error.
pub trait Aggregate: Default + Clone + Send + Sync + 'static {
    /// The kind of its streams. For `"stock"`, the stream of `apples` is `stock("apples")`.
    const KIND: &'static str;
    /// The version of the fold. Raise it when [`apply`](Self::apply) or the state changes: snapshots of another fold are
    /// not used.
    const FOLD: u32 = 1;
    /// The events of the aggregate.
    type Event: Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Returns the name of the aggregate in stored states. Several aggregates may fold one stream, so each needs a unique
    /// name.
    ///
    /// By default it is the name of the type without its modules. Keep the old name here when you rename the type, because
    /// the state that replaces archived events is found by it.
    #[must_use]
    fn name() -> String {
        short_name(std::any::type_name::<Self>())
    }

    /// Applies an event to the state. The event is already recorded, so this cannot fail.
    fn apply(&mut self, event: &Self::Event);

    /// Returns the schema that converts events of older shapes.
    #[must_use]
    fn schema() -> EventSchema {
        EventSchema::new()
    }

    /// Returns the stream of an id.
    ///
    /// # Errors
    /// Returns [`InvalidInput`] when the kind is empty or the key is too long.
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
    /// When the last event was committed.
    pub at: Option<Timestamp>,
    /// The epoch of the store in which the aggregate was read.
    pub epoch: Epoch,
    /// The latest time of all events. It is later than that of the last event if the store's clock moved backward.
    pub(super) latest: Option<Timestamp>,
    /// The ends of the stream when it was read.
    pub(super) ends: Ends,
}

/// The first and the last version of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    /// The oldest remaining event.
    pub(super) first: Option<StreamVersion>,
    /// The last event, even if it was removed.
    pub(super) head: Option<StreamVersion>,
}

impl<A> Loaded<A> {
    /// Returns the version condition for committing a decision on this state. A stream that was closed permanently has a
    /// version and no state.
    pub(super) fn expectation(&self) -> Expect<StreamVersion> {
        self.version.or(self.ends.head).map_or(Expect::Absent, Expect::Exact)
    }
}

impl<A> Clone for Loaded<A> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state), ..*self }
    }
}

/// The result of a command.
#[derive(Debug)]
pub struct Executed<A> {
    /// The state afterwards.
    pub state: Arc<A>,
    /// The version of the last event; `None` when there are none.
    pub version: Option<StreamVersion>,
    /// The number of events that the command appended.
    pub appended: usize,
    /// The log position of the last appended event; `None` when nothing was appended.
    pub position: Option<Position>,
    /// The number of attempts.
    pub attempts: u32,
}

/// Returns the name of a type without module paths: `Tally<Sale>` for `shop::Tally<shop::Sale>`.
fn short_name(path: &str) -> String {
    let mut name = String::with_capacity(path.len());
    let mut start = 0;
    let mut rest = path;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("::") {
            name.truncate(start);
            rest = after;
            continue;
        }
        name.push(c);
        if !(c.is_alphanumeric() || c == '_') {
            start = name.len();
        }
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    name
}

#[cfg(test)]
mod tests {
    use super::short_name;

    #[test]
    fn names_of_types_are_short() {
        for (path, name) in [
            ("shop::stock::Stock", "Stock"),
            ("Stock", "Stock"),
            ("shop::Tally<shop::Sale, alloc::vec::Vec<u8>>", "Tally<Sale, Vec<u8>>"),
            ("(a::B, c::D)", "(B, D)"),
        ] {
            assert_eq!(short_name(path), name);
        }
    }
}
