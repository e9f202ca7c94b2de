//! What a workflow is called, what it takes and gives, and which signals it hears: plain constants that callers and workers
//! share.

use std::fmt;
use std::marker::PhantomData;

/// How many signals a workflow can hear, at most.
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
/// const ORDER: Workflow<Order, String> = Workflow::new("order").hears(APPROVED);
/// assert_eq!(ORDER.name(), "order");
/// ```
pub struct Workflow<I, O> {
    name: &'static str,
    signals: [&'static str; MAX_SIGNALS],
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Workflow<I, O> {
    /// A workflow of this name.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, signals: [""; MAX_SIGNALS], types: PhantomData }
    }

    /// The same workflow, which hears a signal. Signals of other names are refused where they are sent.
    ///
    /// # Panics
    /// When there are more than sixteen of them; in a constant, the compiler says so.
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "checked in the line before, and in a constant by the compiler"
    )]
    #[expect(clippy::panic, reason = "in a constant this is a message of the compiler")]
    pub const fn hears<T>(mut self, signal: Signal<T>) -> Self {
        let mut at = 0;
        while at < MAX_SIGNALS && !self.signals[at].is_empty() {
            at += 1;
        }
        if at == MAX_SIGNALS {
            panic!("a workflow hears sixteen signals at most");
        }
        self.signals[at] = signal.name;
        self
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The names of the signals that it hears.
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

/// A signal by its name, with the type of what it brings.
pub struct Signal<T> {
    name: &'static str,
    types: PhantomData<fn(T)>,
}

impl<T> Signal<T> {
    /// A signal of this name.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, types: PhantomData }
    }

    /// Its name.
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
