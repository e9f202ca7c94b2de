//! Somebody who hears of every mutation: for tracing and metrics.

use std::time::Duration;

use super::Outcome;
use crate::key::Key;
use crate::payload::Payload;

/// What one write to a record did.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Which record.
    pub key: &'a Key,
    /// The value before; `None` when there was none.
    pub old: Option<&'a Payload>,
    /// The value afterwards.
    pub new: Option<&'a Payload>,
    /// Whether it was written.
    pub outcome: Outcome,
    /// How often it was tried; more than once when others were faster.
    pub attempts: u32,
    /// How many callers share the write.
    pub mutations: usize,
    /// How long the first of them waited, from asking to the answer.
    pub waited: Duration,
}

/// Hears of every mutation. It is called while others wait, so it should be quick.
pub trait Observer: Send + Sync {
    /// A record was changed, or confirmed to be as it should.
    fn mutated(&self, change: &Change<'_>);
}
