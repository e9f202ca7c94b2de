//! A workflow activation as a pure state machine: no store, no clock, no waiting.
//!
//! An activation replays the journal of a run and continues it. The workflow's future requests operations through
//! [`OpHandle`]s. The driver asks [`Activation::next`] for an [`Action`], performs it, and asks again:
//!
//! ```text
//!            ┌────────────────────────── next() ──────────────────────────┐
//!            ▼                                                            │
//!   Rewind ◀─┼─ the journal disagrees with the path that the code took    │
//!   Poll   ◀─┼─ one entry or result was delivered, or a step may run      │
//!   Commit ◀─┼─ ends, timers and children wait for their entry            │
//!   Suspend◀─┼─ everything waits: the run rests in the store              ├── driver performs it
//!   Wait   ◀─┼─ a step runs, or the wait is short                         │
//!   Fail   ◀─┘─ the code does not fit the journal                         │
//!            └────────────────────────────────────────────────────────────┘
//! ```
//!
//! Replay is deterministic because one thing at a time is delivered, in the order of the journal, and the future is polled
//! after each. A step begins only when everything before it is committed.

mod action;
mod handle;
mod mailbox;
mod op;
mod outgoing;
mod recorded;
mod resolve;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

pub(super) use self::action::{Action, Finish, Moment};
pub(super) use self::handle::{OpEvent, OpHandle};
use self::mailbox::Mailbox;
use self::op::{Op, OpState, OpTable};
use self::outgoing::fits_one_batch;
pub(super) use self::outgoing::{Outgoing, groups};
use self::recorded::{Recorded, Versioned};
use super::context_guard::CallSite;
use super::journal_entry::{JournalEntry, Kind, OpId, Placed, Ran, SignalReceived, Version};
use super::nondeterminism::Nondeterminism;
use crate::failure::Failure;
use crate::failure::step_error::StepError;
use crate::model::retry::RetryPolicy;
use crate::payload::Payload;
use crate::store::Batch;

/// An activation that the workflow's future and its driver share. Both run in one task; the mutex makes the future `Send`.
pub(super) type ActivationRef = Arc<Mutex<Activation>>;

/// The result of an operation, as the workflow receives it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Resolution {
    Value(Payload),
    Nothing,
    Error(StepError),
}

/// An operation that the workflow requests.
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) input: Option<String>,
    pub(super) shielded: bool,
    pub(super) signal: Option<String>,
    pub(super) records_itself: bool,
}

/// The state of an activation.
#[derive(Debug, Default)]
pub(super) struct Activation {
    ops: OpTable,
    recorded: Recorded,
    mailbox: Mailbox,
    /// Entries of the journal that the workflow has not received, in order.
    undelivered: VecDeque<Placed>,
    /// The number of them that the run wrote itself before this activation. While it is not zero, the workflow is where it was before.
    replay_left: usize,
    outgoing: Vec<Outgoing>,
    /// The workflow received a result whose entry is still outgoing.
    ahead: bool,
    /// Something was delivered, and the workflow was not polled since.
    poll_due: bool,
    /// The workflow changed something while it was polled.
    changed: bool,
    cancelled: Option<String>,
    /// The cancelled run asked to continue as new, and got an error.
    refused_to_continue: bool,
    /// Children to cancel.
    orphans: Vec<String>,
    /// The wait that received the signal which was delivered last.
    handed: Option<usize>,
    /// Steps were permitted to run, and the workflow was polled since.
    permitted: bool,
    /// The number of operations that were requested before the cancellation.
    requested_before_cancel: usize,
    continue_with: Option<Payload>,
    broken: Option<Nondeterminism>,
    /// The counters of operations that the code does not name.
    counters: HashMap<String, u32>,
    /// The number of times that steps were permitted to run.
    rounds: u32,
    /// Steps that may have recorded their end themselves.
    unproven: Vec<Unproven>,
    abandoned: Abandoned,
}

