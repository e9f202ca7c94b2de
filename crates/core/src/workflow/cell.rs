//! What a workflow's future and its driver share: what was asked for, what is known, and what is to be written.
//!
//! The future runs inside the driver's task. It asks for things and waits; the driver answers one thing at a time, in the order
//! of the journal, and polls the future after each. So whatever the code does with several things at once, it does the same
//! on every replay.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use super::broken::{Broken, side_by_side};
use super::entry::{Done, Entry, GaveUp, Heard, Kind, Named, OpId, Placed, TimerSet, Tried, Version, When};
use super::failure::{Failure, StepError};
use super::place;
use crate::clock::{Due, Timestamp};
use crate::lease::NEVER;
use crate::model::retry::{AfterFailure, RetryPolicy};
use crate::payload::Payload;
use crate::random::fraction;
use crate::store::Batch;

/// What the workflow is told.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Value(Payload),
    Nothing,
    Error(StepError),
}

/// Where something that was asked for stands.
#[derive(Clone, Debug, PartialEq)]
enum State {
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
struct Op {
    kind: Kind,
    id: OpId,
    state: State,
    attempt: u32,
    sheltered: bool,
    signal: Option<String>,
    waker: Option<Waker>,
}

impl Op {
    fn is_open(&self) -> bool {
        !matches!(self.state, State::Answered(_) | State::Over)
    }

    fn set(&mut self, state: State) {
        self.state = state;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// What is to be written.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) entry: Option<Entry>,
    /// What is written with it, and whose refusal is a failure of the step.
    pub(super) effects: Batch,
    op: Option<usize>,
    policy: RetryPolicy,
    /// The workflow knows of it already.
    pub(super) delivered: bool,
}

impl Outgoing {
    /// Something that the workflow need not be told of.
    fn written(entry: Option<Entry>, effects: Batch) -> Self {
        Self { entry, effects, op: None, policy: RetryPolicy::default(), delivered: true }
    }

    /// Whether it is the end of a step with effects of its own.
    pub(super) fn may_be_refused(&self) -> bool {
        !self.effects.effects().is_empty()
    }
}

/// How a workflow asks.
pub(super) struct Ask {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) input: Option<String>,
    pub(super) sheltered: bool,
    pub(super) signal: Option<String>,
}

/// What the driver finds when nothing more can be told to the workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idle {
    /// A step runs, or the workflow awaits something that is not ours.
    Busy(Option<Timestamp>),
    /// Everything waits. The earliest instant at which something goes on by itself, if anything does.
    Waits(Option<Timestamp>),
}

#[derive(Debug, Default)]
struct Inner {
    ops: Vec<Op>,
    /// Those that are open, and a few that were.
    open: Vec<usize>,
    names: HashMap<String, usize>,
    /// What the journal says that the workflow asked for: kind and how manieth.
    recorded: HashMap<String, (OpId, Kind)>,
    /// Names whose end is recorded.
    settled: HashSet<String>,
    versions: HashMap<String, u32>,
    history: Vec<Placed>,
    /// The highest place in the recorded order that was asked for.
    highest: Option<u32>,
    replaying: bool,
    outbox: Vec<Outgoing>,
    mail: HashMap<String, VecDeque<Payload>>,
    known_ids: HashSet<(String, String)>,
    cancelled: Option<String>,
    broken: Option<Broken>,
    changed: bool,
    /// The workflow was told something that is not written yet.
    hasty: bool,
    /// It wants to begin anew with this input.
    again: Option<Payload>,
    counted: HashMap<String, u32>,
    /// How often steps were let run.
    rounds: u32,
    /// Children that nobody waits for any more.
    orphans: Vec<String>,
}

/// How many ids of signals a run takes along when it begins anew.
const KNOWN_IDS: usize = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Cell {
    inner: Mutex<Inner>,
}

