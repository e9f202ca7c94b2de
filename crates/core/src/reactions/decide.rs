//! The decisions of reactions, pure: what an outcome means for a row, how many events a handler gets, and which rows an
//! event concerns. No store, no clock, no task.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::names::{self, INTERNAL, ROUTED};
use super::reaction::{Choose, WhenExhausted};
use super::routed;
use super::stored::Stored;
use crate::clock::Due;
use crate::error::InvalidInput;
use crate::events::Upcasters;
use crate::id::{EventType, Position};
use crate::key::{Key, KeyPrefix};
use crate::model::retry::{AfterFailure, RetryPolicy};
use crate::runtime::panic::isolate;
use crate::store::{Event, EventFilter, NewEvent};

/// Which events a reaction is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Interest {
    #[serde(default)]
    pub(super) types: Vec<EventType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) streams: Option<KeyPrefix>,
}

impl Interest {
    /// Whether the reaction wants the event. Copies in inboxes are never events of their own.
    pub(super) fn wants(&self, event: &Event) -> bool {
        let name = event.event_type.as_str();
        let of_type = match self.types.as_slice() {
            [] => !name.starts_with(INTERNAL),
            types => name != ROUTED && types.contains(&event.event_type),
        };
        of_type && self.streams.as_ref().is_none_or(|range| range.contains(&event.stream))
    }

    /// The part of it that a store can look for.
    pub(super) fn filter(&self) -> EventFilter {
        EventFilter { types: self.types.clone(), streams: self.streams.clone(), ..EventFilter::default() }
    }
}

/// How a handler failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It may be tried again.
    Again(String),
    /// It will fail again.
    Never(String),
    /// Not now.
    Later(Due),
}

/// What becomes of the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is due again after a wait; the attempt counts.
    Retry { error: String, wait: std::time::Duration },
    /// Nobody gets it until it is unblocked.
    Block { reason: String },
    /// The event is set aside, and the row goes on.
    Park { error: String },
    /// It is due again later; the attempt does not count.
    Defer(Due),
}

/// The rules of a reaction for failures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rules {
    pub(super) retry: RetryPolicy,
    pub(super) exhausted: WhenExhausted,
}

impl Rules {
    /// What follows when attempt number `attempts` failed. `random` spreads the wait, see [`RetryPolicy::after_failure`].
    pub(super) fn after(&self, failure: Failure, attempts: u32, random: f64) -> Verdict {
        match failure {
            Failure::Later(due) => Verdict::Defer(due),
            Failure::Never(error) => self.give_up(error),
            Failure::Again(error) => match self.retry.after_failure(attempts, random) {
                AfterFailure::Again(wait) => Verdict::Retry { error, wait },
                AfterFailure::Block => self.give_up(format!("gave up after {attempts} attempts: {error}")),
            },
        }
    }

    /// What follows before the handler runs at all: attempts count when the row is granted, so a worker that died every time
    /// has used them up without ever reporting a failure. `None` when it may run.
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

/// How the events of a grant are gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// As the reaction wants it.
    Free,
    /// One by one, each with a commit of its own, because something went wrong: so it is known which of them it is.
    Careful,
}

/// How many attempts a row may take beside others although its holders died: processes die for other reasons, too.
const BESIDE_OTHERS: u32 = 2;

impl Rules {
    /// Whether a row runs alone: holders have died with it, and may have died of it. Otherwise rows that run beside it use
    /// up their attempts as well.
    pub(super) fn is_suspect(&self, attempts: u32, takeovers: u32) -> bool {
        let last = self.retry.max_attempts.saturating_sub(1).max(1);
        takeovers > 0 && attempts > BESIDE_OTHERS.min(last)
    }

    /// Whether an attempt is recorded before it runs: an earlier holder died with the row.
    pub(super) fn is_recorded(attempts: u32, takeovers: u32) -> bool {
        takeovers > 0 && attempts > 1
    }

