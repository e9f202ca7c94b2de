//! The recorded history of a run, against which a replay is compared.

use std::collections::{HashMap, HashSet};

use crate::workflow::journal_entry::{Done, GaveUp, JournalEntry, Kind, OpId, Placed, Version};
use crate::workflow::nondeterminism::{Nondeterminism, side_by_side};

/// The operations and versions that the journal records.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// The operations of the journal at the beginning of the activation, by name.
    ops: HashMap<String, (OpId, Kind)>,
    /// The number of them that the workflow has not requested yet.
    remaining: usize,
    /// The names of steps whose end is recorded.
    ended: HashSet<String>,
    versions: HashMap<String, u32>,
    /// The highest recorded sequence number that was requested again.
    highest: Option<u32>,
    /// Every operation of the journal, in its order, for the report of a difference.
    list: Vec<(OpId, Kind)>,
}

impl Recorded {
    pub(super) fn new(history: &[Placed]) -> Self {
        let mut recorded = Self::default();
        for placed in history {
            recorded.add(&placed.entry);
            if let Some((op, kind)) = placed.entry.op() {
                recorded.ops.entry(op.name.clone()).or_insert_with(|| (op.clone(), kind));
            }
            match &placed.entry {
                JournalEntry::Done(Done { op, .. }) | JournalEntry::GaveUp(GaveUp { op, .. }) => {
                    recorded.ended.insert(op.name.clone());
                }
                JournalEntry::Version(Version { name, value }) => {
                    recorded.versions.insert(name.clone(), *value);
                }
                _ => {}
            }
        }
        recorded.remaining = recorded.ops.len();
        recorded
    }

    /// Adds an entry that was written during the activation.
    pub(super) fn add(&mut self, entry: &JournalEntry) {
        self.list.extend(entry.op().map(|(op, kind)| (op.clone(), kind)));
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.ops.contains_key(name)
    }

    pub(super) fn has_ended(&self, name: &str) -> bool {
        self.ended.contains(name)
    }

    /// Compares a requested operation with the one that is recorded under its name. Returns the difference.
    pub(super) fn compare(&mut self, id: &OpId, kind: Kind) -> Result<(), String> {
        let Some((was, recorded)) = self.ops.get(&id.name) else { return Ok(()) };
        self.remaining = self.remaining.saturating_sub(1);
        if *recorded != kind {
            return Err(format!("{:?} was a {} and is a {} now", was.name, recorded.word(), kind.word()));
        }
        if was.input != id.input {
            return Err(format!("{} {:?} is given something else than before", kind.word(), was.name));
        }
        if self.highest.is_some_and(|highest| was.seq < highest) {
            return Err(format!("{} {:?} comes later than before", kind.word(), was.name));
        }
        self.highest = Some(was.seq);
        Ok(())
    }

    /// Returns the version of a deliberate change: the recorded one, else `least` for a run that has been beyond this place. A run
    /// that arrives here for the first time gets `newest`, which must be recorded.
    pub(super) fn version(&mut self, name: &str, least: u32, newest: u32) -> Versioned {
        if let Some(value) = self.versions.get(name) {
            return Versioned::Known(*value);
        }
        // A recorded operation that was not requested yet lies beyond this place.
        if self.remaining > 0 {
            return Versioned::Known(least);
        }
        self.versions.insert(name.to_owned(), newest);
        Versioned::New
    }

    /// Builds the report of a difference, with recorded and requested operations side by side.
    pub(super) fn differs(&self, what: String, requested: &[(Kind, String)]) -> Nondeterminism {
        Nondeterminism::Differs { what, lists: side_by_side(&self.list, requested) }
    }
}

/// The result of a version lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Versioned {
    Known(u32),
    New,
}
