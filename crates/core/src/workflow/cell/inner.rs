//! What is known of an activation: what was asked for, what the journal says, what is to be written. No lock, no waiting.

use std::collections::{HashMap, HashSet, VecDeque};
use std::task::Waker;
use std::time::Duration;

use super::known_ids::KnownIds;
use super::{Answer, Ask, Outgoing};
use crate::clock::Timestamp;
use crate::model::retry::{AfterFailure, RetryPolicy};
use crate::payload::Payload;
use crate::runtime::jitter::fraction;
use crate::store::Batch;
use crate::workflow::broken::{Broken, side_by_side};
use crate::workflow::entry::{Awaited, Done, Entry, GaveUp, Kind, Named, OpId, Placed, TimerSet, Tried};
use crate::workflow::failure::{Failure, StepError};
use crate::workflow::{child, place};

/// Where something that was asked for stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// It has not begun, or waits for others.
    Waiting,
    /// It goes on at an instant: a timer, or a step between two attempts.
    Resting(Timestamp),
    /// The step may run.
    Permitted,
    Running,
    /// It ended, and that is being written.
    Held,
    Answered(Answer),
    /// The answer was taken, or nobody waits for it any more.
    Over,
}

/// Something that the workflow asked for.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) kind: Kind,
    pub(super) id: OpId,
    pub(super) state: State,
    pub(super) attempt: u32,
    pub(super) sheltered: bool,
    /// The signal that a wait is for.
    pub(super) signal: Option<String>,
    /// The run of a child that was started and has not ended.
    pub(super) child: Option<String>,
    /// It was awaited: what is only kept neither runs nor hears anything.
    pub(super) awaited: bool,
    /// Its end is recorded by a transaction of the step's own.
    pub(super) records_itself: bool,
    /// It ran in this activation, or its end came into the journal meanwhile.
    pub(super) ran: bool,
    pub(super) waker: Option<Waker>,
}

impl Op {
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, State::Answered(_) | State::Over)
    }

    /// Whether the journal may have its end although the workflow was not told.
    pub(super) fn may_have_recorded(&self) -> bool {
        self.records_itself && self.ran
    }

    pub(super) fn set(&mut self, state: State) {
        self.state = state;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) ops: Vec<Op>,
    /// Those that are open, and a few that were.
    pub(super) open: Vec<usize>,
    pub(super) names: HashMap<String, usize>,
    /// What the journal says that the workflow asked for: kind and how manieth.
    pub(super) recorded: HashMap<String, (OpId, Kind)>,
    /// How many of these the workflow has not asked for yet.
    pub(super) recorded_left: usize,
    /// Names whose end is recorded.
    pub(super) settled: HashSet<String>,
    pub(super) versions: HashMap<String, u32>,
    pub(super) history: Vec<Placed>,
    /// The highest place in the recorded order that was asked for.
    pub(super) highest: Option<u32>,
    pub(super) replaying: bool,
    pub(super) outbox: Vec<Outgoing>,
    pub(super) mail: HashMap<String, VecDeque<Payload>>,
    pub(super) known_ids: KnownIds,
    pub(super) cancelled: Option<String>,
    pub(super) broken: Option<Broken>,
    pub(super) changed: bool,
    /// The workflow was told something that is not written yet.
    pub(super) hasty: bool,
    /// It wants to begin anew with this input.
    pub(super) again: Option<Payload>,
    pub(super) counted: HashMap<String, u32>,
    /// How often steps were let run.
    pub(super) rounds: u32,
    /// Children that nobody waits for any more.
    pub(super) orphans: Vec<String>,
    /// Steps that may have recorded their end themselves, with what they said of it.
    pub(super) unproven: Vec<Unproven>,
    /// The workflow left a step that may have recorded its end: from now on nothing is written that does not know the whole journal.
    pub(super) left: bool,
    /// It was left just now, and the journal was not read since.
    pub(super) left_unread: bool,
    /// The workflow left a step whose end is recorded before: what counts is the journal.
    pub(super) overtaken: bool,
}

