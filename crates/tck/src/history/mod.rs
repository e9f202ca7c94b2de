//! Recorded histories, and the search for an order that explains them.
//!
//! A history is a list of operations, each with the instants of its call and of its answer on one counter that all
//! clients share. It is linearizable when its operations can be put in one order, each at an instant between its call
//! and its answer, so that a sequential [`Model`] gives every answer that was given. An operation that failed for certain
//! is not in the order. One whose outcome nobody knows may stand anywhere after its call, or nowhere; if it is known to be
//! over at some instant, not behind that.
//!
//! Keys are independent, so each is searched on its own. The search is that of Wing and Gong with Lowe's memory of what
//! was tried: which operations are placed, and which state they lead to. It ends after a number of steps that the caller
//! states: a history is linearizable, broken or undecided, and never a hang.
//!
//! ```
//! use tidelock_tck::history::record::{Ask, Record, RecordModel, Told, What};
//! use tidelock_tck::history::{MOST_STEPS, Outcome, Recorder, check};
//!
//! let recorder = Recorder::new();
//! let set = recorder.call(0, "a", Ask { side: 0, what: What::Set(Record { count: 1, tag: 1 }) });
//! recorder.end(set, Outcome::Ok(Told::Written { old: None, version: 1 }));
//! let read = recorder.call(1, "a", Ask { side: 0, what: What::Read });
//! recorder.end(read, Outcome::Ok(Told::Found(None)));
//! let trouble = check(&RecordModel, &recorder.history(), MOST_STEPS).unwrap_err();
//! assert!(trouble.to_string().contains("client 1"), "{trouble}");
//! ```

mod explain;
mod model;
pub mod record;
mod recorder;
mod search;
mod seen;
mod taken;

use std::collections::BTreeMap;

pub use explain::{Broken, Trouble};
pub use model::Model;
pub use recorder::{Begun, Recorder};

/// Steps after which the search gives up, if the caller has no better number: a few seconds of a test build.
pub const MOST_STEPS: u64 = 1_000_000;

/// How an operation ended, as its client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<A> {
    /// It happened, and this is the answer.
    Ok(A),
    /// It did not happen, and never will.
    Failed,
    /// It may have happened at any time after its call, up to its end if it has one, or never.
    Unknown,
}

/// One operation of a client.
#[derive(Clone, Debug)]
pub struct Operation<Q, A> {
    /// Who asked.
    pub client: usize,
    /// What it is about. Operations on different keys have nothing to do with each other.
    pub key: String,
    /// What was asked.
    pub asked: Q,
    /// The instant of the call.
    pub call: u64,
    /// The instant of the answer. Of an operation whose outcome nobody knows: the last instant at which it may happen,
    /// `u64::MAX` for none.
    pub end: u64,
    /// How it ended.
    pub outcome: Outcome<A>,
}

/// A history of operations that a model understands.
pub type History<M> = Vec<OperationOf<M>>;
/// An operation that a model understands.
pub type OperationOf<M> = Operation<<M as Model>::Asked, <M as Model>::Answer>;

/// What a search that found an order took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explained {
    /// Keys.
    pub keys: usize,
    /// Operations that have their place in an order.
    pub placed: usize,
    /// Steps of the search, of all keys together.
    pub steps: u64,
}

/// Looks for an order of each key of the history, in at most so many steps for each of them.
///
/// # Errors
/// [`Trouble::Broken`] when a key has none, with what fits nowhere; [`Trouble::Undecided`] when the steps were used up.
pub fn check<M: Model>(
    model: &M,
    history: &[OperationOf<M>],
    most_steps: u64,
) -> Result<Explained, Trouble<M::State>> {
    let mut keys: BTreeMap<&str, Vec<&OperationOf<M>>> = BTreeMap::new();
    for operation in history {
        keys.entry(&operation.key).or_default().push(operation);
    }
    let mut explained = Explained { keys: keys.len(), ..Explained::default() };
    for (key, operations) in keys {
        match search::run(model, &operations, u64::MAX, most_steps) {
            search::Found::Order { placed, steps } => {
                explained.placed += placed;
                explained.steps += steps;
            }
            without => return Err(explain::trouble(model, key, &operations, without, most_steps)),
        }
    }
    Ok(explained)
}
