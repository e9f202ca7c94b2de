//! State transitions of a task record: the next action, and the start and end of a run. Pure.

use super::history::{TickEntry, TickOutcome};
use super::record::{Begun, Record, Retrying};
use super::tick::TickKind;
use crate::clock::Timestamp;
use crate::failure::Failure;
use crate::model::cron::{Overlap, Recurrence, ScheduleAction, ScheduleState, Span, plan, retry_at};

/// The number of consecutive lost processes after which a fire counts as failed.
const LOST: u32 = 3;
/// The failure of such a fire.
const LOST_TOO_OFTEN: &str = "its processes died";
/// The maximum number of concurrently open fires of a task.
pub(super) const OPEN: usize = 64;
/// The number of runs of a task that may wait for a retry before a backfill starts more.
const RETRYING: usize = 64;

/// A run to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) fire: Timestamp,
    pub(super) kind: TickKind,
    pub(super) attempt: u32,
    pub(super) lost: u32,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Run(Run),
    /// Nothing until then. `None` when no fire is left.
    Rest(Option<Timestamp>),
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Well,
    /// A workflow was started.
    Started(String),
    Failed(Failure),
    /// The run was cancelled. It must run again at once.
    Interrupted,
}

/// Decides the next action of a task whose row is leased by this process. A run that began and did not end was lost
/// with its process.
pub(super) fn next(record: &mut Record, timetable: &Recurrence, now: Timestamp) -> (Next, Option<TickEntry>) {
    let mut lost = None;
    if let Some(begun) = record.running.take() {
        lost = Some(entry(record, &begun, now, TickOutcome::Lost, None));
        record.busy = Some(Span { after: begun.began, to: now });
        if begun.lost + 1 < LOST {
            let Begun { fire, kind, attempt, lost: before, .. } = begun;
            let run = Run { fire, kind, attempt: attempt.saturating_add(1), lost: before + 1 };
            return (Next::Run(run), lost);
        }
        failed(record, &begun, now, &Failure::new(LOST_TOO_OFTEN));
    }
    (to_do(record, timetable, now), lost)
}

fn to_do(record: &mut Record, timetable: &Recurrence, now: Timestamp) -> Next {
    let run = |fire, kind, attempt| Next::Run(Run { fire, kind, attempt, lost: 0 });
    if record.archived.is_some() {
        return Next::Rest(None);
    }
    if !record.asked.is_empty() {
        return run(record.asked.remove(0), TickKind::Manual, 1);
    }
    let again = earliest(record, |retry| retry.kind != TickKind::Scheduled);
    if let Some(retry) = again.filter(|retry| retry.at.has_come(now)) {
        return Next::Run(retried(record, &retry));
    }
    let wait = match record.paused {
        Some(_) => None,
        None => match planned(record, timetable, now) {
            Ok(next) => return next,
            Err(wait) => wait,
        },
    };
    let wait = wait.into_iter().chain(again.map(|retry| retry.at)).min();
    if record.retrying.len() >= RETRYING {
        return Next::Rest(wait);
    }
    while let Some(span) = record.backfill.first_mut() {
        match timetable.next(span.after).filter(|fire| *fire <= span.to) {
            Some(fire) => {
                span.after = fire;
                return run(fire, TickKind::Backfill, 1);
            }
            None => drop(record.backfill.remove(0)),
        }
    }
    Next::Rest(wait)
}

/// Returns the next action of the timetable, or the time until which there is none.
fn planned(record: &mut Record, timetable: &Recurrence, now: Timestamp) -> Result<Next, Option<Timestamp>> {
    let scheduled = earliest(record, |retry| retry.kind == TickKind::Scheduled);
    let situation = ScheduleState {
        timetable,
        progress: &record.progress,
        catch_up: record.spec.catch_up,
        overlap: record.spec.overlap,
        busy: record.busy,
        retry: scheduled.map(|retry| retry.at),
    };
    match plan(&situation, now) {
        ScheduleAction::Wait { until, progress, skipped } => {
            record.progress = progress;
            record.skipped += u64::from(skipped);
            Err(until)
        }
        ScheduleAction::Retry { progress } => {
            record.progress = progress;
            scheduled.map(|retry| Next::Run(retried(record, &retry))).ok_or(Some(now))
        }
        ScheduleAction::Fire { fire, progress, skipped } => {
            record.progress = progress;
            record.skipped += u64::from(skipped);
            record.retrying.retain(|retry| retry.kind != TickKind::Scheduled);
            note_retry(record);
            Ok(Next::Run(Run { fire, kind: TickKind::Scheduled, attempt: 1, lost: 0 }))
        }
    }
}

/// Returns the earliest retry among the selected ones.
fn earliest(record: &Record, meant: impl Fn(&Retrying) -> bool) -> Option<Retrying> {
    record.retrying.iter().filter(|retry| meant(retry)).min_by_key(|retry| (retry.at, retry.fire)).copied()
}

/// Removes a retry from the list and returns its next attempt.
fn retried(record: &mut Record, retry: &Retrying) -> Run {
    record.retrying.retain(|other| other != retry);
    note_retry(record);
    Run { fire: retry.fire, kind: retry.kind, attempt: retry.attempt.saturating_add(1), lost: 0 }
}