/// Whether the workflow dropped a step that may have recorded its own end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Abandoned {
    #[default]
    No,
    /// It did: from now on every write must know the whole journal.
    Yes,
    /// It did, and the journal was not read since.
    Unread,
    /// The end is in the journal: the path that the workflow took does not count.
    Recorded,
}

/// A step that should have recorded its end in its own transaction.
#[derive(Debug)]
struct Unproven {
    index: usize,
    failure: Option<Failure>,
    policy: RetryPolicy,
    ran: Ran,
}

impl Activation {
    /// Creates the activation of a run with this journal and these received signals.
    pub(super) fn new(history: Vec<Placed>, received: &[(String, String)]) -> ActivationRef {
        let replay_left = history.iter().filter(|placed| !placed.entry.is_foreign()).count();
        Arc::new(Mutex::new(Self {
            recorded: Recorded::new(&history),
            mailbox: Mailbox::new(received),
            replay_left,
            undelivered: history.into(),
            poll_due: true,
            ..Self::default()
        }))
    }

    /// Decides what the driver does next.
    pub(super) fn next(&mut self, moment: Moment) -> Action {
        self.withdraw_permits();
        loop {
            if let Some(action) = self.deliver_or_poll() {
                return action;
            }
            if self.abandoned == Abandoned::Unread {
                self.abandoned = Abandoned::Yes;
                return Action::ReadJournal;
            }
            if let Some(input) = &self.continue_with {
                let input = input.clone();
                return if self.outgoing.is_empty() { Action::ContinueAsNew(input) } else { Action::Commit };
            }
            if let Some(due) = self.suspends_until(moment.linger) {
                return Action::Suspend(due);
            }
            if !self.outgoing.is_empty() {
                return Action::Commit;
            }
            if !self.unproven.is_empty() {
                return Action::ReadOwnRecords;
            }
            if moment.stopping && !self.waiting().busy {
                return Action::Release;
            }
            if self.permit_steps() {
                return Action::Poll;
            }
            match self.wait(moment) {
                Some(action) => return action,
                // Timers fired: their entries are outgoing now.
                None => continue,
            }
        }
    }

    /// Delivers one thing to the workflow, and lets it be polled after each.
    fn deliver_or_poll(&mut self) -> Option<Action> {
        loop {
            if let Some(broken) = &self.broken {
                return Some(Action::Fail(broken.clone()));
            }
            if self.abandoned == Abandoned::Recorded {
                return Some(Action::Rewind);
            }
            if !self.orphans.is_empty() {
                return Some(Action::CancelChildren(self.take_orphans()));
            }
            if std::mem::take(&mut self.poll_due) {
                return Some(Action::Poll);
            }
            if !self.deliver_next() {
                return None;
            }
        }
    }

    /// Delivers one thing: a result that needs no entry, else the next entry. Returns `false` when there is none.
    ///
    /// Results without an entry, such as a signal that arrived before its wait, always come before the next entry. A replay thus
    /// delivers in the same order.
    pub(super) fn deliver_next(&mut self) -> bool {
        self.take_back_signal();
        // The entry of a result that the workflow received ahead of the journal may follow a cancellation. A signal handed over
        // now would let the workflow request operations that a replay, which receives the cancellation first, does not.
        let delivered = self.give_up_one() || (!self.ahead && self.hand_over_one()) || self.deliver_entry();
        self.poll_due |= delivered;
        delivered
    }

    /// Delivers the next entry of the journal. Returns `false` when there is none.
    pub(super) fn deliver_entry(&mut self) -> bool {
        let Some(placed) = self.undelivered.pop_front() else {
            self.replay_left = 0;
            return false;
        };
        self.replay_left = self.replay_left.saturating_sub(usize::from(!placed.entry.is_foreign()));
        self.deliver(&placed);
        true
    }

    /// Adds an entry that was written during the activation, for delivery.
    pub(super) fn receive(&mut self, placed: Placed) {
        self.recorded.add(&placed.entry);
        self.undelivered.push_back(placed);
    }

