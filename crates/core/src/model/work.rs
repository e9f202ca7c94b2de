//! Work row decisions: enqueue and wake, completion by a holder, and operator actions.

use std::time::Duration;

use super::batch::{Expect, NewWork, Operation, Selection, WorkFilter};
use super::commit::Step;
use super::lease;
use super::limits::ERROR_BYTES;
use super::refusal::{Holder, Refusal};
use super::rows::{Blocked, Lease, Lifetime, WorkRow};
use crate::clock::{Due, Timestamp};
use crate::id::{Fence, Position};
use crate::key::Key;

impl WorkFilter {
    /// Returns the filter as an operator's action interprets it. Without any condition it selects every blocked row, so
    /// that a forgotten condition never resets the whole store.
    #[must_use]
    pub fn for_operation(&self) -> Self {
        if *self == Self::default() {
            return Self { blocked: Some(true), ..Self::default() };
        }
        self.clone()
    }

    /// Returns whether the row meets every condition.
    #[must_use]
    pub fn matches(&self, row: &WorkRow) -> bool {
        self.queue.as_ref().is_none_or(|queue| *queue == row.queue)
            && self.blocked.is_none_or(|blocked| blocked == row.blocked.is_some())
            && self.leased.is_none_or(|leased| leased == row.lease.is_some())
            && self.pattern.as_ref().is_none_or(|pattern| pattern.matches(row.key.canonical()))
    }
}

pub(super) fn enqueue(step: Step<'_>, new: &NewWork) -> Result<(), Refusal> {
    let existing = step.facts.work(&new.key).cloned();
    let refused = match new.expect {
        Expect::Absent => existing.is_some(),
        Expect::Exists | Expect::Exact(()) => existing.is_none(),
        Expect::Any => false,
    };
    if refused {
        let exists = existing.is_some();
        return Err(Refusal::Work { index: step.index, key: new.key.clone(), exists });
    }
    let row = match existing {
        Some(row) if !new.replace => woken(row, new, step.now),
        _ => {
            step.facts.counters.work_seq = step.facts.counters.work_seq.saturating_add(1);
            created(new, step.facts.counters.work_seq, step.now)
        }
    };
    step.facts.set_work(&new.key, Some(row));
    Ok(())
}

/// Checks that a row has the given creation number and that no unexpired lease is on it.
pub(super) fn check(step: &Step<'_>, key: &Key, seq: u64) -> Result<(), Refusal> {
    let row = step.facts.work(key).filter(|row| row.seq == seq);
    let holder = match row.map(|row| row.lease.as_ref().filter(|lease| !lease.until.has_come(step.now))) {
        Some(None) => return Ok(()),
        Some(Some(lease)) => Holder::Held(lease.clone()),
        None => Holder::Gone,
    };
    let (key, fence) = (key.clone(), Fence(0));
    Err(Refusal::Fenced { index: step.index, key, fence, holder: Box::new(holder) })
}

/// Creates the row of an enqueue.
fn created(new: &NewWork, seq: u64, now: Timestamp) -> WorkRow {
    WorkRow {
        key: new.key.clone(),
        queue: new.queue.clone(),
        seq,
        priority: new.priority,
        lifetime: new.lifetime,
        due: Some(new.due.resolve(now)),
        woken: None,
        position: new.position,
        follow: new.follow.clone(),
        payload: new.payload.clone().unwrap_or_default(),
        attempts: 0,
        takeovers: 0,
        last_error: None,
        blocked: None,
        lease: None,
        enqueued_at: now,
    }
}

/// Creates a row that rests until it is claimed by key, such as a named lock.
pub(super) fn resting(key: &Key, queue: &crate::id::QueueName, seq: u64, now: Timestamp) -> WorkRow {
    let new = NewWork::standing(key.clone(), queue.clone());
    WorkRow { due: None, ..created(&new, seq, now) }
}

fn woken(mut row: WorkRow, new: &NewWork, now: Timestamp) -> WorkRow {
    let due = new.due.resolve(now);
    if row.lease.is_some() {
        row.woken = earlier(row.woken, due);
    } else if row.attempts == 0 || row.due.is_none() {
        row.due = earlier(row.due, due);
    }
    row.queue = new.queue.clone();
    row.priority = new.priority;
    if let Some(payload) = &new.payload {
        row.payload = payload.clone();
    }
    if let Some(stream) = &new.follow {
        row.follow = Some(stream.clone());
    }
    row
}

