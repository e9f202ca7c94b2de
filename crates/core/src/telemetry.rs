//! Telemetry: the names of spans, events and metrics, in one place, so that dashboards can rely on them. It also counts
//! metrics and continues traces across processes.
//!
//! All output goes to the facades [`tracing`] and [`metrics`]. The library installs no subscriber and no recorder.
//! Without them, there is no output.

mod metric;
mod trace;

pub use metric::{
    CLAIMS, COMMIT_SECONDS, COMMITS, CONFLICTS, DELIVERIES, GRANTS, LEASES_LOST, LOCK_WAIT_SECONDS, METRICS,
    Metric, MetricKind, REACTION_AGE_SECONDS, REACTION_EVENTS, RUN_SECONDS, RUNS, SCHEDULE_MISFIRES,
    SCHEDULE_RUNS, STEPS,
};
pub(crate) use metric::{Count, count, seconds, seconds_by, total};
pub use trace::{TraceContext, TracesAlready, trace_with};
pub(crate) use trace::{current_trace, follow};

/// The target of stores.
pub const STORE: &str = "tidelock::store";
/// The target of housekeeping.
pub const HOUSEKEEPING: &str = "tidelock::housekeeping";
/// The target of locks.
pub const LOCK: &str = "tidelock::lock";
/// The span of a wait for a lock, from joining the queue to the end of the wait: fields `term` and `place`.
pub const LOCK_WAIT: &str = "lock.wait";
/// The span of a future that runs under a lock by [`Locks::with`](crate::lock::Locks::with): fields `term` and `place`.
pub const LOCK_HOLD: &str = "lock.hold";
/// The target of workers: polls, executions and lease renewal.
pub const WORKER: &str = "tidelock::worker";
/// The target of state.
pub const STATE: &str = "tidelock::state";
/// The target of aggregates.
pub const EVENTS: &str = "tidelock::events";
/// The span of a command on an aggregate, from loading it to the commit: field `stream`.
pub const EVENTS_EXECUTE: &str = "events.execute";
/// The target of reactions.
pub const REACTIONS: &str = "tidelock::reactions";
/// The span of one run of a handler: fields `reaction`, `key`, `attempt` and `events`. It follows from the commits of
/// its events.
pub const REACTION_RUN: &str = "reaction.run";
/// The target of workflows.
pub const WORKFLOW: &str = "tidelock::workflow";
/// The span of one activation of a run: fields `run` and `workflow`. It follows from the start of the run.
pub const WORKFLOW_RUN: &str = "workflow.run";
/// The span of one attempt of a step, inside the span of its run: fields `step` and `attempt`.
pub const WORKFLOW_STEP: &str = "workflow.step";
/// The target of idempotency keys.
pub const IDEMPOTENCY: &str = "tidelock::idempotency";
/// The target of outboxes.
pub const OUTBOX: &str = "tidelock::outbox";
/// The target of schedules.
pub const SCHEDULE: &str = "tidelock::schedule";
/// The span of one run of a task: fields `task`, `fire` and `attempt`.
pub const SCHEDULE_RUN: &str = "schedule.run";
