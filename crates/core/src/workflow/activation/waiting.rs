//! Waits of an activation, and whether the run can rest during them.

use std::time::Duration;

use super::op::OpState;
use super::{Action, Activation, Moment};
use crate::clock::{Due, Timestamp};
use crate::lease::NEVER;
use crate::workflow::journal_entry::{JournalEntry, Kind, TimerSet, TimerSpec};

/// The waits of the open operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    /// A step runs, or the workflow awaits a future that is not an operation.
    pub(super) busy: bool,
    /// The earliest instant at which an operation continues without an external event.
    pub(super) next: Option<Timestamp>,
}

impl Activation {
    /// Waits for steps and timers, or fires the timers that are due. Returns `None` when timers fired.
    pub(super) fn wait(&mut self, moment: Moment) -> Option<Action> {
        let Waiting { busy, next } = self.waiting();
        let Some(next) = next else {
            return Some(if busy { Action::Wait(None) } else { Action::Suspend(Due::At(NEVER)) });
        };
        let Some(now) = moment.now else { return Some(Action::ReadClock) };
        if self.fire_due(now) {
            return None;
        }
        let left = next.since(now);
        let suspends = !busy && left > moment.linger;
        Some(if suspends { Action::Suspend(Due::At(next)) } else { Action::Wait(Some(left)) })
    }

    pub(super) fn waiting(&mut self) -> Waiting {
        let (mut next, mut busy, mut awaited) = (None::<Timestamp>, false, false);
        self.ops.each_open(|_, op| {
            // An operation that is only kept does not show what the code awaits, which may be a future that is not an operation.
            awaited |= op.awaited;
            busy |= matches!(op.state, OpState::Running | OpState::Runnable | OpState::Committing);
            if let OpState::Sleeping(until) = op.state {
                next = Some(next.map_or(until, |next| next.min(until)));
            }
        });
        Waiting { busy: busy || !awaited, next }
    }

    /// Returns when the run continues without an external event, if it can rest as soon as the outgoing entries are committed. It
    /// can when no step runs or is about to, and only timers and waits are outgoing.
    pub(super) fn suspends_until(&mut self, linger: Duration) -> Option<Due> {
        let mut timers = Vec::new();
        for outgoing in &self.outgoing {
            match &outgoing.entry {
                Some(JournalEntry::TimerSet(TimerSet { when, .. })) => timers.push(*when),
                Some(JournalEntry::Awaited(_)) => {}
                _ => return None,
            }
        }
        let (mut awaited, mut active, mut committing, mut at) = (false, false, 0, None::<Timestamp>);
        self.ops.each_open(|_, op| {
            awaited |= op.awaited;
            match op.state {
                OpState::Running | OpState::Runnable | OpState::Resolved(_) | OpState::Closed => {
                    active = true
                }
                OpState::Pending => active |= op.kind == Kind::Step && op.awaited,
                OpState::Committing => committing += 1,
                OpState::Sleeping(until) => at = Some(at.map_or(until, |at| at.min(until))),
            }
        });
        let unproven = !self.unproven.is_empty();
        if active || unproven || committing > timers.len() || !awaited || !self.fits_one_batch() {
            return None;
        }
        match earliest(at, &timers)? {
            Due::After(wait) if wait <= linger => None,
            // The driver must read the clock first, to see whether the instant has come.
            Due::At(at) if at != NEVER => None,
            due => Some(due),
        }
    }
}

/// Returns the earliest of several instants, or `None` when that depends on when the timers are recorded.
fn earliest(mut at: Option<Timestamp>, timers: &[TimerSpec]) -> Option<Due> {
    let mut after = None::<Duration>;
    for timer in timers {
        match timer {
            TimerSpec::At(instant) => at = Some(at.map_or(*instant, |at| at.min(*instant))),
            TimerSpec::After(wait) => after = Some(after.map_or(*wait, |after| after.min(*wait))),
        }
    }
    match (at, after) {
        (Some(_), Some(_)) => None,
        (Some(at), None) => Some(Due::At(at)),
        (None, Some(after)) => Some(Due::After(after)),
        (None, None) => Some(Due::At(NEVER)),
    }
}
