//! The engine of a scheduler: runs the task of each row that is due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::definition::Schedule;
use super::execution::Job;
use super::reconcile;
use super::scheduler::SchedulerStats;
use crate::clock::Timestamp;
use crate::id::QueueName;
use crate::process;
use crate::store::Grant;
use crate::telemetry::{Count, SCHEDULE_RUNS};
use crate::worker::{ClaimSpec, Engine, LeasedWork, Metered, Worker};

/// The longest delay after hints that led to no run.
const MAX_HINT_DELAY: Duration = Duration::from_millis(32);
/// The interval at which all tasks are reconciled.
const RECONCILE: Duration = Duration::from_secs(30);

/// The engine of a [`Scheduler`](super::Scheduler): one run of a task per grant.
#[derive(Debug)]
pub struct ScheduleEngine {
    pub(super) worker: Arc<Worker>,
    pub(super) name: String,
    pub(super) queue: QueueName,
    pub(super) tasks: BTreeMap<String, Arc<Schedule>>,
    pub(super) counters: Counters,
    pub(super) reconciled: Mutex<Reconciled>,
}

/// The last reconciliation, and the latest time that the store's clock has shown.
#[derive(Debug)]
pub(super) struct Reconciled {
    at: Instant,
    shown: Timestamp,
}

impl Reconciled {
    pub(super) fn new() -> Self {
        Self { at: process::now(), shown: Timestamp::from_micros(i64::MIN) }
    }

    /// Returns whether to reconcile: after the interval, and when the clock has gone back.
    fn is_due(&mut self, now: Timestamp) -> bool {
        let went_back = now < self.shown;
        self.shown = now;
        let due = went_back || process::elapsed(self.at) >= RECONCILE;
        if due {
            self.at = process::now();
        }
        due
    }
}

/// The counters of one process.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) runs: Count,
    pub(super) failures: Count,
    pub(super) lost: Count,
    pub(super) quarantined: Count,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            runs: Count::here(),
            failures: Count::of(SCHEDULE_RUNS, "failed"),
            lost: Count::of(SCHEDULE_RUNS, "lost"),
            quarantined: Count::of(SCHEDULE_RUNS, "quarantined"),
        }
    }
}

impl Metered for ScheduleEngine {
    type Stats = SchedulerStats;

    fn stats(&self) -> SchedulerStats {
        let Counters { runs, failures, lost, quarantined } = &self.counters;
        SchedulerStats {
            runs: runs.get(),
            failures: failures.get(),
            lost: lost.get(),
            quarantined: quarantined.get(),
        }
    }
}

impl Engine for ScheduleEngine {
    const NAME: &'static str = "schedule";

    fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    fn claims(&self) -> Vec<ClaimSpec> {
        let lease_ttl = self.worker.options.lease_ttl;
        vec![ClaimSpec { queues: vec![self.queue.clone()], lease_ttl, events: 0 }]
    }

    async fn execute(self: Arc<Self>, grant: Grant, work: LeasedWork) {
        Job { engine: self, grant, work }.run().await;
    }

    async fn tick(&self, now: Option<Timestamp>) {
        if let Some(now) = now
            && self.reconciled.lock().is_due(now)
        {
            reconcile::reconcile(self).await;
        }
    }

    fn max_hint_delay(&self) -> Duration {
        MAX_HINT_DELAY
    }
}