/// A step that was to record its end in a transaction of its own.
#[derive(Debug)]
pub(super) struct Unproven {
    pub(super) index: usize,
    pub(super) failure: Option<Failure>,
    pub(super) policy: RetryPolicy,
}

impl Inner {
    /// Visits everything that is open, in the order in which it was asked for.
    pub(super) fn each_open(&mut self, mut visit: impl FnMut(usize, &mut Op)) {
        let ops = &mut self.ops;
        self.open.retain(|index| match ops.get_mut(*index) {
            Some(op) if op.is_open() => {
                visit(*index, op);
                op.is_open()
            }
            _ => false,
        });
    }

    pub(super) fn ask(&mut self, ask: Ask, place: place::Place) -> usize {
        let Ask { kind, name, input, sheltered, signal, records_itself } = ask;
        let seq = u32::try_from(self.ops.len()).unwrap_or(u32::MAX);
        let index = self.ops.len();
        let misplaced = match place {
            place::Place::Workflow => None,
            place::Place::Step => Some("inside a step"),
            place::Place::Elsewhere => Some("in another task than its run's"),
        };
        if let Some(place) = misplaced {
            self.broken.get_or_insert(Broken::Misplaced { kind: kind.word(), name: name.clone(), place });
        }
        if self.names.insert(name.clone(), index).is_some() {
            self.broken.get_or_insert(Broken::Twice { kind: kind.word(), name: name.clone() });
        }
        let id = OpId { name, seq, input };
        self.ops.push(Op {
            kind,
            id,
            state: State::Waiting,
            attempt: 0,
            sheltered,
            signal,
            child: None,
            awaited: false,
            records_itself,
            ran: false,
            waker: None,
        });
        self.open.push(index);
        self.compare(index);
        index
    }

    /// Compares what is asked for with what was recorded under its name.
    pub(super) fn compare(&mut self, index: usize) {
        let Some(op) = self.ops.get(index) else { return };
        let Some((was, kind)) = self.recorded.get(&op.id.name) else { return };
        self.recorded_left = self.recorded_left.saturating_sub(1);
        let what = if *kind != op.kind {
            format!("{:?} was a {} and is a {} now", was.name, kind.word(), op.kind.word())
        } else if was.input != op.id.input {
            format!("{} {:?} is given something else than before", kind.word(), was.name)
        } else if self.highest.is_some_and(|highest| was.seq < highest) {
            format!("{} {:?} comes later than before", kind.word(), was.name)
        } else {
            self.highest = Some(was.seq);
            return;
        };
        let broken = self.differs(what);
        self.broken.get_or_insert(broken);
    }

    pub(super) fn differs(&self, what: String) -> Broken {
        let current: Vec<(Kind, String)> = self.ops.iter().map(|op| (op.kind, op.id.name.clone())).collect();
        Broken::Differs { what, lists: side_by_side(&self.history, &current) }
    }