    /// Decides about an output of the workflow.
    pub(super) fn finish(&self) -> Finish {
        if !self.fits_one_batch() {
            return Finish::Commit;
        }
        let overtaken = |placed: &Placed| self.records_of_open(&placed.entry) == Some(false);
        let overtaken = self.has_abandoned() && self.undelivered.iter().any(overtaken);
        if overtaken || self.abandoned == Abandoned::Recorded {
            return Finish::Rewind;
        }
        self.ended_early().or_else(|| self.broken.clone()).map_or(Finish::End, Finish::Fail)
    }

    /// Returns the difference when the workflow ended before an operation that is recorded.
    pub(super) fn ended_early(&self) -> Option<Nondeterminism> {
        let mut recorded = self.undelivered.iter().filter_map(|placed| placed.entry.op());
        let (op, kind) = recorded.find(|(op, _)| self.ops.find(&op.name).is_none())?;
        Some(self.differs(format!("{} {:?} is recorded, and the code ends before it", kind.word(), op.name)))
    }

    /// Lets pending steps run. Returns whether there are any.
    fn permit_steps(&mut self) -> bool {
        let mut any = false;
        self.ops.each_open(|_, op| {
            if op.kind == Kind::Step && op.state == OpState::Pending && op.awaited {
                op.set(OpState::Runnable);
                any = true;
            }
        });
        self.rounds += u32::from(any);
        self.permitted = any;
        any
    }

    /// Withdraws the permission of steps that the workflow did not begin when it was polled: it keeps them and awaits
    /// something else. Each is permitted again when it is awaited again.
    fn withdraw_permits(&mut self) {
        if !std::mem::take(&mut self.permitted) {
            return;
        }
        let mut any = false;
        self.ops.each_open(|_, op| {
            if op.state == OpState::Runnable {
                op.state = OpState::Pending;
                op.awaited = false;
                any = true;
            }
        });
        self.rounds -= u32::from(any);
    }

    /// Returns whether the steps that run are the first of this activation.
    pub(super) fn is_first_round(&self) -> bool {
        self.rounds <= 1
    }

    /// Requests an operation. Returns its index.
    fn request(&mut self, request: Request, site: CallSite) -> usize {
        let Request { kind, name, input, shielded, signal, records_itself } = request;
        let misplaced = match site {
            CallSite::Workflow => None,
            CallSite::Step => Some("inside a step"),
            CallSite::Elsewhere => Some("in another task than its run's"),
        };
        if let Some(place) = misplaced {
            self.fail(Nondeterminism::Misplaced { kind: kind.word(), name: name.clone(), place });
        }
        let seq = u32::try_from(self.ops.len()).unwrap_or(u32::MAX);
        let id = OpId { name: name.clone(), seq, input };
        let compared = self.recorded.compare(&id, kind);
        let (index, new) = self.ops.add(Op {
            kind,
            id,
            state: OpState::Pending,
            attempt: 0,
            shielded,
            signal,
            child: None,
            awaited: false,
            records_itself,
            ran: false,
            waker: None,
        });
        if !new {
            self.fail(Nondeterminism::Twice { kind: kind.word(), name });
        }
        if let Err(what) = compared {
            let differs = self.differs(what);
            self.fail(differs);
        }
        index
    }

    fn begin(&mut self, index: usize, make: impl FnOnce(OpId) -> (JournalEntry, Batch)) {
        let Some(op) = self.ops.get_mut(index) else { return };
        if !op.is_open() || self.recorded.contains(&op.id.name) {
            return;
        }
        op.state = OpState::Committing;
        let (entry, effects) = make(op.id.clone());
        self.changed = true;
        self.outgoing.push(Outgoing::of_op(index, entry, effects));
    }

    fn note(&mut self, index: usize, make: impl FnOnce(OpId) -> JournalEntry) {
        let Some(op) = self.ops.get(index) else { return };
        if op.is_open() && !self.recorded.contains(&op.id.name) {
            self.outgoing.push(Outgoing::delivered(Some(make(op.id.clone())), Batch::new()));
        }
    }

