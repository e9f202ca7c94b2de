//! Entries and effects that wait for their commit.

use crate::model::limits::{BATCH_BYTES, BATCH_EVENTS};
use crate::model::retry::RetryPolicy;
use crate::store::Batch;
use crate::workflow::journal_entry::{Done, JournalEntry};

/// An entry of the journal, or an effect beside it, that is not committed yet.
#[derive(Debug)]
pub(in crate::workflow) struct Outgoing {
    pub(in crate::workflow) entry: Option<JournalEntry>,
    /// The effects of the same commit. Their rejection is a failure of the step.
    pub(in crate::workflow) effects: Batch,
    /// The index of its operation.
    pub(super) op: Option<usize>,
    pub(super) policy: RetryPolicy,
    /// The workflow has received it already.
    pub(in crate::workflow) delivered: bool,
}

impl Outgoing {
    /// Creates one that the workflow need not receive.
    pub(super) fn delivered(entry: Option<JournalEntry>, effects: Batch) -> Self {
        Self { entry, effects, op: None, policy: RetryPolicy::default(), delivered: true }
    }

    /// Creates one that is delivered to an operation after its commit.
    pub(super) fn of_op(index: usize, entry: JournalEntry, effects: Batch) -> Self {
        Self { op: Some(index), delivered: false, ..Self::delivered(Some(entry), effects) }
    }

    /// Returns whether it has effects of the user, which the store may reject.
    pub(in crate::workflow) fn may_be_refused(&self) -> bool {
        !self.effects.effects().is_empty()
    }
}

/// Splits outgoing entries into groups that fit into a batch each. An entry whose effects may be rejected ends its group, so
/// that a rejection names it.
pub(in crate::workflow) fn groups(outgoing: Vec<Outgoing>) -> Vec<Vec<Outgoing>> {
    let (mut groups, mut group, mut room) = (Vec::new(), Vec::new(), Room::default());
    for next in outgoing {
        if !room.take(&next) && !group.is_empty() {
            groups.push(std::mem::take(&mut group));
            room = Room::default();
            room.take(&next);
        }
        let last = next.may_be_refused();
        group.push(next);
        if last {
            groups.push(std::mem::take(&mut group));
            room = Room::default();
        }
    }
    if !group.is_empty() {
        groups.push(group);
    }
    groups
}

/// Returns whether everything fits into one batch, with room for the end of the run.
pub(super) fn fits_one_batch(outgoing: &[Outgoing]) -> bool {
    let mut room = Room::default();
    outgoing.iter().all(|next| room.take(next))
}

/// The room that is left in a batch.
struct Room {
    entries: usize,
    bytes: usize,
}

impl Default for Room {
    /// Half of the limits of a batch: effects and the end of the run need the rest.
    fn default() -> Self {
        Self { entries: BATCH_EVENTS / 2, bytes: BATCH_BYTES / 2 }
    }
}

impl Room {
    /// Takes room for an entry. Returns whether there was enough.
    fn take(&mut self, outgoing: &Outgoing) -> bool {
        let value = match &outgoing.entry {
            Some(JournalEntry::Done(Done { value, .. })) => value.len(),
            _ => 0,
        };
        let bytes = outgoing.effects.bytes().saturating_add(value);
        let fits = self.entries > 0 && bytes <= self.bytes;
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        fits
    }
}