    pub(super) fn deliver(&mut self, placed: &Placed) {
        if !self.replaying {
            self.history.push(placed.clone());
        }
        match &placed.entry {
            Entry::Started(_) | Entry::Resumed(_) | Entry::Version(_) | Entry::Ended(_) => {}
            Entry::Done(Done { op, value }) => {
                self.overtaken |= self.was_left(&op.name);
                self.answer(&op.name, Answer::Value(value.clone()));
            }
            Entry::GaveUp(GaveUp { op, error }) => self.answer(&op.name, Answer::Error(error.clone())),
            Entry::Tried(tried) => self.tried(tried, placed.at),
            Entry::TimerSet(TimerSet { op, when }) => {
                let until = when.since(placed.at);
                self.change(&op.name, |op| op.set(State::Resting(until)));
            }
            Entry::TimerFired(Named { name }) => self.answer(name, Answer::Nothing),
            Entry::Awaited(Awaited { op }) => self.change(&op.name, |_| {}),
            Entry::ChildStarted(started) => {
                let run = started.run.clone();
                if self.cancelled.is_some() {
                    self.orphans.push(run.clone());
                }
                self.change(&started.op.name, |op| {
                    op.child = Some(run);
                    op.set(State::Waiting);
                });
            }
            Entry::ChildRefused(GaveUp { op, error }) => {
                self.answer(&op.name, Answer::Error(error.clone()));
            }
            Entry::ChildEnded(ended) => {
                let op = self.names.get(&ended.name).and_then(|index| self.ops.get(*index));
                // A child of an earlier generation may have the same name.
                if op.is_some_and(|op| op.child.as_deref() == Some(&*ended.run)) {
                    self.answer(&ended.name, child::answer(ended));
                }
            }
            Entry::Heard(heard) => {
                let known = heard.id.clone().map(|id| (heard.signal.clone(), id));
                if known.is_none_or(|known| self.known_ids.add(known)) {
                    self.mail.entry(heard.signal.clone()).or_default().push_back(heard.value.clone());
                }
            }
            Entry::Cancel(reason) => self.cancel(&reason.reason),
        }
    }

    pub(super) fn tried(&mut self, tried: &Tried, at: Timestamp) {
        let until = at.after(tried.wait);
        self.change(&tried.op.name, |op| {
            op.attempt = tried.attempt;
            op.set(State::Resting(until));
        });
    }

    pub(super) fn answer(&mut self, name: &str, answer: Answer) {
        self.change(name, |op| {
            op.child = None;
            op.set(State::Answered(answer));
        });
    }

