//! Observer of mutations, for tracing and metrics.

use std::panic::Location;
use std::time::Duration;

use super::WriteOutcome;
use crate::key::Key;
use crate::payload::Payload;

/// The effect of one write to a record.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The record.
    pub key: &'a Key,
    /// The value before. `None` when there was none, and with deltas, which do not read it.
    pub old: Option<&'a Payload>,
    /// The value afterwards. `None` when it was deleted.
    pub new: Option<&'a Payload>,
    /// Whether it was written, and the version.
    pub outcome: WriteOutcome,
    /// The number of attempts.
    pub attempts: u32,
    /// The number of attempts that were lost to other writers.
    pub conflicts: u32,
    /// The source locations of the mutations that shared the write, in the order of their turns.
    pub callers: &'a [&'static Location<'static>],
    /// The time that the first of them spent in the queue.
    pub queued: Duration,
    /// The time from its turn to the result, including running and writing.
    pub took: Duration,
}

/// An observer of successful mutations. It is called while other mutations wait, so it should be quick. A panic in it is
/// reported and has no other effect.
pub trait Observer: Send + Sync {
    /// Called when a record was changed, or confirmed to be unchanged.
    fn mutated(&self, change: &Change<'_>);
}