    /// The number of an attempt among those that count. `recorded` is the number of the last one that was recorded. Without a
    /// record, attempts count that ended with an error; of those that did not end, one.
    pub(super) fn counted(attempts: u32, has_failed: bool, recorded: Option<u32>) -> u32 {
        let granted_before = attempts.saturating_sub(1);
        let before = recorded.unwrap_or(if has_failed { granted_before } else { granted_before.min(1) });
        attempts.min(before.saturating_add(1))
    }
}

/// The pace of a grant: careful after an attempt that failed, or did not end.
pub(super) fn pace(attempts: u32) -> Pace {
    if attempts <= 1 { Pace::Free } else { Pace::Careful }
}

impl Pace {
    /// How many of the events that are left a handler gets at once.
    pub(super) fn bite(self, several: bool, left: usize) -> usize {
        if several && self == Self::Free { left } else { left.min(1) }
    }

    /// Whether what was handled is committed now.
    pub(super) fn commits(self, handled: usize, together: usize, left: usize) -> bool {
        left == 0 || handled >= together || self == Self::Careful
    }
}

/// What becomes of a row whose grant was handled to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It rests until it is woken.
    Rest,
    /// There may be more: it is due again at once, behind those that have waited longer.
    More,
}

/// A grant that may not have brought all is followed by another.
pub(super) fn end(more: bool) -> End {
    if more { End::More } else { End::Rest }
}

/// A row that is to be woken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wake {
    pub(super) row: Key,
    pub(super) follow: Key,
    /// Where the row begins, if there is none yet: before the event that woke it.
    pub(super) from: Position,
}

/// What routing a part of the log does: rows to be woken, each once, and copies for inboxes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) wakes: BTreeMap<Key, Wake>,
    pub(super) copies: BTreeMap<Key, Vec<NewEvent>>,
    /// Events that are routed by it.
    pub(super) events: usize,
    /// How many of the events that were given it covers.
    pub(super) covered: usize,
    /// Why it ends before the first event that it does not cover, if that is because the event cannot be routed.
    pub(super) stuck: Option<String>,
}

/// The largest plan, by the events that it copies. It stays far below what a batch may hold.
const PLAN_BYTES: usize = 16 * 1024 * 1024;

/// Where events go.
pub(super) struct Routing<'a> {
    pub(super) name: &'a str,
    pub(super) stored: &'a Stored,
    pub(super) to: Option<&'a Choose>,
    pub(super) upcasters: &'a Upcasters,
}

impl Routing<'_> {
    /// The key that an event belongs to; `None` when it is not for this reaction.
    pub(super) fn key(&self, event: &Event) -> Result<Option<Key>, String> {
        if self.stored.wants(event) { self.choose(event) } else { Ok(None) }
    }

    /// The key that an event belongs to, if it is for this reaction.
    pub(super) fn choose(&self, event: &Event) -> Result<Option<Key>, String> {
        let Some(choose) = self.to else { return Ok(Some(event.stream.clone())) };
        let chosen = isolate("the choice of the key", || {
            let event = self.upcasters.upcast(event.clone()).map_err(|error| error.to_string())?;
            Ok(choose(&event))
        });
        chosen.and_then(|chosen| chosen)
    }

    /// Plans the events, in order, up to the first one that cannot be routed, or until the plan is large enough.
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
        let row = names::row(self.name, key)?;
        let (follow, from) = match self.to {
            None => (event.stream.clone(), Position(event.position.0.saturating_sub(1))),
            Some(_) => {
                let inbox = names::inbox(self.name, self.stored.generation, key)?;
                let copy = routed::copy(event)?;
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

/// The notes of a copy are those of the event and a little more, which may be a little too much.
fn copy_fits(inbox: &Key, copy: &NewEvent) -> Result<(), InvalidInput> {
    use crate::store::{Batch, Expect, Refusal};
    match Batch::new().append(inbox, Expect::Any, [copy.clone()]).validate() {
        Err(Refusal::Invalid(invalid)) => Err(invalid),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
