//! Somebody who hears of every mutation: for tracing and metrics.

use std::panic::Location;
use std::time::Duration;

use super::Outcome;
use crate::key::Key;
use crate::payload::Payload;

/// What one write to a record did.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Which record.
    pub key: &'a Key,
    /// The value before; `None` when there was none, and with deltas, which do not look.
    pub old: Option<&'a Payload>,
    /// The value afterwards; `None` when it was deleted.
    pub new: Option<&'a Payload>,
    /// Whether it was written, and the version.
    pub outcome: Outcome,
    /// How often it was tried.
    pub attempts: u32,
    /// How often others were faster.
    pub conflicts: u32,
    /// Where in the program the mutations were asked for, in the order of their turns: as many as shared the write.
    pub callers: &'a [&'static Location<'static>],
    /// How long the first of them waited for its turn.
    pub queued: Duration,
    /// How long it took from its turn to the answer, running and writing.
    pub took: Duration,
}

/// Hears of every mutation that ended well. It is called while others wait, so it should be quick. A panic in it is reported
/// and changes nothing.
pub trait Observer: Send + Sync {
    /// A record was changed, or confirmed to be as it should.
    fn mutated(&self, change: &Change<'_>);
}
