//! The builder of a worker for workflows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ctx::Ctx;
use super::definition::Workflow;
use super::driver::ENTRIES;
use super::engine::{Begin, Definition, Options, Output, RunFuture, WorkflowEngine};
use super::error::WorkflowError;
use super::journal_entry::RegisteredWorkflow;
use super::keys;
use super::queue::{self, Queue};
use super::results::RESULT_BYTES;
use super::retention::{Retention, retiring};
use super::start::INPUT_DEPTH;
use crate::clock::ManualClock;
use crate::error::InvalidInput;
use crate::failure::Failure;
use crate::lease::LeaseError;
use crate::model::limits::{depth, within};
use crate::payload::Payload;
use crate::process;
use crate::store::{Batch, Claim, ClaimDenied, Expect, SharedStore, WorkFilter};
use crate::worker::{self, Active, Engine as _, LeasedWork, WorkerHandle, worker_setters};

/// An async function or closure that can be a workflow: `async fn(&Ctx, I) -> Result<O, Failure>` whose future is `Send`. The
/// blanket implementation covers all such functions, so users never implement it. A closure is cloned for each activation, so
/// its captures should be cheap to clone.
pub trait WorkflowFn<'a, I, O>: Clone + Send + Sync {
    /// The future of the workflow.
    type Future: Future<Output = Result<O, Failure>> + Send + 'a;

    /// Begins the workflow.
    fn begin(self, cx: &'a Ctx, input: I) -> Self::Future;
}

impl<'a, I, O, F, Fut> WorkflowFn<'a, I, O> for F
where
    F: FnOnce(&'a Ctx, I) -> Fut + Clone + Send + Sync,
    Fut: Future<Output = Result<O, Failure>> + Send + 'a,
{
    type Future = Fut;

    fn begin(self, cx: &'a Ctx, input: I) -> Fut {
        self(cx, input)
    }
}

/// A builder for a worker that drives runs.
#[must_use = "nothing runs before start() is awaited"]
#[derive(Debug)]
pub struct Worker {
    store: SharedStore,
    definitions: Vec<Definition>,
    options: Options,
}

impl Worker {
    /// Creates a builder for a worker on this store.
    pub fn new(store: SharedStore) -> Self {
        Self { store, definitions: Vec::new(), options: Options::default() }
    }

    /// Registers the code of a workflow.
    pub fn register<I, O, F>(mut self, workflow: Workflow<I, O>, code: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        F: for<'a> WorkflowFn<'a, I, O> + 'static,
    {
        let (name, signals) = (workflow.name().to_owned(), workflow.signals());
        self.definitions.push(Definition { name, signals, begin: begin_of(code) });
        self
    }

    /// Sets the queues of the worker. The default is `default` alone. A [`Queue`] with limits sets them for all workers, in all
    /// processes; one without limits follows those in the store.
    pub fn queues<Q: Into<Queue>>(mut self, queues: impl IntoIterator<Item = Q>) -> Self {
        self.options.queues = queues.into_iter().map(Into::into).collect();
        self
    }

    worker_setters!();

    /// Sets how long ended runs are kept. By default they are never removed. One of the workers with this setting removes them.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.options.retention = Some(retention);
        self
    }

    /// Skips idle time, for tests on a store with this clock. When everything waits, the clock advances to the next due time, so
    /// that a workflow of a month ends in milliseconds.
    pub fn skip_time(mut self, clock: Arc<ManualClock>) -> Self {
        self.options.skip = Some(clock);
        self.options.linger = Duration::ZERO;
        self
    }

    /// Starts the worker. Once this returns, its workflows are visible to clients of the store.
    ///
    /// # Errors
    /// [`WorkflowError`] when two workflows have one name, a name is not valid, there is no runtime, or the store fails.
    pub async fn start(self) -> Result<WorkerHandle<WorkflowEngine>, WorkflowError> {
        let Self { store, definitions, options } = self;
        tokio::runtime::Handle::try_current().map_err(|_| WorkflowError::NoRuntime)?;
        let mut known = BTreeMap::new();
        let mut notes = Batch::new();
        for definition in definitions {
            let name = definition.name.clone();
            keys::check("the name of a workflow", &name, keys::MAX_NAME_BYTES)?;
            let queue = options.queues.first().map(|queue| queue.name().to_owned()).unwrap_or_default();
            let note = RegisteredWorkflow { queue, signals: definition.signals.clone() };
            notes = notes.put(&keys::workflow(&name)?, Expect::Any, Payload::of(&note)?);
            if known.insert(name.clone(), Arc::new(definition)).is_some() {
                return Err(WorkflowError::Twice { workflow: name });
            }
        }
        if options.queues.is_empty() {
            return Err(InvalidInput::name(
                "the queues of a worker",
                "",
                "there is none; name one, or leave them out",
            )
            .into());
        }
        for queue in &options.queues {
            keys::check("the name of a queue", queue.name(), keys::MAX_NAME_BYTES)?;
            keys::queue_name(queue.name())?;
            if let Some(limits) = queue.declared {
                notes = notes.and(queue::declare(&store, queue.name(), limits).await?);
            }
        }
        if !notes.effects().is_empty() {
            store.apply(notes).await?;
        }
        let worker = worker::Worker::new(store, options.worker.clone())?;
        let mut handle = WorkerHandle::start(WorkflowEngine::new(worker, options, known));
        if handle.engine.options.retention.is_some() {
            handle.add("retention", retiring);
        }
        Ok(handle)
    }
}

/// Returns a type-erased function that begins the code of a workflow.
pub(super) fn begin_of<I, O, F>(code: F) -> Box<Begin>
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + 'static,
    F: for<'a> WorkflowFn<'a, I, O> + 'static,
{
    Box::new(move |cx: Ctx, input: &Payload| {
        let input: I = input.parse()?;
        let code = code.clone();
        let future: RunFuture = Box::pin(async move {
            let output = code.begin(&cx, input).await?;
            let output: Output = recordable(&output);
            output
        });
        Ok(future)
    })
}

/// Returns the output of a run as it is recorded. An output that cannot be recorded is a permanent failure, because a retry
/// would produce it again.
fn recordable<O: Serialize>(output: &O) -> Output {
    let never = |error: InvalidInput| Failure::permanent(format!("its output cannot be recorded: {error}"));
    let output = Payload::of(output).map_err(never)?;
    within("the length in bytes", "the output", output.len(), RESULT_BYTES).map_err(never)?;
    within("the nesting depth", "the output", depth(output.as_str()), INPUT_DEPTH).map_err(never)?;
    Ok(output)
}

/// The counters of a worker for workflows, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// Activations of runs.
    pub activations: u64,
    /// Steps that ended and were committed.
    pub steps: u64,
    /// Entries of journals that were replayed.
    pub replayed: u64,
    /// Runs that ended.
    pub ended: u64,
    /// Runs that were suspended because they could not continue.
    pub parked: u64,
    /// Runs that were lost to others, or handed back because the store failed.
    pub lost: u64,
    /// Runs in memory.
    pub active: usize,
}

