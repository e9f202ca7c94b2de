//! Workflow definitions: the name, input, output and signals of a workflow. They are plain constants that callers and workers
//! share.

use std::fmt;
use std::marker::PhantomData;

/// The maximum number of signals that a workflow accepts.
const MAX_SIGNALS: usize = 16;

/// A workflow by its name, with the types of its input and output.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use tidelock_core::workflow::{Signal, Workflow};
///
/// #[derive(Serialize, Deserialize)]
/// struct Order { item: String }
///
/// const APPROVED: Signal<bool> = Signal::new("approved");
/// const ORDER: Workflow<Order, String> = Workflow::new("order").accepts(APPROVED);
/// assert_eq!(ORDER.name(), "order");
/// ```
pub struct Workflow<I, O> {
    name: &'static str,
    signals: [&'static str; MAX_SIGNALS],
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Workflow<I, O> {
    /// Creates a workflow with this name.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, signals: [""; MAX_SIGNALS], types: PhantomData }
    }

    /// Adds a signal that the workflow accepts. The client rejects signals with other names when they are sent.
    ///
    /// # Panics
    /// When there are more than sixteen signals. In a constant, this is a compile-time error.
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "checked in the line before, and in a constant by the compiler"
    )]
    #[expect(clippy::panic, reason = "in a constant this is a message of the compiler")]
    pub const fn accepts<T>(mut self, signal: Signal<T>) -> Self {
        let mut at = 0;
        while at < MAX_SIGNALS && !self.signals[at].is_empty() {
            at += 1;
        }
        if at == MAX_SIGNALS {
            panic!("a workflow accepts sixteen signals at most");
        }
        self.signals[at] = signal.name;
        self
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the names of the signals that it accepts.
    pub(super) fn signals(&self) -> Vec<String> {
        self.signals.iter().filter(|name| !name.is_empty()).map(|name| (*name).to_owned()).collect()
    }
}

impl<I, O> Clone for Workflow<I, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, O> Copy for Workflow<I, O> {}

impl<I, O> fmt::Debug for Workflow<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workflow").field(&self.name).finish()
    }
}

/// A signal by its name, with the type of its value.
pub struct Signal<T> {
    name: &'static str,
    types: PhantomData<fn(T)>,
}

impl<T> Signal<T> {
    /// Creates a signal with this name.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, types: PhantomData }
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<T> Clone for Signal<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Signal<T> {}

impl<T> fmt::Debug for Signal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signal").field(&self.name).finish()
    }
}