impl Cell {
    /// A cell for a run whose journal says this.
    pub(super) fn over(history: &[Placed], heard: &[(String, String)]) -> Arc<Self> {
        let replaying = history.iter().any(|placed| !placed.entry.is_foreign());
        let known_ids = heard.iter().cloned().collect();
        let mut inner = Inner { replaying, known_ids, history: history.to_vec(), ..Inner::default() };
        for placed in history {
            if let Some((op, kind)) = placed.entry.op() {
                inner.recorded.entry(op.name.clone()).or_insert_with(|| (op.clone(), kind));
            }
            match &placed.entry {
                Entry::Done(Done { op, .. }) | Entry::GaveUp(GaveUp { op, .. }) => {
                    inner.settled.insert(op.name.clone());
                }
                Entry::Version(Version { name, value }) => {
                    inner.versions.insert(name.clone(), *value);
                }
                _ => {}
            }
        }
        Arc::new(Self { inner: Mutex::new(inner) })
    }

    /// Asks for something. It has its name and its place from now on, whenever it is awaited.
    pub(super) fn ask(self: &Arc<Self>, ask: Ask) -> Asked {
        let mut inner = self.inner.lock();
        let index = inner.ask(ask, place::of(self));
        Asked { cell: Arc::clone(self), index }
    }

    /// The how manieth of something without a name this is.
    pub(super) fn count(&self, what: &str) -> u32 {
        let mut inner = self.inner.lock();
        let count = inner.counted.entry(what.to_owned()).or_default();
        *count += 1;
        *count
    }

    pub(super) fn break_with(&self, broken: Broken) {
        self.inner.lock().broken.get_or_insert(broken);
    }

    pub(super) fn broken(&self) -> Option<Broken> {
        self.inner.lock().broken.clone()
    }

    pub(super) fn cancelled(&self) -> Option<String> {
        self.inner.lock().cancelled.clone()
    }

    /// The way that a deliberate change takes: what was recorded, else the newest for runs that come here first.
    pub(super) fn version(&self, name: &str, least: u32, newest: u32) -> u32 {
        let mut inner = self.inner.lock();
        if let Some(value) = inner.versions.get(name) {
            return *value;
        }
        if inner.replaying {
            return least;
        }
        inner.versions.insert(name.to_owned(), newest);
        let entry = Entry::Version(Version { name: name.to_owned(), value: newest });
        inner.outbox.push(Outgoing::written(Some(entry), Batch::new()));
        newest
    }

    /// Writes something beside the journal, unless that was done before.
    pub(super) fn write(&self, effects: Batch) {
        let mut inner = self.inner.lock();
        if !inner.replaying {
            inner.outbox.push(Outgoing::written(None, effects));
        }
    }

    pub(super) fn begin_anew(&self, input: Payload) {
        let mut inner = self.inner.lock();
        inner.again = Some(input);
        inner.changed = true;
    }

    pub(super) fn again(&self) -> Option<Payload> {
        self.inner.lock().again.clone()
    }

    /// Whether the workflow was told something that is not written yet.
    pub(super) fn is_hasty(&self) -> bool {
        self.inner.lock().hasty
    }

    /// Whether something changed since this was last asked.
    pub(super) fn take_changed(&self) -> bool {
        std::mem::take(&mut self.inner.lock().changed)
    }

    pub(super) fn has_outgoing(&self) -> bool {
        !self.inner.lock().outbox.is_empty()
    }

    pub(super) fn take_outgoing(&self) -> Vec<Outgoing> {
        let mut inner = self.inner.lock();
        inner.hasty = false;
        std::mem::take(&mut inner.outbox)
    }

    /// Everything that is recorded was told; from now on it is new.
    pub(super) fn live(&self) {
        self.inner.lock().replaying = false;
    }

    /// Tells the workflow of an entry.
    pub(super) fn deliver(&self, placed: &Placed) {
        self.inner.lock().deliver(placed);
    }

    /// Lets steps run that have not begun. Answers whether there are any.
    pub(super) fn permit(&self) -> bool {
        let mut inner = self.inner.lock();
        let mut any = false;
        inner.each_open(|_, op| {
            if op.kind == Kind::Step && op.state == State::Waiting {
                op.set(State::Permitted);
                any = true;
            }
        });
        inner.rounds += u32::from(any);
        any
    }

    /// Whether the steps that run are the first of this activation.
    pub(super) fn is_first_round(&self) -> bool {
        self.inner.lock().rounds <= 1
    }