    /// Changes something that the workflow must have asked for by now. What it does not wait for any more stays as it is.
    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(&mut Op)) {
        match self.names.get(name).and_then(|index| self.ops.get_mut(*index)) {
            Some(op) if op.is_open() => change(op),
            Some(_) => {}
            None => {
                let broken =
                    self.differs(format!("{name:?} is recorded, and the code does not ask for it there"));
                self.broken.get_or_insert(broken);
            }
        }
    }

    pub(super) fn cancel(&mut self, reason: &str) {
        self.cancelled.get_or_insert_with(|| reason.to_owned());
        self.changed = true;
    }

    /// Gives up the first thing that a cancelled run waits for.
    pub(super) fn give_up_one(&mut self) -> bool {
        let Some(reason) = self.cancelled.clone() else { return false };
        let settled = std::mem::take(&mut self.settled);
        let (mut given_up, mut child) = (false, None);
        self.each_open(|_, op| {
            // A step that has begun comes to its end: nobody knows what half of it has done.
            let begun = match op.state {
                State::Running | State::Permitted => true,
                State::Held => op.kind == Kind::Step,
                _ => false,
            };
            if given_up || op.sheltered || begun || settled.contains(&op.id.name) {
                return;
            }
            given_up = true;
            child = op.child.take();
            let what = op.id.name.clone();
            op.set(State::Answered(Answer::Error(StepError::Cancelled { what, reason: reason.clone() })));
        });
        self.settled = settled;
        self.orphans.extend(child);
        given_up
    }

    /// Gives the oldest mail to the first who waits for it.
    pub(super) fn hand_over_one(&mut self) -> bool {
        if self.mail.values().all(VecDeque::is_empty) {
            return false;
        }
        let mut mail = std::mem::take(&mut self.mail);
        let mut handed = false;
        self.each_open(|_, op| {
            if handed || op.kind != Kind::Wait || !op.awaited {
                return;
            }
            let waiting = op.signal.as_ref().and_then(|signal| mail.get_mut(signal));
            if let Some(value) = waiting.and_then(VecDeque::pop_front) {
                op.set(State::Answered(Answer::Value(value)));
                handed = true;
            }
        });
        self.mail = mail;
        handed
    }

    /// A step ended that was to record that itself: the journal says whether it did.
    pub(super) fn maybe_recorded(&mut self, index: usize, failure: Option<Failure>, policy: &RetryPolicy) {
        let Some(op) = self.ops.get_mut(index).filter(|op| op.state == State::Running) else { return };
        op.state = State::Held;
        self.unproven.push(Unproven { index, failure, policy: *policy });
        self.changed = true;
    }

    /// For the end of a step that records it itself: whether the workflow waits for it.
    pub(super) fn own_record(&mut self, entry: &Entry) -> Option<bool> {
        let Entry::Done(Done { op, .. }) = entry else { return None };
        let op = self.names.get(&op.name).and_then(|index| self.ops.get_mut(*index));
        let op = op.filter(|op| op.records_itself)?;
        op.ran = true;
        Some(op.is_open())
    }

    /// Whether the workflow left a step that may have recorded its end.
    fn was_left(&self, name: &str) -> bool {
        let found = self.names.get(name).and_then(|index| self.ops.get(*index));
        found.is_some_and(|op| op.may_have_recorded() && op.state == State::Over)
    }

    /// Nobody waits any more for something that was asked for.
    pub(super) fn drop_op(&mut self, index: usize) {
        let Some(op) = self.ops.get_mut(index) else { return };
        // A signal that was handed over and not taken is there for the next one.
        if let (Kind::Wait, State::Answered(Answer::Value(value)), Some(signal)) =
            (op.kind, &op.state, &op.signal)
        {
            self.mail.entry(signal.clone()).or_default().push_front(value.clone());
        }
        if op.may_have_recorded() {
            match op.state {
                State::Over => {}
                State::Answered(_) => self.overtaken = true,
                _ => (self.left, self.left_unread) = (true, true),
            }
        }
        op.state = State::Over;
        op.waker = None;
    }

    /// A step ended.
    pub(super) fn ended(
        &mut self,
        index: usize,
        ended: Result<Payload, Failure>,
        policy: &RetryPolicy,
        effects: Batch,
    ) {
        let ops = &self.ops;
        let open = self.open.iter().filter(|index| ops.get(**index).is_some_and(Op::is_open));
        let alone = effects.effects().is_empty() && open.take(2).count() == 1;
        let Some(op) = self.ops.get_mut(index) else { return };
        let id = op.id.clone();
        let (entry, answer) = match ended {
            Ok(value) => (Entry::Done(Done { op: id, value: value.clone() }), Some(Answer::Value(value))),
            Err(failure) => {
                let failure = failure.cut();
                match next(&failure, op.attempt, policy, self.cancelled.is_some() && !op.sheltered) {
                    Some(wait) => (
                        Entry::Tried(Tried { op: id, attempt: op.attempt, error: failure.message, wait }),
                        None,
                    ),
                    None => {
                        let (step, attempts) = (id.name.clone(), op.attempt);
                        let error = StepError::Failed { step, error: failure.message, attempts };
                        (Entry::GaveUp(GaveUp { op: id, error: error.clone() }), Some(Answer::Error(error)))
                    }
                }
            }
        };
        // Code that waits for nothing else can be told at once. Where it waits for several things, the journal's order counts.
        let delivered = match answer {
            Some(answer) if alone => {
                op.set(State::Answered(answer));
                true
            }
            _ => {
                op.state = State::Held;
                false
            }
        };
        self.hasty |= delivered;
        self.changed = true;
        self.outbox.push(Outgoing {
            entry: Some(entry),
            effects,
            op: Some(index),
            policy: *policy,
            delivered,
        });
    }
}

/// How long to wait until the next attempt, if there is one.
fn next(failure: &Failure, attempt: u32, policy: &RetryPolicy, cancelled: bool) -> Option<Duration> {
    if failure.permanent || cancelled {
        return None;
    }
    match policy.after_failure(attempt, 0.5 + fraction() / 2.0) {
        AfterFailure::Again(wait) => Some(wait),
        AfterFailure::Block => None,
    }
}
