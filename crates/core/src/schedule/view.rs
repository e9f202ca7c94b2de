//! Public view of tasks.

use serde::Serialize;

use super::record::{Record, ScheduleRecord};
use super::transition;
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::store::{StoredDocument, WorkRow};

/// The current activity of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum ScheduleActivity {
    /// The task is running.
    Runs {
        /// The process that runs it.
        by: String,
        /// The time of the fire.
        fire: Timestamp,
        /// The expiry of the lease, unless it is renewed.
        until: Timestamp,
    },
    /// The task is due, and no worker has claimed it yet.
    Due,
    /// The task waits for its next fire.
    Waits {
        /// The time of the next action. `None` when there is none.
        until: Option<Timestamp>,
    },
    /// The task waits for its retry after a failure.
    Retries {
        /// The time of the retry.
        at: Timestamp,
    },
    /// An operator has paused the task.
    Paused {
        /// The start of the pause.
        since: Timestamp,
        /// The reason.
        reason: String,
    },
    /// The scheduler no longer registers the task.
    Archived {
        /// The time of the archiving.
        since: Timestamp,
    },
    /// The row of the task is blocked.
    Blocked {
        /// The reason.
        reason: String,
    },
    /// The record of the task or its times cannot be decoded.
    Broken {
        /// The reason.
        reason: String,
    },
}

/// A task and its activity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScheduleView {
    /// The record of the task.
    #[serde(flatten)]
    pub record: ScheduleRecord,
    /// The zone of the times.
    pub zone: String,
    /// The name of the scheduler.
    pub scheduler: String,
    /// A short description of the action: a function, or the workflow that it starts.
    pub action: String,
    /// The current activity.
    pub doing: ScheduleActivity,
    /// The next fire on the timetable.
    pub next: Option<Timestamp>,
    /// The number of runs that ended.
    pub runs: u64,
    /// The number of runs that failed.
    pub failures: u64,
    /// The number of skipped fires.
    pub skipped: u64,
    /// The number of concurrent fires that run or wait.
    pub open: usize,
}

impl ScheduleView {
    pub(super) fn of(document: &StoredDocument, row: Option<&WorkRow>, now: Timestamp) -> Self {
        match document.value.parse::<Record>() {
            Ok(record) => Self::read(record, row, now),
            Err(error) => Self::broken(document, &error),
        }
    }

    fn read(record: Record, row: Option<&WorkRow>, now: Timestamp) -> Self {
        let (next, doing) = match record.timetable() {
            Ok(timetable) => {
                let mut progress = record.progress.clone();
                progress.observe(now);
                let wake = transition::wake(&Record { running: None, ..record.clone() }, &timetable, now);
                let open = record.archived.is_none() && record.paused.is_none();
                (progress.next(&timetable).filter(|_| open), doing(&record, row, wake, now))
            }
            Err(error) => (None, ScheduleActivity::Broken { reason: error.to_string() }),
        };
        Self {
            zone: record.spec.zone,
            scheduler: record.scheduler,
            action: record.action,
            doing,
            next,
            runs: record.runs,
            failures: record.failures,
            skipped: record.skipped,
            open: record.open.len(),
            record: record.task,
        }
    }

    fn broken(document: &StoredDocument, error: &InvalidInput) -> Self {
        let name = match document.key.args().into_iter().next() {
            Some(crate::key::Arg::Str(name)) => name,
            _ => document.key.to_string(),
        };
        let record = ScheduleRecord {
            name,
            cron_expression: String::new(),
            retry_delay_ms: 0,
            last_success_time: None,
            last_failure_time: None,
            last_attempt_time: None,
            pending_retry_until: None,
            scheduler_identifier: None,
        };
        Self {
            record,
            zone: String::new(),
            scheduler: String::new(),
            action: String::new(),
            doing: ScheduleActivity::Broken { reason: error.to_string() },
            next: None,
            runs: 0,
            failures: 0,
            skipped: 0,
            open: 0,
        }
    }
}

fn doing(
    record: &Record,
    row: Option<&WorkRow>,
    wake: Option<Timestamp>,
    now: Timestamp,
) -> ScheduleActivity {
    if let (Some(begun), Some(lease)) = (&record.running, row.and_then(|row| row.lease.as_ref())) {
        let by = record.task.scheduler_identifier.clone().unwrap_or_else(|| lease.owner.to_string());
        return ScheduleActivity::Runs { by, fire: begun.fire, until: lease.until };
    }
    if let Some(since) = record.archived {
        return ScheduleActivity::Archived { since };
    }
    if let Some(blocked) = row.and_then(|row| row.blocked.as_ref()) {
        return ScheduleActivity::Blocked { reason: blocked.reason.clone() };
    }
    match (&record.paused, wake, record.task.pending_retry_until) {
        (_, Some(wake), _) if wake <= now => ScheduleActivity::Due,
        (Some(paused), ..) => ScheduleActivity::Paused { since: paused.since, reason: paused.reason.clone() },
        (None, Some(wake), Some(retry)) if wake == retry => ScheduleActivity::Retries { at: retry },
        (None, wake, _) => ScheduleActivity::Waits { until: wake },
    }
}