    /// What waits, and how long.
    pub(super) fn idle(&self) -> Idle {
        let (mut next, mut busy, mut waits) = (None::<Timestamp>, false, false);
        self.inner.lock().each_open(|_, op| {
            waits = true;
            busy |= matches!(op.state, State::Running | State::Permitted | State::Held);
            if let State::Resting(until) = op.state {
                next = Some(next.map_or(until, |next| next.min(until)));
            }
        });
        if busy || !waits { Idle::Busy(next) } else { Idle::Waits(next) }
    }

    /// When the run goes on by itself, if it can rest once everything is written: nothing runs or wants to, and nothing but
    /// timers is to be written.
    pub(super) fn rests_until(&self) -> Option<Due> {
        let mut inner = self.inner.lock();
        let mut whens = Vec::new();
        for outgoing in &inner.outbox {
            match &outgoing.entry {
                Some(Entry::TimerSet(TimerSet { when, .. })) => whens.push(*when),
                _ => return None,
            }
        }
        let (mut waits, mut active, mut held, mut at) = (false, false, 0, None::<Timestamp>);
        inner.each_open(|_, op| match op.state {
            State::Running | State::Permitted | State::Answered(_) | State::Over => active = true,
            State::Waiting => {
                waits = true;
                active |= op.kind == Kind::Step;
            }
            State::Held => held += 1,
            State::Resting(until) => at = Some(at.map_or(until, |at| at.min(until))),
        });
        if active || held > whens.len() || !(waits || held > 0 || at.is_some()) {
            return None;
        }
        earliest(at, &whens)
    }

    /// Makes happen what is due: timers fire, and steps that rested may run.
    pub(super) fn tick(&self, now: Timestamp) -> bool {
        let mut inner = self.inner.lock();
        let mut fired = Vec::new();
        let mut any = false;
        inner.each_open(|index, op| {
            let State::Resting(until) = op.state else { return };
            if !until.has_come(now) {
                return;
            }
            any = true;
            if op.kind == Kind::Step {
                op.state = State::Waiting;
            } else {
                op.state = State::Held;
                fired.push((index, op.id.name.clone()));
            }
        });
        for (index, name) in fired {
            let fired = Outgoing::written(Some(Entry::TimerFired(Named { name })), Batch::new());
            inner.outbox.push(Outgoing { op: Some(index), delivered: false, ..fired });
        }
        any
    }

    /// What was to be written with something was refused: a step failed, and is tried again if its policy lets it.
    pub(super) fn refused(&self, outgoing: &Outgoing, reason: &str) {
        let mut inner = self.inner.lock();
        match (outgoing.op, &outgoing.entry) {
            (Some(index), Some(Entry::Done(_))) => {
                inner.ended(index, Err(Failure::new(reason)), &outgoing.policy, Batch::new());
            }
            _ => {
                inner.broken.get_or_insert(Broken::Invalid { what: reason.to_owned() });
            }
        }
    }

    /// Names of what was recorded and never asked for.
    pub(super) fn differs(&self, what: String) -> Broken {
        self.inner.lock().differs(what)
    }

    /// Signals that were sent and not taken.
    pub(super) fn unheard(&self) -> Vec<Heard> {
        let inner = self.inner.lock();
        let mail =
            inner.mail.iter().flat_map(|(signal, values)| values.iter().map(move |value| (signal, value)));
        mail.map(|(signal, value)| Heard { signal: signal.clone(), id: None, value: value.clone() }).collect()
    }

    /// Children of a run that was cancelled, which are to be cancelled, too.
    pub(super) fn take_orphans(&self) -> Vec<String> {
        std::mem::take(&mut self.inner.lock().orphans)
    }

    /// Answers one thing that needs no entry of the journal: something that a cancelled run gives up, or a signal that is waited for
    /// and has come before. One at a time, and always before the next entry, so that a replay does the same.
    pub(super) fn answer_one(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.give_up_one() || inner.hand_over_one()
    }

    /// Whether the workflow has asked for something of this name.
    pub(super) fn has_asked(&self, name: &str) -> bool {
        self.inner.lock().names.contains_key(name)
    }

    /// The ids of signals that were heard.
    pub(super) fn heard_ids(&self) -> Vec<(String, String)> {
        self.inner.lock().known_ids.iter().take(KNOWN_IDS).cloned().collect()
    }
}

