//! Tasks as people see them.

use serde::Serialize;

use super::change;
use super::record::{Record, TaskRecord};
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::store::{Document, WorkRow};

/// What a task does at the moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Doing {
    /// It runs.
    Runs {
        /// Who runs it.
        by: String,
        /// The time that it runs for.
        fire: Timestamp,
        /// When others may take it, unless the lease is renewed.
        until: Timestamp,
    },
    /// It is due, and nobody has taken it yet.
    Due,
    /// It waits for its next fire.
    Waits {
        /// When something happens next; `None` when nothing will.
        until: Option<Timestamp>,
    },
    /// It waits to be tried again after a failure.
    Retries {
        /// When.
        at: Timestamp,
    },
    /// Somebody has paused it.
    Paused {
        /// Since when.
        since: Timestamp,
        /// Why.
        reason: String,
    },
    /// Its scheduler does not register it any more.
    Archived {
        /// Since when.
        since: Timestamp,
    },
    /// Its row is blocked.
    Blocked {
        /// Why.
        reason: String,
    },
    /// Its record, or its times, cannot be read.
    Broken {
        /// Why not.
        reason: String,
    },
}

/// A task, and what it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskView {
    /// Its record.
    #[serde(flatten)]
    pub record: TaskRecord,
    /// The zone of its times.
    pub zone: String,
    /// The name of its scheduler.
    pub scheduler: String,
    /// What it does, in a word: a function, or which workflow it starts.
    pub action: String,
    /// What it does at the moment.
    pub doing: Doing,
    /// Its next fire on the timetable.
    pub next: Option<Timestamp>,
    /// Runs that ended.
    pub runs: u64,
    /// Those of them that failed.
    pub failures: u64,
    /// Fires that were passed over.
    pub skipped: u64,
    /// Fires that run or wait beside each other.
    pub open: usize,
}

impl TaskView {
    pub(super) fn of(document: &Document, row: Option<&WorkRow>, now: Timestamp) -> Self {
        match document.value.parse::<Record>() {
            Ok(record) => Self::read(record, row, now),
            Err(error) => Self::broken(document, &error),
        }
    }

    fn read(record: Record, row: Option<&WorkRow>, now: Timestamp) -> Self {
        let (next, doing) = match record.timetable() {
            Ok(timetable) => {
                let mut progress = record.progress.clone();
                progress.look(now);
                let wake = change::wake(&Record { running: None, ..record.clone() }, &timetable, now);
                let open = record.archived.is_none() && record.paused.is_none();
                (progress.next(&timetable).filter(|_| open), doing(&record, row, wake, now))
            }
            Err(error) => (None, Doing::Broken { reason: error.to_string() }),
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

    fn broken(document: &Document, error: &InvalidInput) -> Self {
        let name = match document.key.args().into_iter().next() {
            Some(crate::key::Arg::Str(name)) => name,
            _ => document.key.to_string(),
        };
        let record = TaskRecord {
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
            doing: Doing::Broken { reason: error.to_string() },
            next: None,
            runs: 0,
            failures: 0,
            skipped: 0,
            open: 0,
        }
    }
}

fn doing(record: &Record, row: Option<&WorkRow>, wake: Option<Timestamp>, now: Timestamp) -> Doing {
    if let (Some(begun), Some(lease)) = (&record.running, row.and_then(|row| row.lease.as_ref())) {
        let by = record.task.scheduler_identifier.clone().unwrap_or_else(|| lease.owner.to_string());
        return Doing::Runs { by, fire: begun.fire, until: lease.until };
    }
    if let Some(since) = record.archived {
        return Doing::Archived { since };
    }
    if let Some(blocked) = row.and_then(|row| row.blocked.as_ref()) {
        return Doing::Blocked { reason: blocked.reason.clone() };
    }
    match (&record.paused, wake, record.task.pending_retry_until) {
        (_, Some(wake), _) if wake <= now => Doing::Due,
        (Some(paused), ..) => Doing::Paused { since: paused.since, reason: paused.reason.clone() },
        (None, Some(wake), Some(retry)) if wake == retry => Doing::Retries { at: retry },
        (None, wake, _) => Doing::Waits { until: wake },
    }
}
