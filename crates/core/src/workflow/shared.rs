//! What the tasks of a worker share.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::ctx::Ctx;
use super::failure::Failure;
use super::queue::Queue;
use super::retention::Retention;
use crate::clock::ManualClock;
use crate::error::InvalidInput;
use crate::id::Owner;
use crate::key::Key;
use crate::lease::{Claims, working};
use crate::payload::Payload;
use crate::store::{SharedStore, StoreError};
use crate::telemetry::{Count, RUNS, STEPS};

/// What a workflow's future brings.
pub(super) type Output = Result<Payload, Failure>;
/// The future of a workflow.
pub(super) type RunFuture = Pin<Box<dyn Future<Output = Output> + Send>>;
/// How a workflow is begun.
pub(super) type Begin = dyn Fn(Ctx, &Payload) -> Result<RunFuture, InvalidInput> + Send + Sync;

/// A workflow that a worker knows.
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) signals: Vec<String>,
    pub(super) begin: Box<Begin>,
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How a worker works.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) owner: Option<Owner>,
    pub(super) queues: Vec<Queue>,
    pub(super) concurrency: usize,
    pub(super) ttl: Duration,
    pub(super) grace: Duration,
    pub(super) look_again: Duration,
    /// Waits that are shorter are sat out in memory.
    pub(super) linger: Duration,
    pub(super) skip: Option<Arc<ManualClock>>,
    pub(super) retention: Option<Retention>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            owner: None,
            queues: vec![Queue::new(super::names::DEFAULT_QUEUE)],
            concurrency: 64,
            ttl: Duration::from_secs(30),
            grace: Duration::from_secs(10),
            look_again: Duration::from_secs(1),
            linger: Duration::from_millis(50),
            skip: None,
            retention: None,
        }
    }
}

/// What was done so far, in one process.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) activations: Count,
    pub(super) steps: Count,
    pub(super) replayed: Count,
    pub(super) ended: Count,
    pub(super) parked: Count,
    pub(super) lost: Count,
    pub(super) active: AtomicUsize,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            activations: Count::of(RUNS, "taken_up"),
            steps: Count::of(STEPS, "executed"),
            replayed: Count::of(STEPS, "replayed"),
            ended: Count::of(RUNS, "ended"),
            parked: Count::of(RUNS, "put_off"),
            lost: Count::of(RUNS, "lost"),
            active: AtomicUsize::new(0),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: SharedStore,
    pub(super) owner: Owner,
    pub(super) options: Options,
    pub(super) definitions: BTreeMap<String, Arc<Definition>>,
    /// Nothing new is begun, and runs are handed back between steps.
    pub(super) stopping: CancellationToken,
    /// Steps are broken off.
    pub(super) cut: CancellationToken,
    /// Everything is broken off, as a crash would.
    pub(super) killed: CancellationToken,
    pub(super) claims: Claims,
    pub(super) counters: Counters,
    pub(super) unknown: Unknown,
}

/// Runs whose workflow this process does not know, and how often it got each of them.
#[derive(Debug, Default)]
pub(super) struct Unknown(Mutex<HashMap<Key, u32>>);

impl Unknown {
    /// So often a run is left to others before it is put off with a reason.
    const TRIES: u32 = 8;
    /// The first wait. It doubles with every try.
    const WAIT: Duration = Duration::from_millis(10);
    /// More runs than this are forgotten all at once.
    const RUNS: usize = 10_000;

    /// How long others have the chance to take a run. `None` when it is not likely that anybody knows its workflow.
    pub(super) fn wait(&self, run: &Key) -> Option<Duration> {
        let mut runs = self.0.lock();
        if runs.len() > Self::RUNS {
            runs.clear();
        }
        let tries = runs.entry(run.clone()).or_default();
        let wait = Self::WAIT.saturating_mul(1 << *tries);
        *tries += 1;
        if *tries < Self::TRIES {
            return Some(wait);
        }
        runs.remove(run);
        None
    }
}

impl Shared {
    /// Waits after a failure of the store.
    pub(super) async fn recover(&self, what: &str, error: &StoreError) {
        tracing::warn!(target: crate::telemetry::WORKFLOW, %error, "{what}; it is tried again");
        working::pause(working::after(error, self.options.look_again), &self.stopping).await;
    }
}
