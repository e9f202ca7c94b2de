//! What one client alone would see: the sequential model that a history is compared with.

use std::fmt::Debug;
use std::hash::Hash;

use super::OperationOf;

/// A sequential model of one key.
pub trait Model: Sized {
    /// What the key is at an instant.
    type State: Clone + Eq + Hash + Debug;
    /// What a client asks.
    type Asked: Debug;
    /// What a client is told.
    type Answer: Debug;

    /// What the key is at the beginning.
    fn start(&self) -> Self::State;

    /// Adds to `next` every state that the operation can lead to when it takes place in this state and the answer is
    /// `answer`; nothing when it cannot be. Without an answer, nobody knows it, whatever the operation says: all states
    /// that it can lead to.
    fn step(
        &self,
        state: &Self::State,
        operation: &OperationOf<Self>,
        answer: Option<&Self::Answer>,
        next: &mut Vec<Self::State>,
    );

    /// Whether an operation that is still to come can be given this answer in this state or in one that follows it,
    /// whatever comes in between. `true` when in doubt: a `false` only makes the search shorter.
    fn open(&self, state: &Self::State, operation: &OperationOf<Self>, answer: &Self::Answer) -> bool {
        let _ = (state, operation, answer);
        true
    }

    /// Whether an operation with this answer only looks: in no state does it change what later operations can see. Such
    /// a one takes its place as soon as it fits. `false` when in doubt: a `true` only makes the search shorter.
    fn only_looks(&self, operation: &OperationOf<Self>, answer: &Self::Answer) -> bool {
        let _ = (operation, answer);
        false
    }
}
