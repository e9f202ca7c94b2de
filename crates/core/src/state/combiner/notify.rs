//! Notification of the observer.

use std::time::Instant;

use super::{Combiner, Ran};
use crate::payload::Payload;
use crate::process;
use crate::runtime::panic::isolate;
use crate::state::WriteOutcome;
use crate::state::observe::Change;
use crate::telemetry;

/// A write to report.
pub(super) struct WriteReport<'a> {
    pub(super) old: Option<&'a Payload>,
    pub(super) new: Option<&'a Payload>,
    pub(super) outcome: WriteOutcome,
    pub(super) attempts: u32,
    pub(super) begun: Instant,
}

impl<T> Combiner<T> {
    /// Notifies the observer, if there is one and at least one mutation is part of the write.
    pub(super) fn observed<'a>(&self, ran: impl Iterator<Item = &'a Ran<T>>, told: WriteReport<'_>)
    where
        T: 'a,
    {
        let Some(observer) = &self.observer else { return };
        let fine: Vec<&Ran<T>> = ran.filter(|ran| ran.fine).collect();
        let Some(first) = fine.iter().map(|ran| ran.since).min() else { return };
        let WriteReport { old, new, outcome, attempts, begun } = told;
        let callers: Vec<_> = fine.iter().map(|ran| ran.place).collect();
        let change = Change {
            key: &self.key,
            old,
            new,
            outcome,
            attempts,
            conflicts: attempts.saturating_sub(1),
            callers: &callers,
            queued: begun.saturating_duration_since(first),
            took: process::elapsed(begun),
        };
        if let Err(panic) = isolate("the observer", || observer.mutated(&change)) {
            tracing::error!(target: telemetry::STATE, key = %self.key, "{panic}; the mutation is not affected");
        }
    }
}
