//! Recorder of client operations and their results. The clock is a counter, so instants are unique and never go
//! backwards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Operation, Outcome};

/// A recorder of a history, shared by all clients.
#[derive(Debug)]
pub struct Recorder<Q, A> {
    clock: AtomicU64,
    operations: Mutex<Vec<Operation<Q, A>>>,
}

/// A started operation: its index in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun(pub usize);

impl<Q, A> Recorder<Q, A> {
    /// Creates an empty history.
    #[must_use]
    pub fn new() -> Self {
        Self { clock: AtomicU64::new(1), operations: Mutex::default() }
    }

    /// Records the start of an operation; called just before it. Until [`end`](Self::end) is called, the outcome is
    /// unknown, so a client that is dropped in the middle has nothing to do.
    pub fn call(&self, client: usize, key: &str, asked: Q) -> Begun {
        let mut operations = self.operations();
        let call = self.now();
        let key = key.to_owned();
        operations.push(Operation { client, key, asked, call, end: u64::MAX, outcome: Outcome::Unknown });
        Begun(operations.len() - 1)
    }

    /// Records the outcome of an operation; called just after it, or when the outcome becomes known later.
    pub fn end(&self, begun: Begun, outcome: Outcome<A>) {
        let end = self.now();
        if let Some(operation) = self.operations().get_mut(begun.0) {
            operation.end = if matches!(outcome, Outcome::Unknown) { u64::MAX } else { end };
            operation.outcome = outcome;
        }
    }

    /// Returns an instant after all recorded events and before all future ones.
    pub fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Returns the recorded operations in the order of their calls.
    pub fn history(&self) -> Vec<Operation<Q, A>>
    where
        Q: Clone,
        A: Clone,
    {
        self.operations().clone()
    }

    fn operations(&self) -> MutexGuard<'_, Vec<Operation<Q, A>>> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q, A> Default for Recorder<Q, A> {
    fn default() -> Self {
        Self::new()
    }
}
