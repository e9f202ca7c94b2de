//! What a task has to do now: fire, try again, or wait.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Progress, Span, Timetable};
use crate::clock::{Timestamp, millis};
use crate::model::retry::RetryPolicy;

/// What becomes of fires that were missed because nobody was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// The last of them runs, the others do not.
    #[default]
    One,
    /// All of them run, one after the other, as far as they are no older than this.
    All(#[serde(with = "millis")] Duration),
    /// None of them runs. What is late by no more than this was not missed.
    None(#[serde(with = "millis")] Duration),
}

/// What becomes of fires that come while the task runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// The last of them runs when the run before it has ended.
    #[default]
    Queue,
    /// All of them run, one after the other, when the run before them has ended.
    QueueAll,
    /// They do not run.
    Skip,
    /// They run beside it.
    Allow,
}

/// What is known about a task.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// When it fires.
    pub timetable: &'a Timetable,
    /// How far it is.
    pub progress: &'a Progress,
    /// What becomes of fires that were missed.
    pub catch_up: CatchUp,
    /// What becomes of fires that come while it runs.
    pub overlap: Overlap,
    /// When it ran last.
    pub busy: Option<Span>,
    /// When the fire that failed last is to be tried again.
    pub retry: Option<Timestamp>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing, until then. `None` when there is nothing to come.
    Wait {
        /// When to look again.
        until: Option<Timestamp>,
        /// How far the task is.
        progress: Progress,
        /// How many fires were passed over, counted up to a thousand.
        skipped: u32,
    },
    /// The fire that failed runs again.
    Retry {
        /// How far the task is.
        progress: Progress,
    },
    /// A fire runs. A retry that is pending is given up for it, unless all fires are to run.
    Fire {
        /// Its time on the timetable.
        fire: Timestamp,
        /// How far the task is then.
        progress: Progress,
        /// How many fires were passed over, counted up to a thousand.
        skipped: u32,
    },
}

/// Fires that are passed over are counted up to here.
const COUNTED: u32 = 1_000;

/// Decides what is to be done now.
#[must_use]
pub fn plan(situation: &Situation<'_>, now: Timestamp) -> Plan {
    let Situation { timetable, catch_up, overlap, busy, retry, .. } = *situation;
    let mut progress = situation.progress.clone();
    progress.look(now);
    let retry_has_come = retry.is_some_and(|retry| retry.has_come(now));
    let mut skipped = 0;
    loop {
        let first = progress.next(timetable);
        let Some(first) = first.filter(|fire| timetable.due(*fire).has_come(now)) else {
            if retry_has_come {
                return Plan::Retry { progress };
            }
            let until = first.map(|fire| timetable.due(fire)).into_iter().chain(retry).min();
            return Plan::Wait { until, progress, skipped };
        };
        if let (Some(retry), CatchUp::All(_)) = (retry, catch_up) {
            // All of them run, one after the other: none takes the place of one that failed.
            return if retry_has_come {
                Plan::Retry { progress }
            } else {
                Plan::Wait { until: Some(retry), progress, skipped }
            };
        }
        let due = timetable.due(first);
        let during = busy.filter(|busy| busy.contains(due));
        let chosen = match (overlap, during) {
            // A fire before the end of the last run came during one of the runs before it: the others were passed over.
            (Overlap::QueueAll, _) if busy.is_some_and(|busy| due <= busy.to) => Ok(Some(first)),
            (Overlap::Skip, Some(busy)) => Err(latest(timetable, &progress, busy.to.min(now))),
            (Overlap::Queue, Some(busy)) if catch_up != CatchUp::One => {
                Ok(latest(timetable, &progress, busy.to.min(now)))
            }
            _ => choose(timetable, &progress, catch_up, now),
        };
        let last = match chosen {
            Ok(Some(fire)) => {
                skipped += between(timetable, &progress, fire);
                progress.run(timetable, fire);
                return Plan::Fire { fire, progress, skipped };
            }
            Err(Some(last)) => last,
            Ok(None) | Err(None) => first,
        };
        skipped += between(timetable, &progress, last) + 1;
        progress.pass(last);
    }
}

/// When a fire that failed is tried again: so long after its end as the policy says. `None` when its attempts are used up.
#[must_use]
pub fn retry_at(policy: &RetryPolicy, attempt: u32, ended: Timestamp) -> Option<Timestamp> {
    policy.allows(attempt.saturating_add(1)).then(|| ended.after(policy.longest_wait(attempt)))
}

/// The fire that runs of those that have come, or the last one that does not.
fn choose(
    timetable: &Timetable,
    progress: &Progress,
    catch_up: CatchUp,
    now: Timestamp,
) -> Result<Option<Timestamp>, Option<Timestamp>> {
    let late = |fire: Timestamp| now.since(timetable.due(fire));
    match catch_up {
        CatchUp::One => Ok(latest(timetable, progress, now)),
        CatchUp::None(tolerated) => match latest(timetable, progress, now) {
            Some(fire) if late(fire) <= tolerated => Ok(Some(fire)),
            last => Err(last),
        },
        CatchUp::All(within) => {
            let shift = within.saturating_add(timetable.spread).saturating_add(timetable.jitter);
            let mut at = progress.cursor.max(before(now, shift));
            while let Some(fire) = progress.next_after(timetable, at) {
                if !timetable.due(fire).has_come(now) {
                    break;
                }
                if late(fire) <= within {
                    return Ok(Some(fire));
                }
                at = fire;
            }
            Err(latest(timetable, progress, now))
        }
    }
}

/// The last open fire that is due at an instant. It is looked for close to the instant first: there may be many.
fn latest(timetable: &Timetable, progress: &Progress, bound: Timestamp) -> Option<Timestamp> {
    let mut reach = Duration::from_mins(10);
    loop {
        let start = progress.cursor.max(before(bound, reach));
        let (mut at, mut found) = (start, None);
        while let Some(fire) = progress.next_after(timetable, at)
            && timetable.due(fire).has_come(bound)
        {
            (at, found) = (fire, Some(fire));
        }
        if found.is_some() || start == progress.cursor {
            return found;
        }
        reach = reach.saturating_mul(8);
    }
}

/// How many open fires come before one.
fn between(timetable: &Timetable, progress: &Progress, fire: Timestamp) -> u32 {
    let (mut count, mut at) = (0, progress.cursor);
    while count < COUNTED
        && let Some(next) = progress.next_after(timetable, at)
        && next < fire
    {
        count += 1;
        at = next;
    }
    count
}

/// An instant so long before. It stops just after the microsecond so that what lies exactly so long before is after it.
fn before(at: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(at.as_micros().saturating_sub(by).saturating_sub(1))
}
