//! What a workflow's future and its driver share: what was asked for, what is known, and what is to be written.
//!
//! The future runs inside the driver's task. It asks for things and waits; the driver answers one thing at a time, in the order
//! of the journal, and polls the future after each. So whatever the code does with several things at once, it does the same
//! on every replay.

mod asked;
mod inner;
mod known_ids;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub(super) use self::asked::{Asked, Turn};
use self::inner::{Inner, State, Unproven};
use super::broken::Broken;
use super::entry::{Done, Entry, GaveUp, Heard, Kind, Named, Placed, TimerSet, Version, When};
use super::failure::{Failure, StepError};
use super::{child, place};
use crate::clock::{Due, Timestamp};
use crate::lease::NEVER;
use crate::model::limits::{BATCH_BYTES, BATCH_EVENTS};
use crate::model::retry::RetryPolicy;
use crate::payload::Payload;
use crate::store::Batch;

/// What the workflow is told.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Value(Payload),
    Nothing,
    Error(StepError),
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

/// The room that is left in a batch.
#[derive(Debug)]
pub(super) struct Room {
    entries: usize,
    bytes: usize,
}

impl Default for Room {
    /// Half of what a batch takes: effects and the end of the run want room, too.
    fn default() -> Self {
        Self { entries: BATCH_EVENTS / 2, bytes: BATCH_BYTES / 2 }
    }
}

impl Room {
    /// Takes something in. Answers whether there was room for it.
    pub(super) fn takes(&mut self, outgoing: &Outgoing) -> bool {
        let value = match &outgoing.entry {
            Some(Entry::Done(Done { value, .. })) => value.len(),
            _ => 0,
        };
        let bytes = outgoing.effects.bytes().saturating_add(value);
        let fits = self.entries > 0 && bytes <= self.bytes;
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        fits
    }
}

/// How a workflow asks.
pub(super) struct Ask {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) input: Option<String>,
    pub(super) sheltered: bool,
    pub(super) signal: Option<String>,
    pub(super) records_itself: bool,
}

/// What the driver finds when nothing more can be told to the workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idle {
    /// A step runs, or the workflow awaits something that is not ours.
    Busy(Option<Timestamp>),
    /// Everything waits. The earliest instant at which something goes on by itself, if anything does.
    Waits(Option<Timestamp>),
}

/// A step that was to record its end and did not.
const NOT_RECORDED: &str = "the step ended well, and its transaction did not record that: \
    apply the batch of TxStep::end in it, and commit it before the step returns";

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
        inner.recorded_left = inner.recorded.len();
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
        // What is recorded and was not asked for yet shows that the run has been beyond this place.
        if inner.recorded_left > 0 {
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

    /// Whether all that is to be written fits into one batch, with room for the end of the run.
    pub(super) fn fits_one_batch(&self) -> bool {
        let mut room = Room::default();
        self.inner.lock().outbox.iter().all(|outgoing| room.takes(outgoing))
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
            if op.kind == Kind::Step && op.state == State::Waiting && op.awaited {
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
            // What is only kept says nothing of what the code waits for: that may be something of its own.
            waits |= op.awaited;
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
                Some(Entry::Awaited(_)) => {}
                _ => return None,
            }
        }
        let (mut waits, mut active, mut held, mut at) = (false, false, 0, None::<Timestamp>);
        inner.each_open(|_, op| {
            waits |= op.awaited;
            match op.state {
                State::Running | State::Permitted | State::Answered(_) | State::Over => active = true,
                State::Waiting => active |= op.kind == Kind::Step && op.awaited,
                State::Held => held += 1,
                State::Resting(until) => at = Some(at.map_or(until, |at| at.min(until))),
            }
        });
        if active || held > whens.len() || !waits {
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
            (Some(index), Some(Entry::ChildStarted(started))) => {
                let error = child::refused(&started.op.name, &started.run, reason);
                let entry = Entry::ChildRefused(GaveUp { op: started.op.clone(), error });
                let refused = Outgoing::written(Some(entry), Batch::new());
                inner.outbox.push(Outgoing { op: Some(index), delivered: false, ..refused });
            }
            _ => {
                inner.broken.get_or_insert(Broken::Invalid { what: reason.to_owned() });
            }
        }
    }

    /// Whether the workflow left a step that may have recorded its end itself.
    pub(super) fn has_left(&self) -> bool {
        self.inner.lock().left
    }

    /// Whether it left one since this was last asked.
    pub(super) fn take_left_unread(&self) -> bool {
        std::mem::take(&mut self.inner.lock().left_unread)
    }

    /// Whether it left one whose end was recorded before.
    pub(super) fn is_overtaken(&self) -> bool {
        self.inner.lock().overtaken
    }

    /// Whether steps ended of which only the journal knows how.
    pub(super) fn has_unproven(&self) -> bool {
        !self.inner.lock().unproven.is_empty()
    }

    /// For the end of a step that records it itself: whether the workflow waits for it.
    pub(super) fn own_record(&self, entry: &Entry) -> Option<bool> {
        self.inner.lock().own_record(entry)
    }

    /// All that is recorded was read: steps whose end is not among it have failed.
    pub(super) fn prove(&self, recorded: impl Fn(&str) -> bool) {
        let mut inner = self.inner.lock();
        for Unproven { index, failure, policy } in std::mem::take(&mut inner.unproven) {
            let open = inner.ops.get(index).filter(|op| op.state == State::Held);
            if open.is_none_or(|op| recorded(&op.id.name)) {
                continue;
            }
            let failure = failure.unwrap_or_else(|| Failure::new(NOT_RECORDED));
            inner.ended(index, Err(failure), &policy, Batch::new());
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
        // What was handed to a wait that was not polled since came before the rest.
        let handed = inner.ops.iter().filter_map(|op| match (&op.state, &op.signal) {
            (State::Answered(Answer::Value(value)), Some(signal)) => Some((signal, value)),
            _ => None,
        });
        let unheard = handed.chain(mail);
        unheard
            .map(|(signal, value)| Heard { signal: signal.clone(), id: None, value: value.clone() })
            .collect()
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

    /// The ids of signals that were heard, the newest that fit into so many bytes.
    pub(super) fn heard_ids(&self, bytes: usize) -> Vec<(String, String)> {
        self.inner.lock().known_ids.kept(bytes)
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
