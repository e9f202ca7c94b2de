//! The commit decision for one batch: every precondition and effect in order, on a working set. A refused batch leaves
//! the working set untouched.

use super::batch::{Batch, Effect};
use super::receipt::Receipt;
use super::refusal::Refusal;
use super::working_set::WorkingSet;
use super::{document, stream, work};
use crate::clock::Timestamp;
use crate::id::EventId;

/// The reason why a decision ended without a receipt.
#[derive(Debug, PartialEq)]
pub enum Stop {
    /// The batch is refused.
    Refused(Box<Refusal>),
    /// These event ids decide whether the batch is refused or a repetition. Look them up in the log, with all earlier
    /// changes written, and decide again.
    NeedEventIds(Vec<EventId>),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

/// Applies a batch to the working set, or returns the reason and leaves the working set unchanged.
///
/// The slots of the batch's footprint must be filled. `selected` holds the keys of the work rows that the batch's
/// filters may match, and their slots must be filled. The decision checks the filters again, because earlier effects of
/// the same batch count.
///
/// # Errors
/// Returns [`Stop`] when nothing was applied.
pub fn decide(
    facts: &mut WorkingSet,
    batch: &Batch,
    selected: &[crate::key::Key],
    now: Timestamp,
) -> Result<Receipt, Stop> {
    if let Some(receipt) = stream::repetition(facts, batch, now)? {
        return Ok(receipt);
    }
    if let Some(observed) = batch.observed_in.filter(|observed| *observed != facts.counters.epoch) {
        let refusal = Refusal::Epoch { observed, current: facts.counters.epoch };
        return Err(refused(facts, batch, refusal.into()));
    }
    let mark = facts.mark();
    let mut receipt = Receipt::new(now);
    for (index, effect) in batch.effects.iter().enumerate() {
        let step = Step { facts, receipt: &mut receipt, index, now };
        if let Err(stop) = step.run(effect, selected) {
            facts.undo_to(mark);
            return Err(refused(facts, batch, stop));
        }
    }
    document::settle_all(facts, &mut receipt);
    Ok(receipt)
}

/// Asks for the event ids first when a refused batch may be a repetition.
fn refused(facts: &WorkingSet, batch: &Batch, stop: Stop) -> Stop {
    match stop {
        Stop::Refused(refusal) if may_be_repetition(&refusal) => {
            stream::unknown_ids(facts, batch).map_or(Stop::Refused(refusal), Stop::NeedEventIds)
        }
        other => other,
    }
}

/// Returns whether the batch itself may have caused the conflict. The event ids show that before the batch is refused.
fn may_be_repetition(refusal: &Refusal) -> bool {
    !matches!(refusal, Refusal::Invalid(_))
}

/// The application of one effect to the working set.
pub(super) struct Step<'a> {
    pub(super) facts: &'a mut WorkingSet,
    pub(super) receipt: &'a mut Receipt,
    pub(super) index: usize,
    pub(super) now: Timestamp,
}

impl Step<'_> {
    fn run(mut self, effect: &Effect, selected: &[crate::key::Key]) -> Result<(), Stop> {
        match effect {
            Effect::Append { stream, expect, events } => stream::append(self, stream, *expect, events)?,
            Effect::Close { stream, expect } => stream::close(self, stream, *expect)?,
            Effect::Truncate { stream, before } => stream::truncate(self, stream, *before)?,
            Effect::GuardStream { stream, expect } => stream::check(&self, stream, *expect)?,
            Effect::Put { key, expect, value, expires } => {
                document::put(self, key, *expect, value, *expires)?;
            }
            Effect::Delete { key, expect } => document::delete(self, key, *expect)?,
            Effect::Merge { key, deltas, missing } => document::merge(self, key, deltas, missing)?,
            Effect::GuardDocument { key, expect } => document::check(&mut self, key, *expect)?,
            Effect::Enqueue(new) => work::enqueue(self, new)?,
            Effect::Operate { selection, operation } => work::operate(self, selection, *operation, selected),
            Effect::Ack { lease } => work::finish(self, lease, work::Finish::Ack)?,
            Effect::Advance { lease, position } => {
                work::finish(self, lease, work::Finish::Advance(*position))?;
            }
            Effect::Defer { lease, due } => work::finish(self, lease, work::Finish::Defer(*due))?,
            Effect::Fail { lease, error, due } => work::finish(self, lease, work::Finish::Fail(error, *due))?,
            Effect::Block { lease, reason } => work::finish(self, lease, work::Finish::Block(reason))?,
            Effect::Renew { lease, ttl } => work::finish(self, lease, work::Finish::Renew(*ttl))?,
            Effect::Release { lease } => work::finish(self, lease, work::Finish::Release)?,
            Effect::GuardLease { lease } => work::finish(self, lease, work::Finish::Nothing)?,
            Effect::GuardWork { key, seq } => work::check(&self, key, *seq)?,
        }
        Ok(())
    }
}