    fn does_not_fit(&mut self, index: usize, reason: String) {
        let Some(op) = self.ops.get(index) else { return };
        let broken = Nondeterminism::Value { kind: op.kind.word(), name: op.id.name.clone(), reason };
        self.fail(broken);
        self.changed = true;
    }

    /// Returns the next number of operations of this name.
    pub(super) fn count(&mut self, name: &str) -> u32 {
        let count = self.counters.entry(name.to_owned()).or_default();
        *count += 1;
        *count
    }

    /// Marks the run as unfit to continue with this code. The first reason counts.
    pub(super) fn fail(&mut self, broken: Nondeterminism) {
        self.broken.get_or_insert(broken);
    }

    pub(super) fn broken(&self) -> Option<&Nondeterminism> {
        self.broken.as_ref()
    }

    pub(super) fn cancelled(&self) -> Option<&str> {
        self.cancelled.as_deref()
    }

    /// Returns the version of a deliberate change of the code, and records it for a run that arrives here for the first time.
    pub(super) fn version(&mut self, name: &str, least: u32, newest: u32) -> u32 {
        match self.recorded.version(name, least, newest) {
            Versioned::Known(value) => value,
            Versioned::New => {
                let entry = JournalEntry::Version(Version { name: name.to_owned(), value: newest });
                self.outgoing.push(Outgoing::delivered(Some(entry), Batch::new()));
                newest
            }
        }
    }

    /// Writes effects beside the journal, unless a replay repeats them.
    pub(super) fn write(&mut self, effects: Batch) {
        if self.replay_left == 0 {
            self.outgoing.push(Outgoing::delivered(None, effects));
        }
    }

    /// Ends the history with the next input. A cancelled run does not continue: it gets an error, and is suspended when its code
    /// ignores that.
    pub(super) fn continue_as_new(&mut self, input: Payload) -> Result<(), StepError> {
        if let Some(reason) = self.cancelled.clone() {
            if std::mem::replace(&mut self.refused_to_continue, true) {
                let what =
                    "the run is cancelled, and its code continues as new all the same; return the error"
                        .to_owned();
                self.fail(Nondeterminism::Invalid { what });
                return Ok(());
            }
            return Err(StepError::Cancelled { what: "continue_as_new".to_owned(), reason });
        }
        self.continue_with = Some(input);
        self.changed = true;
        Ok(())
    }

    pub(super) fn continues_as_new(&self) -> bool {
        self.continue_with.is_some()
    }

    /// Returns whether the workflow received a result whose entry is not committed.
    pub(super) fn is_ahead(&self) -> bool {
        self.ahead
    }

    /// Returns whether the workflow changed something since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    pub(super) fn fits_one_batch(&self) -> bool {
        fits_one_batch(&self.outgoing)
    }

    pub(super) fn take_outgoing(&mut self) -> Vec<Outgoing> {
        self.ahead = false;
        std::mem::take(&mut self.outgoing)
    }

    /// Returns whether the workflow dropped a step that may have recorded its own end.
    pub(super) fn has_abandoned(&self) -> bool {
        self.abandoned != Abandoned::No
    }

    /// Returns the signals that were received and not consumed, in the order of arrival for each name.
    pub(super) fn unread_signals(&self) -> Vec<SignalReceived> {
        self.mailbox
            .unread()
            .map(|(signal, value)| SignalReceived { signal: signal.clone(), id: None, value: value.clone() })
            .collect()
    }

    /// Removes the children to cancel.
    pub(super) fn take_orphans(&mut self) -> Vec<String> {
        std::mem::take(&mut self.orphans)
    }

    /// Returns the ids of received signals, the newest that fit into this number of bytes.
    pub(super) fn signal_ids(&self, bytes: usize) -> Vec<(String, String)> {
        self.mailbox.ids(bytes)
    }

    fn differs(&self, what: String) -> Nondeterminism {
        let requested: Vec<_> = self.ops.iter().map(|op| (op.kind, op.id.name.clone())).collect();
        self.recorded.differs(what, &requested)
    }
}
