//! How operations change state: by entries of the journal, ends of attempts, timers, signals and cancellation.

use std::time::Duration;

use super::op::{Op, OpState};
use super::outgoing::Outgoing;
use super::{Abandoned, Activation, Resolution, Unproven};
use crate::clock::Timestamp;
use crate::failure::Failure;
use crate::failure::step_error::StepError;
use crate::model::limits::ERROR_BYTES;
use crate::model::retry::{AfterFailure, RetryPolicy};
use crate::payload::Payload;
use crate::runtime::jitter::fraction;
use crate::store::Batch;
use crate::workflow::child;
use crate::workflow::journal_entry::{
    Awaited, Done, GaveUp, JournalEntry, Kind, NamedEntry, Placed, Ran, TimerSet, Tried,
};
use crate::workflow::nondeterminism::Nondeterminism;

/// The number of operations that a run may request after its cancellation, beside those of its clean-up. Each is given up at
/// once, so code that ignores the cancellation would never end.
const MAX_GIVEN_UP: usize = 10_000;

/// The failure of a step that should have recorded its end and did not.
const NOT_RECORDED: &str = "the step ended well, and its transaction did not record that: \
    apply the batch of TxStep::end in it, and commit it before the step returns";

impl Activation {
    /// Delivers an entry of the journal.
    pub(super) fn deliver(&mut self, placed: &Placed) {
        match &placed.entry {
            JournalEntry::Started(_)
            | JournalEntry::Resumed(_)
            | JournalEntry::Version(_)
            | JournalEntry::Ended(_) => {}
            JournalEntry::Done(Done { op, value, .. }) => {
                if self.was_abandoned(&op.name) {
                    self.abandoned = Abandoned::Recorded;
                }
                self.resolve(&op.name, Resolution::Value(value.clone()));
            }
            JournalEntry::GaveUp(GaveUp { op, error, .. })
            | JournalEntry::ChildRefused(GaveUp { op, error, .. }) => {
                self.resolve(&op.name, Resolution::Error(error.clone()));
            }
            JournalEntry::Tried(Tried { op, attempt, wait, .. }) => {
                let until = placed.at.after(*wait);
                self.change(&op.name, |op| {
                    op.attempt = *attempt;
                    op.set(OpState::Sleeping(until));
                });
            }
            JournalEntry::TimerSet(TimerSet { op, when }) => {
                let until = when.since(placed.at);
                self.change(&op.name, |op| op.set(OpState::Sleeping(until)));
            }
            JournalEntry::TimerFired(NamedEntry { name }) => self.resolve(name, Resolution::Nothing),
            JournalEntry::Awaited(Awaited { op }) => self.change(&op.name, |_| {}),
            JournalEntry::ChildStarted(started) => {
                let run = started.run.clone();
                if self.cancelled.is_some() {
                    self.orphans.push(run.clone());
                }
                self.change(&started.op.name, |op| {
                    op.child = Some(run);
                    op.set(OpState::Pending);
                });
            }
            JournalEntry::ChildEnded(ended) => {
                // A child of an earlier generation may have the same name.
                let child = self.ops.find(&ended.name).and_then(|op| op.child.as_deref());
                if child == Some(&*ended.run) {
                    self.resolve(&ended.name, child::resolution(ended));
                }
            }
            JournalEntry::Heard(heard) => self.mailbox.receive(heard),
            JournalEntry::Cancel(reason) => {
                if self.cancelled.is_none() {
                    self.cancelled = Some(reason.reason.clone());
                    self.requested_before_cancel = self.ops.len();
                }
                self.changed = true;
            }
        }
    }

    fn resolve(&mut self, name: &str, resolution: Resolution) {
        self.change(name, |op| {
            op.child = None;
            op.set(OpState::Resolved(resolution));
        });
    }

