//! Metrics: one table, and the functions that record them. No label holds a key, a run or any other unbounded value.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only grows.
    Counter,
    /// A distribution of durations in seconds.
    Histogram,
}

/// A metric: its name, its label with the possible values, and its help text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name.
    pub name: &'static str,
    /// The type.
    pub kind: MetricKind,
    /// The label, if there is one, and its values.
    pub label: Option<(&'static str, &'static str)>,
    /// The help text.
    pub help: &'static str,
}

/// Batches, by result.
pub const COMMITS: &str = "tidelock_commits_total";
/// Duration of a batch, including the time in the queue.
pub const COMMIT_SECONDS: &str = "tidelock_commit_duration_seconds";
/// Rejected batches, by the code of the rejection.
pub const CONFLICTS: &str = "tidelock_conflicts_total";
/// Claims, by result.
pub const CLAIMS: &str = "tidelock_claims_total";
/// Granted rows.
pub const GRANTS: &str = "tidelock_grants_total";
/// Leases that their holders lost, on rows of work and on keys.
pub const LEASES_LOST: &str = "tidelock_leases_lost_total";
/// Time spent waiting for a lock.
pub const LOCK_WAIT_SECONDS: &str = "tidelock_lock_wait_duration_seconds";
/// Events of reactions, by result.
pub const REACTION_EVENTS: &str = "tidelock_reaction_events_total";
/// Age of an event when its reaction began.
pub const REACTION_AGE_SECONDS: &str = "tidelock_reaction_event_age_seconds";
/// Steps of workflows, by result.
pub const STEPS: &str = "tidelock_steps_total";
/// Activations of runs, by result.
pub const RUNS: &str = "tidelock_run_activations_total";
/// Duration of runs from start to end.
pub const RUN_SECONDS: &str = "tidelock_run_duration_seconds";
/// Runs of schedules, by result.
pub const SCHEDULE_RUNS: &str = "tidelock_schedule_runs_total";
/// Misfires: skipped ticks of schedules.
pub const SCHEDULE_MISFIRES: &str = "tidelock_schedule_misfires_total";
/// Messages of outboxes, by result.
pub const DELIVERIES: &str = "tidelock_deliveries_total";

/// All metrics of this process. The server exports the metrics of the store as a whole.
#[rustfmt::skip]
pub const METRICS: &[Metric] = &[
    Metric { name: COMMITS, kind: MetricKind::Counter, label: Some((RESULT, "applied, repeated, rejected, failed, unknown")), help: "Batches, by result." },
    Metric { name: COMMIT_SECONDS, kind: MetricKind::Histogram, label: None, help: "Duration of a batch, including the time in the queue." },
    Metric { name: CONFLICTS, kind: MetricKind::Counter, label: Some((RESULT, "the code of the rejection: TL0201, TL0204, …")), help: "Rejected batches, by code." },
    Metric { name: CLAIMS, kind: MetricKind::Counter, label: Some((RESULT, "granted, empty, failed")), help: "Claims, by result." },
    Metric { name: GRANTS, kind: MetricKind::Counter, label: Some((RESULT, "initial, retry, takeover")), help: "Granted rows: the first attempt, a retry after a failure, or a takeover after an expired lease." },
    Metric { name: LEASES_LOST, kind: MetricKind::Counter, label: Some((RESULT, "taken_over, revoked, expired")), help: "Leases that their holder lost, on rows of work and on keys." },
    Metric { name: LOCK_WAIT_SECONDS, kind: MetricKind::Histogram, label: None, help: "Time spent waiting for a lock that was acquired." },
    Metric { name: REACTION_EVENTS, kind: MetricKind::Counter, label: Some((RESULT, "routed, handled, failed, deferred, blocked, parked, lost")), help: "Events of reactions, by result." },
    Metric { name: REACTION_AGE_SECONDS, kind: MetricKind::Histogram, label: None, help: "Age of an event when its reaction began." },
    Metric { name: STEPS, kind: MetricKind::Counter, label: Some((RESULT, "executed, replayed, failed")), help: "Steps of workflows: executed, replayed from the journal, or failed attempts." },
    Metric { name: RUNS, kind: MetricKind::Counter, label: Some((RESULT, "started, finished, backoff, lost")), help: "Activations of runs by workers: started, ended with the run, suspended with backoff, or lost with the lease." },
    Metric { name: RUN_SECONDS, kind: MetricKind::Histogram, label: Some((RESULT, "completed, failed, cancelled")), help: "Duration of runs from start to end, including waits. A run that continued as new counts from there." },
    Metric { name: SCHEDULE_RUNS, kind: MetricKind::Counter, label: Some((RESULT, "succeeded, failed, lost, quarantined")), help: "Runs of schedules, by result." },
    Metric { name: SCHEDULE_MISFIRES, kind: MetricKind::Counter, label: None, help: "Skipped ticks of schedules, because no worker ran or a run was in flight." },
    Metric { name: DELIVERIES, kind: MetricKind::Counter, label: Some((RESULT, "delivered, failed, blocked")), help: "Messages of outboxes, by result." },
];

/// The label of every metric that has one.
const RESULT: &str = "result";

/// A counter that is readable in this process and, optionally, exported as a metric.
#[derive(Debug)]
pub(crate) struct Count {
    here: AtomicU64,
    /// The metric and the value of its label; `None` for a counter that is not exported.
    told: Option<(&'static str, &'static str)>,
}

impl Count {
    /// Creates a counter that is not exported.
    pub(crate) const fn here() -> Self {
        Self { here: AtomicU64::new(0), told: None }
    }

    /// Creates a counter that is exported as one result of a metric.
    pub(crate) const fn of(metric: &'static str, result: &'static str) -> Self {
        Self { here: AtomicU64::new(0), told: Some((metric, result)) }
    }

    pub(crate) fn add(&self, more: usize) {
        self.here.fetch_add(more as u64, Ordering::Relaxed);
        if let Some((metric, result)) = self.told {
            count(metric, result, more);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.here.load(Ordering::Relaxed)
    }
}

/// Increments a metric by result.
pub(crate) fn count(metric: &'static str, result: &'static str, more: usize) {
    metrics::counter!(metric, RESULT => result).increment(more as u64);
}

/// Increments a metric without a label.
pub(crate) fn total(metric: &'static str, more: u64) {
    metrics::counter!(metric).increment(more);
}

/// Records a duration in a metric by result.
pub(crate) fn seconds_by(metric: &'static str, result: &'static str, time: Duration) {
    metrics::histogram!(metric, RESULT => result).record(time.as_secs_f64());
}

/// Records a duration in a metric without a label.
pub(crate) fn seconds(metric: &'static str, time: Duration) {
    metrics::histogram!(metric).record(time.as_secs_f64());
}
