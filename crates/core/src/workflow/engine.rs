//! The engine of workflows: drives one run per grant, within the limits of its queue.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::Instrument as _;

use super::ctx::Ctx;
use super::driver::{ActivationResult, ENTRIES, drive};
use super::error::WorkflowError;
use super::keys;
use super::queue::Queue;
use super::queue_poller::QueuePoller;
use super::retention::Retention;
use super::worker::WorkerStats;
use crate::clock::{ManualClock, Timestamp};
use crate::error::InvalidInput;
use crate::failure::Failure;
use crate::id::{QueueName, StreamVersion};
use crate::key::Key;
use crate::lease::NEVER;
use crate::payload::Payload;
use crate::process;
use crate::store::limits::CLAIM_EVENTS;
use crate::store::{Grant, StoreError};
use crate::telemetry::{Count, RUNS, STEPS, WORKFLOW, WORKFLOW_RUN};
use crate::worker::idle::MIN_POLL_DELAY;
use crate::worker::{ClaimSpec, Engine, LeasedWork, Metered, Poll, Worker, WorkerOptions};

/// The longest delay after hints that led to no run: most of them come from steps that this process has recorded.
const MAX_HINT_DELAY: Duration = Duration::from_millis(16);

/// The output of a workflow's future.
pub(super) type Output = Result<Payload, Failure>;
/// The future of a workflow.
pub(super) type RunFuture = Pin<Box<dyn Future<Output = Output> + Send>>;
/// The function that begins a workflow.
pub(super) type Begin = dyn Fn(Ctx, &Payload) -> Result<RunFuture, InvalidInput> + Send + Sync;

/// A workflow that a worker has registered.
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

/// The options of a worker for workflows.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) worker: WorkerOptions,
    pub(super) queues: Vec<Queue>,
    /// Shorter waits do not release the run.
    pub(super) linger: Duration,
    pub(super) skip: Option<Arc<ManualClock>>,
    pub(super) retention: Option<Retention>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            worker: WorkerOptions { concurrency: 64, ..WorkerOptions::default() },
            queues: vec![Queue::new(keys::DEFAULT_QUEUE)],
            linger: Duration::from_millis(50),
            skip: None,
            retention: None,
        }
    }
}

/// The counters of one process.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) activations: Count,
    pub(super) steps: Count,
    pub(super) replayed: Count,
    pub(super) ended: Count,
    pub(super) parked: Count,
    pub(super) lost: Count,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            activations: Count::of(RUNS, "started"),
            steps: Count::of(STEPS, "executed"),
            replayed: Count::of(STEPS, "replayed"),
            ended: Count::of(RUNS, "finished"),
            parked: Count::of(RUNS, "backoff"),
            lost: Count::of(RUNS, "lost"),
        }
    }
}

/// The engine of a [`Worker`](super::Worker).
#[derive(Debug)]
pub struct WorkflowEngine {
    pub(super) worker: Arc<Worker>,
    pub(super) options: Options,
    pub(super) definitions: BTreeMap<String, Arc<Definition>>,
    pub(super) counters: Counters,
    pub(super) unknown: Unknown,
    queues: tokio::sync::Mutex<Queues>,
}

/// The queues of a worker, with their limits as last read.
#[derive(Debug)]
struct Queues {
    lines: Vec<QueuePoller>,
    /// When the limits must be read again.
    stale: Instant,
}

impl WorkflowEngine {
    pub(super) fn new(
        worker: Arc<Worker>,
        options: Options,
        definitions: BTreeMap<String, Arc<Definition>>,
    ) -> Self {
        let lines = options.queues.iter().map(|queue| QueuePoller::new(&worker, queue.name())).collect();
        let queues = tokio::sync::Mutex::new(Queues { lines, stale: process::now() });
        let (counters, unknown) = Default::default();
        Self { worker, options, definitions, counters, unknown, queues }
    }

    /// Returns a claim on lanes of runs.
    pub(super) fn claim_of(&self, lanes: Vec<QueueName>) -> ClaimSpec {
        ClaimSpec { queues: lanes, lease_ttl: self.worker.options.lease_ttl, events: ENTRIES }
    }
}

impl Metered for WorkflowEngine {
    type Stats = WorkerStats;

    fn stats(&self) -> WorkerStats {
        let Counters { activations, steps, replayed, ended, parked, lost } = &self.counters;
        WorkerStats {
            activations: activations.get(),
            steps: steps.get(),
            replayed: replayed.get(),
            ended: ended.get(),
            parked: parked.get(),
            lost: lost.get(),
            active: self.worker.active(),
        }
    }
}

impl Engine for WorkflowEngine {
    const NAME: &'static str = "workflow";

    fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    /// Claims from all queues: those without limits together, the others one by one.
    async fn poll(&self, poll: &mut Poll<'_, Self>) -> Result<(), StoreError> {
        let mut queues = self.queues.lock().await;
        if process::now() >= queues.stale {
            for line in &mut queues.lines {
                let refreshed = line.refresh(self).await;
                only_of(line.queue(), refreshed)?;
            }
            queues.stale = process::now() + self.worker.options.poll_interval;
        }
        let unlimited = queues.lines.iter().filter(|line| !line.limits.any());
        let lanes = unlimited.flat_map(QueuePoller::queue_names).cloned().collect();
        poll.claim(self.claim_of(lanes), usize::MAX, || ()).await?;
        for line in queues.lines.iter_mut().filter(|line| line.limits.any()) {
            if poll.free() == 0 {
                // This worker cannot start a run; another one may.
                line.seats.hand_back().await;
                continue;
            }
            // A changed limit holds from the next claim on.
            let refreshed = line.refresh(self).await;
            if only_of(line.queue(), refreshed)?.is_none() {
                continue;
            }
            let claimed = line.claim(self, poll).await;
            if only_of(line.queue(), claimed)?.unwrap_or_default() == 0 {
                line.seats.hand_back().await;
            }
        }
        Ok(())
    }

    async fn execute(self: Arc<Self>, grant: Grant, work: LeasedWork) {
        self.counters.activations.add(1);
        let run = keys::run_of(&grant.row.key).unwrap_or_default();
        let span =
            tracing::debug_span!(target: WORKFLOW, WORKFLOW_RUN, run, workflow = tracing::field::Empty);
        let left = drive(Arc::clone(&self), grant, work, &span).instrument(span.clone()).await;
        if let ActivationResult::Lost = left {
            self.counters.lost.add(1);
        }
    }

    async fn stopped(&self) {
        for line in &self.queues.lock().await.lines {
            line.seats.hand_back().await;
        }
    }

    fn max_rows(&self) -> usize {
        // Concurrency slots are claimed for the runs of one claim at most.
        CLAIM_EVENTS / ENTRIES
    }

    fn max_hint_delay(&self) -> Duration {
        // With a test clock that skips idle time, only hints delay a run.
        if self.options.skip.is_some() { MIN_POLL_DELAY } else { MAX_HINT_DELAY }
    }

    fn notified_by(&self) -> Vec<Key> {
        self.options.queues.iter().filter_map(|queue| keys::queue(queue.name()).ok()).collect()
    }

    fn skip_to(&self, due: Timestamp, now: Timestamp) -> bool {
        // A run that waits for a signal alone is due at the sentinel. Time that no timer waits for is not skipped.
        let Some(clock) = self.options.skip.as_ref().filter(|_| due < NEVER) else { return false };
        let idle = self.worker.active() == 0;
        if idle && due > now {
            clock.advance(due.since(now));
        }
        idle
    }
}

/// Passes on failures of the store. Other errors concern one queue, and do not stop the others.
fn only_of<T>(queue: &str, done: Result<T, WorkflowError>) -> Result<Option<T>, StoreError> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(WorkflowError::Store(error)) => Err(error),
        Err(error) => {
            tracing::error!(target: WORKFLOW, queue, %error, "queue skipped");
            Ok(None)
        }
    }
}

/// Runs whose workflow this process does not know: the journal version of each, and when this process was first granted it at
/// that version.
#[derive(Debug, Default)]
pub(super) struct Unknown(Mutex<HashMap<Key, (StreamVersion, Timestamp)>>);

impl Unknown {
    /// The shortest and the longest time that a run is left to other workers.
    const WAITS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_mins(5));
    /// The time after which it is likely that no worker knows the workflow. The work row then records the reason.
    const LIKELY: Duration = Duration::from_secs(1);
    /// The number of runs above which all of them are forgotten at once.
    const RUNS: usize = 100_000;

    /// Returns how long the run is left to other workers, and whether it is likely that none knows its workflow. The wait is
    /// a quarter of the time that has passed, which bounds the delay for a busy worker that knows the workflow.
    pub(super) fn wait(&self, run: &Key, next: StreamVersion, now: Timestamp) -> (Duration, bool) {
        let mut runs = self.0.lock();
        if runs.len() > Self::RUNS {
            runs.clear();
        }
        let seen = runs.entry(run.clone()).or_insert((next, now));
        if seen.0 != next {
            // Another worker has continued it since.
            *seen = (next, now);
        }
        let passed = now.since(seen.1);
        let (least, most) = Self::WAITS;
        ((passed / 4).clamp(least, most), passed >= Self::LIKELY)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_run_of_an_unknown_workflow_waits_in_proportion_to_its_age() {
        let (unknown, run) = (Unknown::default(), Key::new("run", ["r"]).unwrap());
        let at = |ms| Timestamp::EPOCH.after(Duration::from_millis(ms));
        let wait = |version, ms| unknown.wait(&run, StreamVersion(version), at(ms));
        assert_eq!(wait(1, 0), (Duration::from_millis(10), false));
        assert_eq!(wait(1, 400), (Duration::from_millis(100), false));
        assert_eq!(wait(1, 8_000), (Duration::from_secs(2), true));
        assert_eq!(wait(1, 80_000_000), (Duration::from_mins(5), true));
        assert_eq!(wait(2, 80_000_001), (Duration::from_millis(10), false), "another worker continued it");
    }
}
