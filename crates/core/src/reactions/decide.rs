//! Pure decisions of reactions: the consequence of an outcome, the number of events per handler run, and the rows of an
//! event. They use no store, no clock and no task.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::inbox;
use super::keys::{self, INTERNAL, ROUTED};
use super::reaction::{Choose, WhenExhausted};
use super::stored::Stored;
use crate::clock::Due;
use crate::error::InvalidInput;
use crate::events::Upcasters;
use crate::failure::Failure;
use crate::id::{EventType, Position};
use crate::key::{Key, KeyPrefix};
use crate::model::retry::{AfterFailure, RetryPolicy};
use crate::runtime::panic::isolate;
use crate::store::{Event, EventFilter, NewEvent};

/// The events that a reaction subscribes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Interest {
    #[serde(default)]
    pub(super) types: Vec<EventType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) streams: Option<KeyPrefix>,
}

impl Interest {
    /// Returns whether the reaction wants the event. Copies in inboxes are never wanted.
    pub(super) fn wants(&self, event: &Event) -> bool {
        let name = event.event_type.as_str();
        let of_type = match self.types.as_slice() {
            [] => !name.starts_with(INTERNAL),
            types => name != ROUTED && types.contains(&event.event_type),
        };
        of_type && self.streams.as_ref().is_none_or(|range| range.contains(&event.stream))
    }

    /// Returns the part of the interest that a store can filter by.
    pub(super) fn filter(&self) -> EventFilter {
        EventFilter { types: self.types.clone(), streams: self.streams.clone(), ..EventFilter::default() }
    }
}

/// The consequence of a failure for the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The row is retried after a wait; the attempt counts.
    Retry { error: String, wait: std::time::Duration },
    /// The row is blocked until an operator unblocks it.
    Block { reason: String },
    /// The event is parked as a dead letter, and the row continues behind it.
    Park { error: String },
    /// The row is due later; the attempt does not count.
    Defer(Due),
}

/// The failure rules of a reaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rules {
    pub(super) retry: RetryPolicy,
    pub(super) exhausted: WhenExhausted,
}

impl Rules {
    /// Returns the consequence of a failure in attempt number `attempts`. `random` is the jitter of the wait, see
    /// [`RetryPolicy::after_failure`].
    pub(super) fn after(&self, failure: &Failure, attempts: u32, random: f64) -> Verdict {
        if let Some(due) = failure.deferral() {
            return Verdict::Defer(due);
        }
        let error = failure.message().to_owned();
        if failure.is_permanent() {
            return self.give_up(error);
        }
        match self.retry.after_failure(attempts, random) {
            AfterFailure::Again(wait) => {
                Verdict::Retry { error, wait: wait.max(failure.minimum_wait().unwrap_or_default()) }
            }
            AfterFailure::Block => self.give_up(format!("gave up after {attempts} attempts: {error}")),
        }
    }

    /// Returns the verdict on a row whose attempts are used up before the handler runs; `None` when the handler may run.
    /// Attempts count when the row is granted, so a worker that dies each time uses them up without reporting a failure.
    pub(super) fn before(&self, attempts: u32, last_error: Option<&str>) -> Option<Verdict> {
        if self.retry.allows(attempts) {
            return None;
        }
        let ended = attempts.saturating_sub(1);
        let error = match last_error {
            Some(error) => format!("gave up after {ended} attempts, the last of which did not end: {error}"),
            None => format!("gave up after {ended} attempts, none of which ended: the workers died or hung"),
        };
        Some(self.give_up(error))
    }

    fn give_up(&self, error: String) -> Verdict {
        match self.exhausted {
            WhenExhausted::Block => Verdict::Block { reason: error },
            WhenExhausted::Park => Verdict::Park { error },
        }
    }
}

/// How a grant divides its events into handler runs and commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// As the reaction is configured.
    Free,
    /// One event per run and commit, after a failure, so that the failing event is identified.
    Careful,
}

/// The number of attempts that a row may run beside others although its holders died. Processes also die for other reasons.
const BESIDE_OTHERS: u32 = 2;

impl Rules {
    /// Returns whether a row must run alone because its holders died, possibly because of it. Otherwise rows that run
    /// beside it would use up their attempts as well.
    pub(super) fn is_suspect(&self, attempts: u32, takeovers: u32) -> bool {
        let last = self.retry.max_attempts.saturating_sub(1).max(1);
        takeovers > 0 && attempts > BESIDE_OTHERS.min(last)
    }

    /// Returns whether an attempt is recorded before it runs, because an earlier holder died with the row.
    pub(super) fn is_recorded(attempts: u32, takeovers: u32) -> bool {
        takeovers > 0 && attempts > 1
    }

    /// Returns the number of an attempt among those that count.
    ///
    /// A grant with the number of the recorded one repeats it: that one was deferred or released. A lower number means that an
    /// operator has reset the row. Without a record, attempts count that ended with an error; of those that did not end, one.
    pub(super) fn counted(row: Granted, recorded: Option<Recorded>) -> u32 {
        let Granted { attempts, takeovers, has_failed } = row;
        let before = match recorded {
            Some(recorded) if recorded.granted == attempts => return recorded.attempt.min(attempts),
            Some(recorded) if recorded.granted < attempts => recorded.attempt,
            _ => {
                let before = attempts.saturating_sub(1);
                let failed = before.saturating_sub(takeovers).max(u32::from(has_failed));
                before.min(failed.saturating_add(1))
            }
        };
        attempts.min(before.saturating_add(1))
    }
}

