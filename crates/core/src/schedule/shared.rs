//! What the tasks of a scheduler share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::task::Task;
use crate::id::{Lane, Owner};
use crate::lease::{Claims, working};
use crate::store::{SharedStore, StoreError};
use crate::telemetry::{Count, SCHEDULE, SCHEDULE_RUNS};

/// How a scheduler works.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) name: String,
    pub(super) owner: Option<Owner>,
    pub(super) concurrency: usize,
    pub(super) ttl: Duration,
    pub(super) grace: Duration,
    pub(super) look_again: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: super::names::DEFAULT_SCHEDULER.to_owned(),
            owner: None,
            concurrency: 16,
            ttl: Duration::from_secs(30),
            grace: Duration::from_secs(10),
            look_again: Duration::from_secs(1),
        }
    }
}

/// What was done so far, in one process.
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

/// See the module.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: SharedStore,
    pub(super) owner: Owner,
    pub(super) lane: Lane,
    pub(super) options: Options,
    pub(super) tasks: BTreeMap<String, Arc<Task>>,
    /// Nothing new is begun.
    pub(super) stopping: CancellationToken,
    /// Runs are broken off.
    pub(super) cut: CancellationToken,
    /// Everything is broken off, as a crash would.
    pub(super) killed: CancellationToken,
    pub(super) claims: Claims,
    pub(super) counters: Counters,
}

impl Shared {
    /// Waits after a failure of the store.
    pub(super) async fn recover(&self, what: &str, error: &StoreError) {
        tracing::warn!(target: SCHEDULE, %error, "{what}; it is tried again");
        working::pause(working::after(error, self.options.look_again), &self.stopping).await;
    }
}