fn earlier(a: Option<Timestamp>, b: Timestamp) -> Option<Timestamp> {
    Some(a.map_or(b, |a| a.min(b)))
}

/// The action of a holder on its row.
pub(super) enum Finish<'a> {
    Nothing,
    Ack,
    Advance(Position),
    Defer(Due),
    Fail(&'a str, Due),
    Block(&'a str),
    Renew(Duration),
    Release,
}

pub(super) fn finish(step: Step<'_>, lease: &Lease, how: Finish<'_>) -> Result<(), Refusal> {
    let row = step.facts.work(&lease.key);
    if let Err(holder) = lease::check(row, lease) {
        let (key, fence) = (lease.key.clone(), lease.fence);
        return Err(Refusal::Fenced { index: step.index, key, fence, holder: Box::new(holder) });
    }
    if let (Some(row), false) = (row.cloned(), matches!(how, Finish::Nothing)) {
        let after = finished(row, how, step.now);
        step.facts.set_work(&lease.key, after);
    }
    Ok(())
}

/// Returns the row after its holder's action. `None` means that the row is removed.
fn finished(mut row: WorkRow, how: Finish<'_>, now: Timestamp) -> Option<WorkRow> {
    match how {
        Finish::Nothing => return Some(row),
        Finish::Renew(ttl) => {
            if let Some(lease) = &mut row.lease {
                lease.until = now.after(ttl);
            }
            return Some(row);
        }
        Finish::Advance(position) => {
            row.position = row.position.max(Some(position));
            row.attempts = 1;
            row.last_error = None;
            return Some(row);
        }
        Finish::Ack => {
            if row.lifetime == Lifetime::Once && row.woken.is_none() {
                return None;
            }
            row.due = row.woken;
            row.attempts = 0;
            row.last_error = None;
        }
        Finish::Defer(due) => {
            row.due = earlier(row.woken, due.resolve(now));
            row.attempts = row.attempts.saturating_sub(1);
        }
        Finish::Fail(error, due) => {
            row.due = Some(due.resolve(now));
            row.last_error = Some(cut(error));
        }
        Finish::Block(reason) => {
            row.blocked = Some(Blocked { reason: cut(reason), since: now });
            row.last_error = Some(cut(reason));
        }
        Finish::Release => {
            row.due = row.woken.map_or(row.due, |woken| earlier(row.due, woken));
            row.attempts = row.attempts.saturating_sub(1);
        }
    }
    row.woken = None;
    row.lease = None;
    Some(row)
}

/// Truncates an error for storage. A worker must be able to report a failure, however long its message is.
fn cut(text: &str) -> String {
    text.get(..text.floor_char_boundary(ERROR_BYTES)).unwrap_or(text).to_owned()
}

pub(super) fn operate(step: Step<'_>, selection: &Selection, operation: Operation, selected: &[Key]) {
    let (keys, filter) = match selection {
        Selection::Keys(keys) => (keys.as_slice(), None),
        Selection::Filter(filter) => (selected, Some(filter.for_operation())),
    };
    let mut changed = 0;
    for key in keys {
        let Some(row) = step.facts.work(key).filter(|row| filter.as_ref().is_none_or(|f| f.matches(row)))
        else {
            continue;
        };
        let after = operation.on(row.clone(), step.now);
        if after.as_ref() != Some(row) {
            step.facts.set_work(key, after);
            changed += 1;
        }
    }
    step.receipt.operated.push(changed);
}

impl Operation {
    /// Returns the row after the operation. The row is unchanged when the operation does not apply, and `None` when it
    /// is removed.
    #[must_use]
    pub fn on(self, mut row: WorkRow, now: Timestamp) -> Option<WorkRow> {
        match self {
            Self::Remove => return None,
            Self::Prioritize(priority) => row.priority = priority,
            Self::RetryNow => {
                if row.due.is_some_and(|due| due > now) && row.blocked.is_none() && row.lease.is_none() {
                    row.due = Some(now);
                }
            }
            Self::Unblock => {
                if row.blocked.take().is_some() {
                    row.attempts = 0;
                    row.due = Some(row.due.map_or(now, |due| due.min(now)));
                }
            }
            Self::Reset => {
                row.blocked = None;
                row.attempts = 0;
                row.last_error = None;
                row.position = row.position.map(|_| Position(0));
                row.woken = None;
                row.lease = None;
                row.due = Some(now);
            }
        }
        Some(row)
    }
}
