//! Actions of the driver, as an activation decides them.

use std::time::Duration;

use crate::clock::{Due, Timestamp};
use crate::payload::Payload;
use crate::workflow::nondeterminism::Nondeterminism;

/// The next action of the driver.
#[derive(Debug, PartialEq)]
pub(in crate::workflow) enum Action {
    /// Poll the workflow: something was delivered to it, or a step may run.
    Poll,
    /// Cancel these children: their parent is cancelled, and does not wait for them.
    CancelChildren(Vec<String>),
    /// Commit the outgoing entries.
    Commit,
    /// Commit the outgoing entries and let the run wait in the store.
    Suspend(Due),
    /// Read the entries that others wrote into the journal.
    ReadJournal,
    /// Read the journal for the ends of steps that record themselves.
    ReadOwnRecords,
    /// Read the store's clock and pass it to [`Activation::next`](super::Activation::next).
    ReadClock,
    /// End this generation and begin the next with this input.
    ContinueAsNew(Payload),
    /// Replay from the beginning: the workflow took another path than the journal.
    Rewind,
    /// Hand the run back: this process shuts down.
    Release,
    /// Wait until a step ends, at most for this time.
    Wait(Option<Duration>),
    /// Suspend the run with a reason: its code does not fit.
    Fail(Nondeterminism),
}

/// The decision after the workflow has returned an output.
#[derive(Debug, PartialEq)]
pub(in crate::workflow) enum Finish {
    /// Commit the outgoing entries first: they do not fit into the batch of the end.
    Commit,
    /// Replay from the beginning: the workflow took another path than the journal.
    Rewind,
    /// Suspend the run with a reason: its code does not fit.
    Fail(Nondeterminism),
    /// End the run with the output.
    End,
}

/// The external conditions that [`Activation::next`](super::Activation::next) depends on.
#[derive(Clone, Copy, Debug)]
pub(in crate::workflow) struct Moment {
    /// The process shuts down.
    pub(in crate::workflow) stopping: bool,
    /// Waits up to this length stay in memory.
    pub(in crate::workflow) linger: Duration,
    /// The store's clock, after [`Action::ReadClock`].
    pub(in crate::workflow) now: Option<Timestamp>,
}