impl Inner {
    /// Visits everything that is open, in the order in which it was asked for.
    fn each_open(&mut self, mut visit: impl FnMut(usize, &mut Op)) {
        let ops = &mut self.ops;
        self.open.retain(|index| match ops.get_mut(*index) {
            Some(op) if op.is_open() => {
                visit(*index, op);
                op.is_open()
            }
            _ => false,
        });
    }

    fn ask(&mut self, ask: Ask, place: place::Place) -> usize {
        let Ask { kind, name, input, sheltered, signal } = ask;
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
        self.ops.push(Op { kind, id, state: State::Waiting, attempt: 0, sheltered, signal, waker: None });
        self.open.push(index);
        self.compare(index);
        index
    }

    /// Compares what is asked for with what was recorded under its name.
    fn compare(&mut self, index: usize) {
        let Some(op) = self.ops.get(index) else { return };
        let Some((was, kind)) = self.recorded.get(&op.id.name) else { return };
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

    fn differs(&self, what: String) -> Broken {
        let current: Vec<(Kind, String)> = self.ops.iter().map(|op| (op.kind, op.id.name.clone())).collect();
        Broken::Differs { what, lists: side_by_side(&self.history, &current) }
    }

    fn deliver(&mut self, placed: &Placed) {
        if !self.replaying {
            self.history.push(placed.clone());
        }
        match &placed.entry {
            Entry::Started(_) | Entry::Resumed(_) | Entry::Version(_) | Entry::Ended(_) => {}
            Entry::Done(Done { op, value }) => self.answer(&op.name, Answer::Value(value.clone())),
            Entry::GaveUp(GaveUp { op, error }) => self.answer(&op.name, Answer::Error(error.clone())),
            Entry::Tried(tried) => self.tried(tried, placed.at),
            Entry::TimerSet(TimerSet { op, when }) => {
                let until = when.since(placed.at);
                self.change(&op.name, |op| op.set(State::Resting(until)));
            }
            Entry::TimerFired(Named { name }) => self.answer(name, Answer::Nothing),
            Entry::ChildStarted(started) => {
                let run = started.run.clone();
                if self.cancelled.is_some() {
                    self.orphans.push(run.clone());
                }
                self.change(&started.op.name, |op| {
                    op.signal = Some(run);
                    op.set(State::Waiting);
                });
            }
            Entry::ChildEnded(ended) => {
                let answer = super::child::answer(ended);
                if self.names.contains_key(&ended.name) {
                    self.answer(&ended.name, answer);
                }
            }
            Entry::Heard(heard) => {
                let known = heard.id.clone().map(|id| (heard.signal.clone(), id));
                if known.is_none_or(|known| self.known_ids.insert(known)) {
                    self.mail.entry(heard.signal.clone()).or_default().push_back(heard.value.clone());
                }
            }
            Entry::Cancel(reason) => self.cancel(&reason.reason),
        }
    }

    fn tried(&mut self, tried: &Tried, at: Timestamp) {
        let until = at.after(tried.wait);
        self.change(&tried.op.name, |op| {
            op.attempt = tried.attempt;
            op.set(State::Resting(until));
        });
    }

    fn answer(&mut self, name: &str, answer: Answer) {
        self.change(name, |op| {
            op.signal = None;
            op.set(State::Answered(answer));
        });
    }

    /// Changes something that the workflow must have asked for by now. What it does not wait for any more stays as it is.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut Op)) {
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

    fn cancel(&mut self, reason: &str) {
        self.cancelled.get_or_insert_with(|| reason.to_owned());
        self.changed = true;
    }

    /// Gives up the first thing that a cancelled run waits for.
    fn give_up_one(&mut self) -> bool {
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
            child = op.signal.take().filter(|_| op.kind == Kind::Child);
            let what = op.id.name.clone();
            op.set(State::Answered(Answer::Error(StepError::Cancelled { what, reason: reason.clone() })));
        });
        self.settled = settled;
        self.orphans.extend(child);
        given_up
    }

    /// Gives the oldest mail to the first who waits for it.
    fn hand_over_one(&mut self) -> bool {
        let mut mail = std::mem::take(&mut self.mail);
        let mut handed = false;
        self.each_open(|_, op| {
            if handed || op.kind != Kind::Wait {
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

    /// A step ended.
    fn ended(&mut self, index: usize, ended: Result<Payload, Failure>, policy: &RetryPolicy, effects: Batch) {
        let mut open = 0;
        self.each_open(|_, _| open += 1);
        let alone = effects.effects().is_empty() && open == 1;
        let Some(op) = self.ops.get_mut(index) else { return };
        let id = op.id.clone();
        let (entry, answer) = match ended {
            Ok(value) => (Entry::Done(Done { op: id, value: value.clone() }), Some(Answer::Value(value))),
            Err(failure) => {
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

/// The earliest of several instants; `None` when that depends on when they are recorded.
fn earliest(mut at: Option<Timestamp>, whens: &[When]) -> Option<Due> {
    let mut after = None::<Duration>;
    for when in whens {
        match when {
            When::At(instant) => at = Some(at.map_or(*instant, |at| at.min(*instant))),
            When::After(wait) => after = Some(after.map_or(*wait, |after| after.min(*wait))),
        }
    }
    match (at, after) {
        (Some(_), Some(_)) => None,
        (Some(at), None) => Some(Due::At(at)),
        (None, Some(after)) => Some(Due::After(after)),
        (None, None) => Some(Due::At(NEVER)),
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

/// Something that was asked for. Dropped, nobody waits for it any more.
#[derive(Debug)]
pub(super) struct Asked {
    cell: Arc<Cell>,
    index: usize,
}

/// What follows when something that was asked for is awaited.
#[derive(Debug)]
pub(super) enum Turn {
    Answer(Answer),
    /// The step may run, as this attempt.
    Run(u32),
}

impl Asked {
    /// Waits for an answer, or for leave to run.
    pub(super) async fn turn(&self) -> Turn {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&self, context: &Context<'_>) -> Poll<Turn> {
        let mut inner = self.cell.inner.lock();
        let Some(op) = inner.ops.get_mut(self.index) else { return Poll::Pending };
        match &op.state {
            State::Answered(answer) => {
                let answer = answer.clone();
                op.state = State::Over;
                Poll::Ready(Turn::Answer(answer))
            }
            State::Permitted => {
                op.state = State::Running;
                op.attempt += 1;
                Poll::Ready(Turn::Run(op.attempt))
            }
            _ => {
                op.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The step ended.
    pub(super) fn ended(&self, ended: Result<Payload, Failure>, policy: &RetryPolicy, effects: Batch) {
        self.cell.inner.lock().ended(self.index, ended, policy, effects);
    }

    /// What is to be written when it begins: a timer that is set, a child that is started. Not when it was written before.
    pub(super) fn begin(&self, make: impl FnOnce(OpId) -> (Entry, Batch)) {
        let mut inner = self.cell.inner.lock();
        let Inner { ops, recorded, .. } = &mut *inner;
        let Some(op) = ops.get_mut(self.index) else { return };
        if !op.is_open() || recorded.contains_key(&op.id.name) {
            return;
        }
        op.state = State::Held;
        let (entry, effects) = make(op.id.clone());
        inner.changed = true;
        inner.outbox.push(Outgoing {
            op: Some(self.index),
            delivered: false,
            ..Outgoing::written(Some(entry), effects)
        });
    }

    /// A recorded value does not fit.
    pub(super) fn does_not_fit(&self, reason: String) {
        let mut inner = self.cell.inner.lock();
        let Some(op) = inner.ops.get(self.index) else { return };
        let broken = Broken::Value { kind: op.kind.word(), name: op.id.name.clone(), reason };
        inner.broken.get_or_insert(broken);
        inner.changed = true;
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let mut inner = self.cell.inner.lock();
        let Inner { ops, mail, .. } = &mut *inner;
        if let Some(op) = ops.get_mut(self.index) {
            // A signal that was handed over and not taken is there for the next one.
            if let (Kind::Wait, State::Answered(Answer::Value(value)), Some(signal)) =
                (op.kind, &op.state, &op.signal)
            {
                mail.entry(signal.clone()).or_default().push_front(value.clone());
            }
            op.state = State::Over;
            op.waker = None;
        }
    }
}
