//! What an aggregate is, and what is known of one.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::schema::EventSchema;
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::{Epoch, Position, StreamVersion};
use crate::key::{Arg, Key};
use crate::store::Expect;

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

    /// The name of the aggregate in what is kept of it. Several aggregates may fold one stream, so each needs a name of its own.
    ///
    /// By default it is the name of the type without its modules. Keep the old name here when you rename the type: the state that
    /// stands for archived events is found by it.
    #[must_use]
    fn name() -> String {
        short_name(std::any::type_name::<Self>())
    }

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
    /// The latest time of its events. It is later than that of the last one when the clock of the store went back.
    pub(super) latest: Option<Timestamp>,
    /// The stream as it was found.
    pub(super) ends: Ends,
}

/// The beginning and the end of a stream, removed events included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    /// The oldest event that is left.
    pub(super) first: Option<StreamVersion>,
    /// The last event, removed or not.
    pub(super) head: Option<StreamVersion>,
}

impl<A> Loaded<A> {
    /// The condition under which a decision on this state is committed. A stream that was closed for good has a version and no
    /// state.
    pub(super) fn expectation(&self) -> Expect<StreamVersion> {
        self.version.or(self.ends.head).map_or(Expect::Absent, Expect::Exact)
    }
}

impl<A> Clone for Loaded<A> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state), ..*self }
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

/// The name of a type without the paths of its modules: `Tally<Sale>` for `shop::Tally<shop::Sale>`.
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
