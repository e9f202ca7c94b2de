//! What the tasks of a scheduler share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::task::Task;
use crate::id::{Lane, Owner};
use crate::lease::{Claims, working};
use crate::store::{SharedStore, StoreError};
use crate::telemetry::SCHEDULE;

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
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) runs: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) quarantined: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
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
