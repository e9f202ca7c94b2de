//! The document of a task: its registration, how far it is, and how its last runs ended.
//!
//! It is written with the version that was read, so that a scheduler and an operator never overwrite each other.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::fire::Kind;
use crate::clock::{Timestamp, iso, millis};
use crate::model::cron::{CatchUp, CronError, Gap, Overlap, Progress, Repeat, Span, Timetable, Zone};
use crate::model::retry::RetryPolicy;

/// What is kept of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskRecord {
    /// Its name.
    pub name: String,
    /// Its times: `30 2 * * *`, `@every 10m` or `@at 2026-03-29T01:00:00Z`.
    pub cron_expression: String,
    /// How long after the end of a failure it is tried again, in milliseconds.
    pub retry_delay_ms: u64,
    /// When a run last ended well.
    #[serde(default, with = "iso", skip_serializing_if = "Option::is_none")]
    pub last_success_time: Option<Timestamp>,
    /// When a run last failed.
    #[serde(default, with = "iso", skip_serializing_if = "Option::is_none")]
    pub last_failure_time: Option<Timestamp>,
    /// When a run last began.
    #[serde(default, with = "iso", skip_serializing_if = "Option::is_none")]
    pub last_attempt_time: Option<Timestamp>,
    /// When a run that failed or was cut short is tried again, the earliest of them.
    #[serde(default, with = "iso", skip_serializing_if = "Option::is_none")]
    pub pending_retry_until: Option<Timestamp>,
    /// Who began the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_identifier: Option<String>,
}

/// The policies of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    pub(super) zone: String,
    pub(super) gap: Gap,
    pub(super) repeat: Repeat,
    pub(super) catch_up: CatchUp,
    pub(super) overlap: Overlap,
    #[serde(rename = "spreadMs", with = "millis")]
    pub(super) spread: Duration,
    #[serde(rename = "jitterMs", with = "millis")]
    pub(super) jitter: Duration,
    pub(super) max_attempts: u32,
    pub(super) retry_factor: f64,
    #[serde(rename = "retryCapMs", with = "millis")]
    pub(super) retry_cap: Duration,
    /// Entries of the history.
    pub(super) keep: u32,
}

/// A run of which the end is not recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begun {
    pub(super) fire: Timestamp,
    pub(super) kind: Kind,
    pub(super) attempt: u32,
    /// How many attempts of this fire were lost with their process, one after the other.
    #[serde(default)]
    pub(super) lost: u32,
    pub(super) began: Timestamp,
}

/// A run that failed or was cut short, and is to be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Retrying {
    pub(super) fire: Timestamp,
    pub(super) kind: Kind,
    pub(super) attempt: u32,
    pub(super) at: Timestamp,
}

/// Since when and why a task does not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Paused {
    pub(super) since: Timestamp,
    pub(super) reason: String,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    #[serde(flatten)]
    pub(super) task: TaskRecord,
    pub(super) spec: Spec,
    pub(super) scheduler: String,
    /// What it does, for people.
    pub(super) action: String,
    pub(super) anchor: Timestamp,
    pub(super) progress: Progress,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) busy: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) running: Option<Begun>,
    /// Of the fires of the timetable at most one, because a newer one takes its place; of those that somebody asked for, all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) retrying: Vec<Retrying>,
    /// When somebody asked for a run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) asked: Vec<Timestamp>,
    /// When somebody last did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_asked: Option<Timestamp>,
    /// Times whose fires somebody asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) backfill: Vec<Span>,
    /// Fires that have rows of their own, because they run beside others.
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
    /// When the task fires.
    pub(super) fn timetable(&self) -> Result<Timetable, CronError> {
        let Spec { zone, gap, repeat, spread, jitter, .. } = &self.spec;
        let mut timetable =
            Timetable::new(&self.task.name, self.task.cron_expression.parse()?, Zone::parse(zone)?);
        (timetable.gap, timetable.repeat, timetable.anchor) = (*gap, *repeat, self.anchor);
        (timetable.spread, timetable.jitter) = (*spread, *jitter);
        Ok(timetable)
    }

    /// How failures are tried again.
    pub(super) fn retry(&self) -> RetryPolicy {
        RetryPolicy {
            max_attempts: self.spec.max_attempts,
            base: Duration::from_millis(self.task.retry_delay_ms),
            factor: self.spec.retry_factor,
            cap: self.spec.retry_cap,
        }
    }
}