/// A granted row, as far as its attempts are concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    /// Grants since the last progress, except deferred and released ones.
    pub(super) attempts: u32,
    /// Holders that died or lost the row, ever.
    pub(super) takeovers: u32,
    /// Whether an attempt ended with an error.
    pub(super) has_failed: bool,
}

/// An attempt that was recorded before its handler started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Recorded {
    /// The position of the row. The record counts only while the row stays there.
    pub(super) position: Option<Position>,
    /// The number of the attempt among those that count.
    pub(super) attempt: u32,
    /// The number of the grant.
    pub(super) granted: u32,
}

/// Returns the pace of a grant: careful after an attempt that failed or did not end.
pub(super) fn pace(attempts: u32) -> Pace {
    if attempts <= 1 { Pace::Free } else { Pace::Careful }
}

impl Pace {
    /// Returns how many of the `left` events the handler receives at once.
    pub(super) fn bite(self, several: bool, left: usize) -> usize {
        if several && self == Self::Free { left } else { left.min(1) }
    }

    /// Returns whether the handled events are committed now.
    pub(super) fn commits(self, handled: usize, together: usize, left: usize) -> bool {
        left == 0 || handled >= together || self == Self::Careful
    }
}

/// The state of a row after its grant was handled completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The row rests until it is woken.
    Rest,
    /// There may be more events. The row is due at once, behind rows that have waited longer.
    More,
}

/// Returns the end of a grant: one that may have left events is followed by another.
pub(super) fn end(more: bool) -> End {
    if more { End::More } else { End::Rest }
}

/// A row to wake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wake {
    pub(super) row: Key,
    pub(super) follow: Key,
    /// The start position of a new row: before the event that woke it.
    pub(super) from: Position,
}

/// The result of routing a part of the log: rows to wake, each once, and copies for inboxes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) wakes: BTreeMap<Key, Wake>,
    pub(super) copies: BTreeMap<Key, Vec<NewEvent>>,
    /// The number of events that it routes.
    pub(super) events: usize,
    /// The number of the given events that it covers.
    pub(super) covered: usize,
    /// The reason why the first uncovered event cannot be routed; `None` when the plan ended for another reason.
    pub(super) stuck: Option<String>,
}

/// The largest plan, measured by the events that it reads. It stays far below the limit of a batch.
const PLAN_BYTES: usize = 16 * 1024 * 1024;

/// The routing rules of a reaction.
pub(super) struct Routing<'a> {
    pub(super) name: &'a str,
    pub(super) stored: &'a Stored,
    pub(super) to: Option<&'a Choose>,
    pub(super) upcasters: &'a Upcasters,
}

impl Routing<'_> {
    /// Returns the key that an event belongs to; `None` when the event is not for this reaction.
    pub(super) fn key(&self, event: &Event) -> Result<Option<Key>, String> {
        if self.stored.wants(event) { self.choose(event) } else { Ok(None) }
    }

    /// Returns the chosen key of an event that matches the filter; `None` when the key function rejects the event.
    pub(super) fn choose(&self, event: &Event) -> Result<Option<Key>, String> {
        let Some(choose) = self.to else { return Ok(Some(event.stream.clone())) };
        let chosen = isolate("the choice of the key", || {
            let event = self.upcasters.upcast(event.clone()).map_err(|error| error.to_string())?;
            Ok(choose(&event))
        });
        chosen.and_then(|chosen| chosen)
    }

    /// Plans the events in order, up to the first one that cannot be routed, or until the plan is large enough.
    pub(super) fn plan(&self, events: &[Event]) -> Plan {
        let mut plan = Plan::default();
        let mut bytes = 0;
        for event in events {
            bytes += event.payload.len() + event.meta.len();
            if bytes > PLAN_BYTES && plan.covered > 0 {
                return plan;
            }
            let routed = self.key(event).and_then(|key| match key {
                Some(key) => self.add(&mut plan, event, &key).map_err(|e| e.to_string()),
                None => Ok(()),
            });
            if let Err(reason) = routed {
                plan.stuck = Some(reason);
                return plan;
            }
            plan.covered += 1;
        }
        plan
    }

    fn add(&self, plan: &mut Plan, event: &Event, key: &Key) -> Result<(), InvalidInput> {
        let row = keys::row(self.name, key)?;
        let (follow, from) = match self.to {
            None => (event.stream.clone(), Position(event.position.0.saturating_sub(1))),
            Some(_) => {
                let inbox = keys::inbox(self.name, self.stored.generation, key)?;
                let copy = inbox::copy(event)?;
                copy_fits(&inbox, &copy)?;
                plan.copies.entry(inbox.clone()).or_default().push(copy);
                (inbox, Position(0))
            }
        };
        plan.events += 1;
        plan.wakes.entry(row.clone()).or_insert(Wake { row, follow, from });
        Ok(())
    }
}

/// Checks the limits of a copy. Its metadata is that of the event and a little more, which may exceed the limit.
fn copy_fits(inbox: &Key, copy: &NewEvent) -> Result<(), InvalidInput> {
    use crate::store::{Batch, Expect, Refusal};
    match Batch::new().append(inbox, Expect::Any, [copy.clone()]).validate() {
        Err(Refusal::Invalid(invalid)) => Err(invalid),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
