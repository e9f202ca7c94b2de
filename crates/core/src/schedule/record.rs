//! Document of a task: its registration, its progress, and its last runs.
//!
//! Every write expects the version that was read (optimistic concurrency), so a scheduler and an operator never overwrite
//! each other.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::tick::TickKind;
use crate::clock::{Timestamp, millis};
use crate::model::cron::{CatchUp, CronError, DstGap, DstOverlap, Overlap, Progress, Recurrence, Span, Zone};
use crate::model::retry::RetryPolicy;

/// The stored state of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleRecord {
    /// The name of the task.
    pub name: String,
    /// The times of the task: `30 2 * * *`, `@every 10m` or `@at 2026-03-29T01:00:00Z`.
    pub cron_expression: String,
    /// The delay between the end of a failed run and its retry, in milliseconds.
    pub retry_delay_ms: u64,
    /// The time of the last successful end of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_time: Option<Timestamp>,
    /// The time of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure_time: Option<Timestamp>,
    /// The time of the last start of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt_time: Option<Timestamp>,
    /// The earliest retry of a run that failed or was cut short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_retry_until: Option<Timestamp>,
    /// The process that started the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_identifier: Option<String>,
}

/// The policies of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Spec {
    pub(super) zone: String,
    pub(super) gap: DstGap,
    pub(super) repeat: DstOverlap,
    pub(super) catch_up: CatchUp,
    pub(super) overlap: Overlap,
    #[serde(rename = "spread_ms", with = "millis")]
    pub(super) spread: Duration,
    #[serde(rename = "jitter_ms", with = "millis")]
    pub(super) jitter: Duration,
    pub(super) max_attempts: u32,
    pub(super) retry_factor: f64,
    #[serde(rename = "retry_cap_ms", with = "millis")]
    pub(super) retry_cap: Duration,
    /// The number of history entries to keep.
    pub(super) keep: u32,
}

/// A run whose end is not recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begun {
    pub(super) fire: Timestamp,
    pub(super) kind: TickKind,
    pub(super) attempt: u32,
    /// The number of consecutive attempts of this fire that were lost with their process.
    #[serde(default)]
    pub(super) lost: u32,
    pub(super) began: Timestamp,
}

/// A run that failed or was cut short and waits for its retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Retrying {
    pub(super) fire: Timestamp,
    pub(super) kind: TickKind,
    pub(super) attempt: u32,
    pub(super) at: Timestamp,
}

/// The start and the reason of a pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Paused {
    pub(super) since: Timestamp,
    pub(super) reason: String,
}

/// The whole document of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(flatten)]
    pub(super) task: ScheduleRecord,
    pub(super) spec: Spec,
    pub(super) scheduler: String,
    /// A description of the action.
    pub(super) action: String,
    pub(super) anchor: Timestamp,
    pub(super) progress: Progress,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) busy: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) running: Option<Begun>,
    /// The pending retries. There is at most one for the fires of the timetable, because a newer fire supersedes it. All
    /// requested runs are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) retrying: Vec<Retrying>,
    /// The times of requested runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) asked: Vec<Timestamp>,
    /// The time of the last request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_asked: Option<Timestamp>,
    /// The periods of requested backfills.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) backfill: Vec<Span>,
    /// The concurrent fires, which have separate rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) open: Vec<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) paused: Option<Paused>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) archived: Option<Timestamp>,
    #[serde(default)]
    pub(super) runs: u64,
    #[serde(default)]
    pub(super) failures: u64,
    #[serde(default)]
    pub(super) skipped: u64,
}

impl Record {
    /// Returns the timetable of the task.
    pub(super) fn timetable(&self) -> Result<Recurrence, CronError> {
        let Spec { zone, gap, repeat, spread, jitter, .. } = &self.spec;
        let mut timetable =
            Recurrence::new(&self.task.name, self.task.cron_expression.parse()?, Zone::parse(zone)?);
        (timetable.gap, timetable.repeat, timetable.anchor) = (*gap, *repeat, self.anchor);
        (timetable.spread, timetable.jitter) = (*spread, *jitter);
        Ok(timetable)
    }

    /// Returns the retry policy of the task.
    pub(super) fn retry(&self) -> RetryPolicy {
        RetryPolicy {
            max_attempts: self.spec.max_attempts,
            base: Duration::from_millis(self.task.retry_delay_ms),
            factor: self.spec.retry_factor,
            cap: self.spec.retry_cap,
        }
    }
}