impl WorkerHandle<WorkflowEngine> {
    /// Returns whether no run of the store is due or executing, in any process. Runs that sleep, wait or are suspended do
    /// not count.
    ///
    /// # Errors
    /// [`WorkflowError::Store`] when the store cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn is_idle(&self) -> Result<bool, WorkflowError> {
        let store = &self.worker().store;
        Ok(worker::is_idle(store, &WorkFilter::default(), keys::is_run).await?)
    }

    /// Drives one run now, whether it is due or not, and waits until it ends, rests or is suspended.
    ///
    /// # Errors
    /// [`WorkflowError::Leased`] when another process drives the run; [`WorkflowError::Refused`] when it is blocked;
    /// [`WorkflowError::UnknownRun`] when there is nothing to drive.
    pub async fn drive(&self, run: &str) -> Result<(), WorkflowError> {
        let key = keys::run(run)?;
        let worker = self.worker();
        let (sent, ttl) = (process::now(), worker.options.lease_ttl);
        let claim = Claim::existing(&worker.owner, &key, ttl).with_events(ENTRIES);
        let claimed = worker.claims.send(claim).await?;
        match (claimed.grants.into_iter().next(), claimed.denied) {
            (Some(grant), _) => {
                let work = LeasedWork::start(&worker.store, &grant, ttl, sent).map_err(LeaseError::from)?;
                let _active = Active::new(&self.engine);
                Arc::clone(&self.engine).execute(grant, work).await;
                Ok(())
            }
            (None, Some(ClaimDenied::Held(lease))) => {
                Err(WorkflowError::Leased { run: run.to_owned(), by: lease.owner, until: lease.until })
            }
            (None, Some(ClaimDenied::Blocked(reason))) => {
                Err(WorkflowError::Refused { run: run.to_owned(), asked: "driven", reason })
            }
            (None, _) => Err(WorkflowError::UnknownRun { run: run.to_owned() }),
        }
    }
}
