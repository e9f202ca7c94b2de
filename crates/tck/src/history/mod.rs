//! Recorded histories, and the linearizability check that searches for an order that explains them.
//!
//! A history is a list of operations, each with the instants of its call and of its answer on one counter that all
//! clients share. It is linearizable if its operations have an order in which a sequential [`Model`] returns every
//! recorded answer. Each operation is placed at an instant between its call and its answer. An operation that certainly
//! failed is not in the order. An operation with an unknown outcome may be placed anywhere after its call, or nowhere.
//! If it is known to have ended by some instant, it is placed before that instant or nowhere.
//!
//! Keys are independent, so each is searched separately. The algorithm is that of Wing and Gong with Lowe's memoization
//! of the placed operations and the resulting state. The search ends after a number of steps that the caller sets. A
//! history is linearizable, broken or undecided, and the search never hangs.
//!
//! ```
//! use tidelock_tck::history::record::{ClientRequest, Record, RecordModel, ClientResponse, RecordOperation};
//! use tidelock_tck::history::{MOST_STEPS, Outcome, Recorder, check};
//!
//! let recorder = Recorder::new();
//! let set = recorder.call(0, "a", ClientRequest { side: 0, what: RecordOperation::Set(Record { count: 1, tag: 1 }) });
//! recorder.end(set, Outcome::Ok(ClientResponse::Written { old: None, version: 1 }));
//! let read = recorder.call(1, "a", ClientRequest { side: 0, what: RecordOperation::Read });
//! recorder.end(read, Outcome::Ok(ClientResponse::Found(None)));
//! let trouble = check(&RecordModel, &recorder.history(), MOST_STEPS).unwrap_err();
//! assert!(trouble.to_string().contains("client 1"), "{trouble}");
//! ```

mod explain;
pub mod list_append;
mod model;
pub mod record;
mod recorder;
mod search;
mod seen;
mod taken;

use std::collections::BTreeMap;

pub use explain::{Counterexample, Trouble};
pub use model::Model;
pub use recorder::{Begun, Recorder};

/// Default step limit of the search: a few seconds in a test build.
pub const MOST_STEPS: u64 = 1_000_000;

/// The outcome of an operation, as its client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<A> {
    /// The operation happened and returned this answer.
    Ok(A),
    /// The operation did not happen and never will.
    Failed,
    /// The operation may have happened at any time after its call, up to its end if it has one, or never.
    Unknown,
}

/// One operation of a client.
#[derive(Clone, Debug)]
pub struct Operation<Q, A> {
    /// The client that called the operation.
    pub client: usize,
    /// The key of the operation. Operations on different keys are independent.
    pub key: String,
    /// The request.
    pub asked: Q,
    /// The instant of the call.
    pub call: u64,
    /// The instant of the answer. For an operation with an unknown outcome, this is the last instant at which it may
    /// happen, or `u64::MAX` for no limit.
    pub end: u64,
    /// The outcome.
    pub outcome: Outcome<A>,
}

/// A history of operations that a model understands.
pub type History<M> = Vec<OperationOf<M>>;
/// An operation that a model understands.
pub type OperationOf<M> = Operation<<M as Model>::Request, <M as Model>::Response>;

/// Statistics of a successful search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explained {
    /// Number of keys.
    pub keys: usize,
    /// Number of operations placed in an order.
    pub placed: usize,
    /// Steps of the search over all keys.
    pub steps: u64,
}

/// Searches for an order of each key of the history, in at most `most_steps` steps per key.
///
/// # Errors
/// Returns [`Trouble::Broken`] if a key has no order, with the operations that fit nowhere. Returns
/// [`Trouble::Undecided`] if the step limit was reached.
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
