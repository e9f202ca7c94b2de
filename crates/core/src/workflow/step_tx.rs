//! Transactional steps, with effects in the user's own tables.

use std::fmt;
use std::ops::Deref;

use serde::Serialize;

use super::journal_entry::{Done, JournalEntry, OpId, Ran};
use super::keys;
use super::life::Life;
use super::step::Step;
use crate::clock::Timestamp;
use crate::failure::Failure;
use crate::payload::Payload;
use crate::store::{Batch, Expect};

/// One attempt of a step that records its end in its own transaction: see [`Ctx::step_tx`](super::Ctx::step_tx). It
/// dereferences to [`Step`].
#[derive(Clone)]
pub struct TxStep {
    step: Step,
    op: Option<OpId>,
    generation: u32,
    began: Timestamp,
}

impl TxStep {
    pub(super) fn new(step: Step, op: Option<OpId>, life: &Life, began: Timestamp) -> Self {
        Self { step, op, generation: life.generation, began }
    }

    /// Returns the batch that records the end of the step and its value. Apply it in the transaction that has the effects. The
    /// store rejects it when another attempt has recorded its end, or another process drives the run by now. The transaction must
    /// not be committed then.
    ///
    /// # Errors
    /// When the value cannot be written as JSON, or no worker drives the step.
    pub fn end<T: Serialize + ?Sized>(&self, value: &T) -> Result<Batch, Failure> {
        let (Some((store, holding)), Some(op)) = (&self.step.hold, &self.op) else {
            return Err(Failure::permanent("the step is not driven by a worker"));
        };
        let Step { run, identity, name, .. } = &self.step;
        let ran = Ran { began: self.began, ended: store.estimated_now().max(self.began) };
        let entry = JournalEntry::Done(Done { op: op.clone(), value: Payload::of(value)?, ran });
        let journal = keys::journal(run, self.generation)?;
        Ok(Batch::new()
            .guard_lease(holding.lease())
            .put(&keys::recorded(run, identity, name)?, Expect::Absent, Payload::trusted("true"))
            .append(&journal, Expect::Any, vec![entry.event_by(holding.lease())?]))
    }
}

impl Deref for TxStep {
    type Target = Step;

    fn deref(&self) -> &Step {
        &self.step
    }
}

impl fmt::Debug for TxStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.step, f)
    }
}
