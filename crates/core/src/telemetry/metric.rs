//! Metrics: one table, and the functions that record them. No label holds a key, a run or any other unbounded value.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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
    pub kind: Kind,
    /// The label, if there is one, and its values.
    pub label: Option<(&'static str, &'static str)>,
    /// The help text.
    pub help: &'static str,
}

/// Batches, by result.
pub const COMMITS: &str = "tidelock_commits_total";
/// Duration of a batch, waiting included.
pub const COMMIT_SECONDS: &str = "tidelock_commit_seconds";
/// Batches that were refused, by the code of the refusal.
pub const CONFLICTS: &str = "tidelock_conflicts_total";
/// Claims, by result.
pub const CLAIMS: &str = "tidelock_claims_total";
/// Rows that were granted.
pub const GRANTS: &str = "tidelock_grants_total";
/// Leases that their holders lost, on rows of work and on keys.
pub const LEASES_LOST: &str = "tidelock_leases_lost_total";
/// Time spent waiting for a lock.
pub const LOCK_WAIT_SECONDS: &str = "tidelock_lock_wait_seconds";
/// Events of reactions, by outcome.
pub const REACTION_EVENTS: &str = "tidelock_reaction_events_total";
/// Age of an event when its reaction began.
pub const REACTION_LAG_SECONDS: &str = "tidelock_reaction_lag_seconds";
/// Steps of workflows, by outcome.
pub const STEPS: &str = "tidelock_steps_total";
/// Runs of workflows, by outcome.
pub const RUNS: &str = "tidelock_runs_total";
/// Duration of runs from start to end.
pub const RUN_SECONDS: &str = "tidelock_run_seconds";
/// Runs of scheduled tasks, by outcome.
pub const SCHEDULE_RUNS: &str = "tidelock_schedule_runs_total";
/// Misfires: times of schedules that were passed over.
pub const SCHEDULE_MISFIRES: &str = "tidelock_schedule_misfires_total";
/// Messages of outboxes, by outcome.
pub const DELIVERIES: &str = "tidelock_deliveries_total";

/// All metrics of this process. The server exports the metrics of the store as a whole.
#[rustfmt::skip]
pub const METRICS: &[Metric] = &[
    Metric { name: COMMITS, kind: Kind::Counter, label: Some(("result", "applied, repeated, refused, failed, unknown")), help: "Batches, by how they ended." },
    Metric { name: COMMIT_SECONDS, kind: Kind::Histogram, label: None, help: "How long a batch took, waiting included." },
    Metric { name: CONFLICTS, kind: Kind::Counter, label: Some(("code", "the code of the refusal: TL0201, TL0204, …")), help: "Batches that were refused, by what they met." },
    Metric { name: CLAIMS, kind: Kind::Counter, label: Some(("result", "granted, nothing, failed")), help: "Claims, by what they found." },
    Metric { name: GRANTS, kind: Kind::Counter, label: Some(("kind", "first, again, takeover")), help: "Rows that were granted: fresh, after a failure, and from a holder who was gone." },
    Metric { name: LEASES_LOST, kind: Kind::Counter, label: Some(("reason", "taken, revoked, not_renewed")), help: "Rows and leases that their holder lost." },
    Metric { name: LOCK_WAIT_SECONDS, kind: Kind::Histogram, label: None, help: "How long a lock was waited for by those who got it." },
    Metric { name: REACTION_EVENTS, kind: Kind::Counter, label: Some(("outcome", "routed, handled, failed, deferred, blocked, parked, lost")), help: "Events of reactions, by what became of them." },
    Metric { name: REACTION_LAG_SECONDS, kind: Kind::Histogram, label: None, help: "How long an event had waited when its reaction began." },
    Metric { name: STEPS, kind: Kind::Counter, label: Some(("outcome", "executed, replayed, failed")), help: "Steps of workflows: ended, read from the journal instead of being run again, and attempts that failed." },
    Metric { name: RUNS, kind: Kind::Counter, label: Some(("outcome", "taken_up, ended, put_off, lost")), help: "Runs of workflows, by what a worker did with them." },
    Metric { name: RUN_SECONDS, kind: Kind::Histogram, label: Some(("status", "completed, failed, cancelled")), help: "Duration of runs from start to end, waiting included. A run that continued as new counts from there." },
    Metric { name: SCHEDULE_RUNS, kind: Kind::Counter, label: Some(("outcome", "done, failed, lost, quarantined")), help: "Runs of scheduled tasks, by how they ended." },
    Metric { name: SCHEDULE_MISFIRES, kind: Kind::Counter, label: None, help: "Firings of schedules that were skipped, because no scheduler ran or a run was in flight." },
    Metric { name: DELIVERIES, kind: Kind::Counter, label: Some(("outcome", "delivered, failed, blocked")), help: "Messages of outboxes, by what became of them." },
];

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

    /// Creates a counter that is exported as one outcome of a metric.
    pub(crate) const fn of(metric: &'static str, outcome: &'static str) -> Self {
        Self { here: AtomicU64::new(0), told: Some((metric, outcome)) }
    }

    pub(crate) fn add(&self, more: usize) {
        self.here.fetch_add(more as u64, Ordering::Relaxed);
        if let Some((metric, outcome)) = self.told {
            count(metric, "outcome", outcome, more);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.here.load(Ordering::Relaxed)
    }
}

/// Increments a metric with a label.
pub(crate) fn count(metric: &'static str, label: &'static str, value: &'static str, more: usize) {
    metrics::counter!(metric, label => value).increment(more as u64);
}

/// Increments a metric without a label.
pub(crate) fn total(metric: &'static str, more: u64) {
    metrics::counter!(metric).increment(more);
}

/// Records a duration in a metric with a label.
pub(crate) fn seconds_by(metric: &'static str, label: &'static str, value: &'static str, time: Duration) {
    metrics::histogram!(metric, label => value).record(time.as_secs_f64());
}

/// Records a duration in a metric without a label.
pub(crate) fn seconds(metric: &'static str, time: Duration) {
    metrics::histogram!(metric).record(time.as_secs_f64());
}