/// Adds a run to the list of retries. Among the fires of the timetable, the one that failed first stays.
fn retry(record: &mut Record, begun: &Begun, at: Timestamp) {
    let Begun { fire, kind, attempt, .. } = *begun;
    let taken = |other: &Retrying| kind == TickKind::Scheduled && other.kind == TickKind::Scheduled;
    if !record.retrying.iter().any(taken) {
        record.retrying.push(Retrying { fire, kind, attempt, at });
    }
    note_retry(record);
}

fn note_retry(record: &mut Record) {
    record.task.pending_retry_until = record.retrying.iter().map(|retry| retry.at).min();
}

/// Returns the time of the next action. `None` when no fire is left.
pub(super) fn wake(record: &Record, timetable: &Recurrence, now: Timestamp) -> Option<Timestamp> {
    match next(&mut record.clone(), timetable, now).0 {
        Next::Run(_) => Some(now),
        Next::Rest(until) => until,
    }
}

/// Records the start of a run.
pub(super) fn begin(record: &mut Record, run: Run, owner: &str, now: Timestamp) -> Begun {
    let Run { fire, kind, attempt, lost } = run;
    let begun = Begun { fire, kind, attempt, lost, began: now };
    record.task.last_attempt_time = Some(now);
    record.task.scheduler_identifier = Some(owner.to_owned());
    begun
}

/// Records the end of a run on the row of its task.
pub(super) fn end(record: &mut Record, begun: &Begun, ended: &Ended, now: Timestamp) -> TickEntry {
    record.running = None;
    record.busy = Some(Span { after: begun.began, to: now });
    match ended {
        Ended::Well | Ended::Started(_) => succeeded(record, now),
        Ended::Failed(failure) => failed(record, begun, now, failure),
        Ended::Interrupted => retry(record, begun, now),
    }
    history_entry(record, begun, ended, now)
}

/// Records the end of a run on a separate row. Returns the time of its retry. A newer fire makes the retry of a failed
/// run unnecessary.
pub(super) fn end_beside(
    record: &mut Record,
    begun: &Begun,
    ended: &Ended,
    now: Timestamp,
) -> (TickEntry, Option<Timestamp>) {
    let newest = record.progress.cursor <= begun.fire || begun.kind != TickKind::Scheduled;
    let again = match ended {
        Ended::Well | Ended::Started(_) => {
            succeeded(record, now);
            None
        }
        Ended::Interrupted => Some(now),
        Ended::Failed(failure) => {
            note_failure(record, now);
            retried_at(record, begun, now, failure).filter(|_| newest)
        }
    };
    record.task.pending_retry_until = again.filter(|_| *ended != Ended::Interrupted);
    if again.is_none() {
        record.open.retain(|fire| *fire != begun.fire);
    }
    (history_entry(record, begun, ended, now), again)
}

fn succeeded(record: &mut Record, now: Timestamp) {
    record.runs += 1;
    record.task.last_success_time = Some(now);
}

fn failed(record: &mut Record, begun: &Begun, now: Timestamp, failure: &Failure) {
    note_failure(record, now);
    if let Some(at) = retried_at(record, begun, now, failure) {
        retry(record, begun, at);
    }
}

fn note_failure(record: &mut Record, now: Timestamp) {
    record.runs += 1;
    record.failures += 1;
    record.task.last_failure_time = Some(now);
}

/// Returns the time of the retry of a run that failed now: by the policy, or later if the failure asks for it.
fn retried_at(record: &Record, begun: &Begun, now: Timestamp, failure: &Failure) -> Option<Timestamp> {
    if failure.is_permanent() {
        return None;
    }
    let by_policy = retry_at(&record.retry(), begun.attempt, now)?;
    Some(now.after(failure.wait(by_policy.since(now), now)))
}

fn history_entry(record: &Record, begun: &Begun, ended: &Ended, now: Timestamp) -> TickEntry {
    let (outcome, error) = match ended {
        Ended::Well => (TickOutcome::Succeeded, None),
        Ended::Started(run) => (TickOutcome::Started { run: run.clone() }, None),
        Ended::Failed(failure) => (TickOutcome::Failed, Some(failure.message().to_owned())),
        Ended::Interrupted => (TickOutcome::Interrupted, None),
    };
    entry(record, begun, now, outcome, error)
}

fn entry(
    record: &Record,
    begun: &Begun,
    now: Timestamp,
    outcome: TickOutcome,
    error: Option<String>,
) -> TickEntry {
    let Begun { fire, kind, attempt, began, .. } = *begun;
    let owner = record.task.scheduler_identifier.clone().unwrap_or_default();
    TickEntry { fire, kind, attempt, outcome, began, ended: now, owner, error }
}

/// Returns whether the runs of a task have separate rows.
pub(super) fn beside(record: &Record) -> bool {
    record.spec.overlap == Overlap::Allow
}

/// Returns whether a requested run must wait until one of the concurrent runs has ended.
pub(super) fn must_wait(record: &Record, run: &Run) -> bool {
    beside(record) && record.open.len() >= OPEN && run.kind != TickKind::Scheduled
}
