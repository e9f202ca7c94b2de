//! The next action of a scheduled task: fire, retry, or wait.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Progress, Recurrence, Span};
use crate::clock::{Timestamp, millis};
use crate::model::retry::RetryPolicy;

/// The policy for fires that were missed because no scheduler was running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// Runs the last of them and skips the others.
    #[default]
    One,
    /// Runs all of them that are no older than this, one after the other.
    All(#[serde(with = "millis")] Duration),
    /// Runs none of them. A fire that is late by no more than this was not missed.
    None(#[serde(with = "millis")] Duration),
}

/// The policy for fires that come while the task runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Runs the last of them when the current run has ended.
    #[default]
    Queue,
    /// Runs all of them, one after the other, when the current run has ended.
    QueueAll,
    /// Skips them.
    Skip,
    /// Runs them concurrently with it.
    Allow,
}

/// The input of [`plan`](plan()): the state of a task.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleState<'a> {
    /// The fire times of the task.
    pub timetable: &'a Recurrence,
    /// The progress of the task.
    pub progress: &'a Progress,
    /// The policy for missed fires.
    pub catch_up: CatchUp,
    /// The policy for fires that come while the task runs.
    pub overlap: Overlap,
    /// The last run.
    pub busy: Option<Span>,
    /// The time of the next retry of the fire that failed last.
    pub retry: Option<Timestamp>,
}

/// The next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleAction {
    /// Waits. `until` is `None` when no fire is left.
    Wait {
        /// The time of the next decision.
        until: Option<Timestamp>,
        /// The progress of the task.
        progress: Progress,
        /// The number of skipped fires, counted up to a thousand.
        skipped: u32,
    },
    /// Retries the fire that failed.
    Retry {
        /// The progress of the task.
        progress: Progress,
    },
    /// Runs a fire. It supersedes a pending retry, unless all fires must run.
    Fire {
        /// The time of the fire on the timetable.
        fire: Timestamp,
        /// The progress of the task after the fire.
        progress: Progress,
        /// The number of skipped fires, counted up to a thousand.
        skipped: u32,
    },
}

/// The limit up to which skipped fires are counted.
const COUNTED: u32 = 1_000;

/// Decides the next action.
#[must_use]
pub fn plan(situation: &ScheduleState<'_>, now: Timestamp) -> ScheduleAction {
    let ScheduleState { timetable, catch_up, overlap, busy, retry, .. } = *situation;
    let mut progress = situation.progress.clone();
    progress.observe(now);
    let retry_has_come = retry.is_some_and(|retry| retry.has_come(now));
    let mut skipped = 0;
    loop {
        let first = progress.next(timetable);
        let Some(first) = first.filter(|fire| timetable.due(*fire).has_come(now)) else {
            if retry_has_come {
                return ScheduleAction::Retry { progress };
            }
            let until = first.map(|fire| timetable.due(fire)).into_iter().chain(retry).min();
            return ScheduleAction::Wait { until, progress, skipped };
        };
        if let (Some(retry), CatchUp::All(_)) = (retry, catch_up) {
            // All fires run, one after the other, so none supersedes the one that failed.
            return if retry_has_come {
                ScheduleAction::Retry { progress }
            } else {
                ScheduleAction::Wait { until: Some(retry), progress, skipped }
            };
        }
        let due = timetable.due(first);
        let during = busy.filter(|busy| busy.contains(due));
        let chosen = match (overlap, during) {
            // A fire before the end of the last run came during one of the runs before it. Other fires were skipped.
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
                return ScheduleAction::Fire { fire, progress, skipped };
            }
            Err(Some(last)) => last,
            Ok(None) | Err(None) => first,
        };
        skipped += between(timetable, &progress, last) + 1;
        progress.pass(last);
    }
}

/// Returns the time of the next retry: the end of the failed attempt plus the delay of the policy. Returns `None` when the
/// attempts are used up.
#[must_use]
pub fn retry_at(policy: &RetryPolicy, attempt: u32, ended: Timestamp) -> Option<Timestamp> {
    policy.allows(attempt.saturating_add(1)).then(|| ended.after(policy.longest_wait(attempt)))
}

/// Returns the fire to run among those that have come, or else the last one to skip.
fn choose(
    timetable: &Recurrence,
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

/// Returns the last open fire that is due at an instant. The search starts close to the instant, because there may be
/// many.
fn latest(timetable: &Recurrence, progress: &Progress, bound: Timestamp) -> Option<Timestamp> {
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

/// Returns the number of open fires before the given one.
fn between(timetable: &Recurrence, progress: &Progress, fire: Timestamp) -> u32 {
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

/// Returns the instant one microsecond more than `by` before `at`. A fire exactly `by` before `at` therefore lies after
/// it.
fn before(at: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(at.as_micros().saturating_sub(by).saturating_sub(1))
}