    /// Changes an operation that the workflow must have requested by now. One that it dropped stays closed.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut Op)) {
        match self.ops.find_mut(name) {
            Some(op) if op.is_open() => change(op),
            Some(_) => {}
            None => {
                let differs =
                    self.differs(format!("{name:?} is recorded, and the code does not ask for it there"));
                self.fail(differs);
            }
        }
    }

    /// Gives up the first operation of a cancelled run. Returns whether there was one.
    pub(super) fn give_up_one(&mut self) -> bool {
        let Some(reason) = self.cancelled.clone() else { return false };
        let (recorded, mut given_up, mut child) = (&self.recorded, false, None);
        let (most, mut ignored) = (self.requested_before_cancel.saturating_add(MAX_GIVEN_UP), false);
        self.ops.each_open(|index, op| {
            // A step that began comes to its end: its effects may have happened.
            let begun = match op.state {
                OpState::Running | OpState::Runnable => true,
                OpState::Committing => op.kind == Kind::Step,
                _ => false,
            };
            if given_up || op.shielded || begun || recorded.has_ended(&op.id.name) {
                return;
            }
            given_up = true;
            ignored = index >= most;
            child = op.child.take();
            let what = op.id.name.clone();
            let cancelled = StepError::Cancelled { what, reason: reason.clone() };
            op.set(OpState::Resolved(Resolution::Error(cancelled)));
        });
        self.orphans.extend(child);
        if ignored {
            let what = format!(
                "the run is cancelled, and its code has requested {MAX_GIVEN_UP} operations since; return when an operation \
                 is cancelled, and request those of the clean-up through clean_up()"
            );
            self.fail(Nondeterminism::Invalid { what });
        }
        given_up
    }

    /// Takes back a signal from a wait that the workflow has not polled since: it keeps the wait and awaits something else.
    /// The signal goes to the first wait that the workflow awaits.
    pub(super) fn take_back_signal(&mut self) {
        let Some(index) = self.handed.take() else { return };
        if let Some(op) = self.ops.get(index)
            && let (OpState::Resolved(Resolution::Value(value)), Some(signal)) = (&op.state, &op.signal)
        {
            self.mailbox.put_back(signal, value.clone());
            self.ops.reopen(index);
        }
    }

    /// Hands the oldest unread signal to the first wait for it. Returns whether there was one.
    pub(super) fn hand_over_one(&mut self) -> bool {
        if self.mailbox.is_empty() {
            return false;
        }
        let (mailbox, mut handed) = (&mut self.mailbox, None);
        self.ops.each_open(|index, op| {
            if handed.is_some() || op.kind != Kind::Wait || !op.awaited {
                return;
            }
            if let Some(value) = op.signal.as_ref().and_then(|signal| mailbox.take(signal)) {
                op.set(OpState::Resolved(Resolution::Value(value)));
                handed = Some(index);
            }
        });
        self.handed = handed;
        handed.is_some()
    }

    /// Fires timers that are due, and ends the backoff of steps. Returns whether there were any.
    pub(super) fn fire_due(&mut self, now: Timestamp) -> bool {
        let (mut fired, mut any) = (Vec::new(), false);
        self.ops.each_open(|index, op| {
            let OpState::Sleeping(until) = op.state else { return };
            if !until.has_come(now) {
                return;
            }
            any = true;
            if op.kind == Kind::Step {
                op.state = OpState::Pending;
            } else {
                op.state = OpState::Committing;
                fired.push((index, op.id.name.clone()));
            }
        });
        for (index, name) in fired {
            let entry = JournalEntry::TimerFired(NamedEntry { name });
            self.outgoing.push(Outgoing::of_op(index, entry, Batch::new()));
        }
        any
    }

    /// Ends an attempt of a step.
    pub(super) fn end_attempt(
        &mut self,
        index: usize,
        (result, ran): (Result<Payload, Failure>, Ran),
        policy: &RetryPolicy,
        effects: Batch,
    ) {
        let alone = effects.effects().is_empty() && self.ops.has_one_open();
        let cancelled = self.cancelled.is_some();
        // A step that the workflow dropped before its effects were rejected has no result to record.
        let Some(op) = self.ops.get_mut(index).filter(|op| op.state != OpState::Closed) else { return };
        let id = op.id.clone();
        let (entry, resolution) = match result {
            Ok(value) => {
                let done = Done { op: id, value: value.clone(), ran };
                (JournalEntry::Done(done), Some(Resolution::Value(value)))
            }
            Err(failure) => {
                let failure = failure.truncated(ERROR_BYTES);
                let cancelled = cancelled && !op.shielded;
                let wait = if cancelled { None } else { retry_wait(&failure, op.attempt, policy, ran.ended) };
                match wait {
                    Some(wait) => {
                        let (attempt, error) = (op.attempt, failure.message().to_owned());
                        (JournalEntry::Tried(Tried { op: id, attempt, error, wait, ran }), None)
                    }
                    None => {
                        let (step, attempts) = (id.name.clone(), op.attempt);
                        let error = failure.message().to_owned();
                        let error = StepError::Failed { step, error, attempts };
                        let gave_up = GaveUp { op: id, error: error.clone(), ran: Some(ran) };
                        (JournalEntry::GaveUp(gave_up), Some(Resolution::Error(error)))
                    }
                }
            }
        };
        // Code that awaits nothing else receives the result at once. Where it awaits several, the order of the journal counts.
        let delivered = match resolution {
            Some(resolution) if alone => {
                op.set(OpState::Resolved(resolution));
                true
            }
            _ => {
                op.state = OpState::Committing;
                false
            }
        };
        self.ahead |= delivered;
        self.changed = true;
        let outgoing = Outgoing::of_op(index, entry, effects);
        self.outgoing.push(Outgoing { policy: *policy, delivered, ..outgoing });
    }

    /// Ends an attempt of a step that records its end itself. The journal shows whether it did.
    pub(super) fn end_recorded_attempt(&mut self, unproven: Unproven) {
        let op = self.ops.get_mut(unproven.index).filter(|op| op.state == OpState::Running);
        let Some(op) = op else { return };
        op.state = OpState::Committing;
        self.unproven.push(unproven);
        self.changed = true;
    }

    /// Fails the steps that should have recorded their end and did not. The caller has read and received the whole journal.
    pub(in crate::workflow) fn prove(&mut self) {
        for Unproven { index, failure, policy, ran } in std::mem::take(&mut self.unproven) {
            let committing = self.ops.get(index).filter(|op| op.state == OpState::Committing);
            let Some(name) = committing.map(|op| op.id.name.as_str()) else { continue };
            let ends =
                |placed: &Placed| matches!(&placed.entry, JournalEntry::Done(done) if done.op.name == name);
            if !self.undelivered.iter().any(ends) {
                let failure = failure.unwrap_or_else(|| Failure::new(NOT_RECORDED));
                self.end_attempt(index, (Err(failure), ran), &policy, Batch::new());
            }
        }
    }

    /// Handles the rejection of a commit by the store: the step failed, and is retried by its policy.
    pub(in crate::workflow) fn reject(&mut self, outgoing: &Outgoing, reason: &str) {
        match (outgoing.op, &outgoing.entry) {
            (Some(index), Some(JournalEntry::Done(done))) => {
                let failed = (Err(Failure::new(reason)), done.ran);
                self.end_attempt(index, failed, &outgoing.policy, Batch::new());
            }
            (Some(index), Some(JournalEntry::ChildStarted(started))) => {
                let error = child::refused(&started.op.name, &started.run, reason);
                let entry = JournalEntry::ChildRefused(GaveUp { op: started.op.clone(), error, ran: None });
                self.outgoing.push(Outgoing::of_op(index, entry, Batch::new()));
            }
            _ => self.fail(Nondeterminism::Invalid { what: reason.to_owned() }),
        }
    }

    /// Closes an operation that the workflow dropped, or whose result it took.
    pub(super) fn close(&mut self, index: usize) {
        let Some(op) = self.ops.get_mut(index) else { return };
        // A signal that was handed over and not consumed is there for the next wait.
        if let (Kind::Wait, OpState::Resolved(Resolution::Value(value)), Some(signal)) =
            (op.kind, &op.state, &op.signal)
        {
            self.mailbox.put_back(signal, value.clone());
        }
        if op.may_have_recorded() {
            let abandoned = match op.state {
                OpState::Closed => Abandoned::No,
                OpState::Resolved(_) => Abandoned::Recorded,
                _ => Abandoned::Unread,
            };
            self.abandoned = self.abandoned.max(abandoned);
        }
        op.state = OpState::Closed;
        op.waker = None;
    }

    /// For the recorded end of a step that records itself: marks that it ran, and returns whether the workflow still awaits it.
    pub(in crate::workflow) fn note_own_record(&mut self, entry: &JournalEntry) -> Option<bool> {
        let open = self.records_of_open(entry)?;
        if let JournalEntry::Done(Done { op, .. }) = entry
            && let Some(op) = self.ops.find_mut(&op.name)
        {
            op.ran = true;
        }
        Some(open)
    }

    /// For the recorded end of a step that records itself: whether the workflow still awaits it.
    pub(super) fn records_of_open(&self, entry: &JournalEntry) -> Option<bool> {
        let JournalEntry::Done(Done { op, .. }) = entry else { return None };
        let op = self.ops.find(&op.name).filter(|op| op.records_itself)?;
        Some(op.is_open())
    }

    fn was_abandoned(&self, name: &str) -> bool {
        self.ops.find(name).is_some_and(|op| op.may_have_recorded() && op.state == OpState::Closed)
    }
}

/// Returns the wait before the next attempt of a step that failed at that time, if there is one.
fn retry_wait(failure: &Failure, attempt: u32, policy: &RetryPolicy, ended: Timestamp) -> Option<Duration> {
    if failure.is_permanent() {
        return None;
    }
    match policy.after_failure(attempt, 0.5 + fraction() / 2.0) {
        AfterFailure::Again(wait) => Some(failure.wait(wait, ended)),
        AfterFailure::Block => None,
    }
}
