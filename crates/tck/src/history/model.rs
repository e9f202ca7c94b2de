//! The sequential model that a history is compared with: the view of a single client.

use std::fmt::Debug;
use std::hash::Hash;

use super::OperationOf;

/// A sequential model of one key.
pub trait Model: Sized {
    /// The state of the key at an instant.
    type State: Clone + Eq + Hash + Debug;
    /// The request of a client.
    type Request: Debug;
    /// The answer to a client.
    type Response: Debug;

    /// Returns the initial state of the key.
    fn start(&self) -> Self::State;

    /// Adds to `next` every state to which the operation can lead from `state` with the answer `answer`. Adds nothing
    /// if that answer is impossible. With `None` the answer is unknown, whatever the operation records, and all
    /// reachable states are added.
    fn step(
        &self,
        state: &Self::State,
        operation: &OperationOf<Self>,
        answer: Option<&Self::Response>,
        next: &mut Vec<Self::State>,
    );

    /// Returns whether a later operation can still receive this answer in this state or in a following one, whatever
    /// happens in between. `true` is always safe; `false` only shortens the search.
    fn open(&self, state: &Self::State, operation: &OperationOf<Self>, answer: &Self::Response) -> bool {
        let _ = (state, operation, answer);
        true
    }

    /// Returns whether an operation with this answer is read-only: in no state does it change the view of later
    /// operations. The search places a read-only operation as soon as it fits. `false` is always safe; `true` only
    /// shortens the search.
    fn only_looks(&self, operation: &OperationOf<Self>, answer: &Self::Response) -> bool {
        let _ = (operation, answer);
        false
    }
}
