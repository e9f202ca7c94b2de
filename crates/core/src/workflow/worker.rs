//! The worker: claims runs while it has room, and gives each a task of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use super::claiming::{Active, activate, claiming};
use super::ctx::{Ctx, RESULT_BYTES};
use super::definition::Workflow;
use super::driver::ENTRIES;
use super::entry::Known;
use super::error::WorkflowError;
use super::failure::Failure;
use super::names;
use super::queue::{self, Queue};
use super::retention::Retention;
use super::shared::{Begin, Definition, Options, Output, RunFuture, Shared, Unknown};
use crate::clock::ManualClock;
use crate::error::InvalidInput;
use crate::id::Owner;
use crate::lease::{Claims, Holding, unique_owner, working};
use crate::model::limits::within;
use crate::payload::Payload;
use crate::store::{Batch, Claim, Denied, Expect, SharedStore};

/// An async function or closure that can be a workflow: `async fn(&Ctx, I) -> Result<O, Failure>` whose future is `Send`. Written
/// by nobody; all such functions are. A closure is cloned for each activation, so what it captures should be cheap to clone.
pub trait WorkflowFn<'a, I, O>: Clone + Send + Sync {
    /// Its future.
    type Future: Future<Output = Result<O, Failure>> + Send + 'a;

    /// Begins it.
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

/// A worker that is about to run.
#[must_use = "nothing runs before start() is awaited"]
#[derive(Debug)]
pub struct Worker {
    store: SharedStore,
    definitions: Vec<Definition>,
    options: Options,
}

impl Worker {
    /// A worker on this store.
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

    /// Which queues are worked on: `default` alone, unless others are named. A [`Queue`] with limits sets them for all workers, in
    /// all processes; one without follows what the store has.
    pub fn queues<Q: Into<Queue>>(mut self, queues: impl IntoIterator<Item = Q>) -> Self {
        self.options.queues = queues.into_iter().map(Into::into).collect();
        self
    }

    /// How many runs this worker drives at the same time, at most: 64. Runs that wait do not count. For a limit over all processes,
    /// see [`Queue::concurrency`].
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.options.concurrency = runs.max(1);
        self
    }

    /// Who drives, as others are to see it: by default the machine and the process. What makes it unique is added.
    pub fn owner(mut self, owner: Owner) -> Self {
        self.options.owner = Some(owner);
        self
    }

    /// How long others wait for a run whose process died: 30 seconds. A process that lives renews in time.
    pub fn lease(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl.clamp(crate::lease::MIN_TTL, crate::lease::MAX_TTL);
        self
    }

    /// How long steps may go on after [`Driving::shutdown`]: 10 seconds.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.options.grace = working::bounded(grace);
        self
    }

    /// How long something may go unnoticed when the store's hint of it was missed: 1 second.
    pub fn look_again(mut self, interval: Duration) -> Self {
        self.options.look_again = working::interval(interval);
        self
    }

    /// How long runs are kept that have ended: for ever, unless this is said. One of the workers that are told so removes them.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.options.retention = Some(retention);
        self
    }

    /// For tests on a store that goes by this clock: when everything waits, the clock is set to the next thing that is due, so
    /// that a workflow of a month ends in milliseconds.
    pub fn skip_time(mut self, clock: Arc<ManualClock>) -> Self {
        self.options.skip = Some(clock);
        self.options.linger = Duration::ZERO;
        self
    }

    /// Starts the worker. When this returns, others can see which workflows it knows.
    ///
    /// # Errors
    /// [`WorkflowError`] when two workflows have one name, a name is not valid, there is no runtime, or the store fails.
    pub async fn start(self) -> Result<Driving, WorkflowError> {
        let Self { store, definitions, options } = self;
        tokio::runtime::Handle::try_current().map_err(|_| WorkflowError::NoRuntime)?;
        let mut known = BTreeMap::new();
        let mut notes = Batch::new();
        for definition in definitions {
            let name = definition.name.clone();
            names::check("the name of a workflow", &name, names::MAX_NAME_BYTES)?;
            let queue = options.queues.first().map(|queue| queue.name().to_owned()).unwrap_or_default();
            let note = Known { queue, signals: definition.signals.clone() };
            notes = notes.put(&names::workflow(&name)?, Expect::Any, Payload::of(&note)?);
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
            names::check("the name of a queue", queue.name(), names::MAX_NAME_BYTES)?;
            names::lane(queue.name())?;
            if let Some(limits) = queue.declared {
                notes = notes.and(queue::declare(&store, queue.name(), limits).await?);
            }
        }
        if !notes.effects().is_empty() {
            store.apply(notes).await?;
        }
        let owner = unique_owner(options.owner.as_ref())?;
        let (stopping, cut, killed, counters) = Default::default();
        let (claims, definitions) = (Claims::new(&store), known);
        let unknown = Unknown::default();
        let shared =
            Shared { store, owner, options, definitions, stopping, cut, killed, claims, counters, unknown };
        let shared = Arc::new(shared);
        let task = tokio::spawn(claiming(Arc::clone(&shared)));
        Ok(Driving { shared, task })
    }
}

/// How code is begun, whatever its types are.
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

/// What a run brings, as it is recorded. What cannot be is a failure: trying again would bring it again.
fn recordable<O: Serialize>(output: &O) -> Output {
    let never = |error: InvalidInput| Failure::permanent(format!("its output cannot be recorded: {error}"));
    let output = Payload::of(output).map_err(never)?;
    within("the length in bytes", "the output", output.len(), RESULT_BYTES).map_err(never)?;
    Ok(output)
}

/// What a worker did so far, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// Runs that were taken up.
    pub activations: u64,
    /// Steps that came to an end and were written.
    pub steps: u64,
    /// Entries of journals that were replayed.
    pub replayed: u64,
    /// Runs that ended.
    pub ended: u64,
    /// Runs that were put off because they could not go on.
    pub parked: u64,
    /// Runs that were lost to others, or handed back because the store failed.
    pub lost: u64,
    /// Runs that are in memory.
    pub active: usize,
}

/// A worker that runs, until it is shut down or this is dropped.
///
/// Dropped, everything stops at once: steps are broken off, and leases end by themselves. [`shutdown`](Self::shutdown) is the
/// polite way.
#[must_use = "dropping it stops the worker"]
#[derive(Debug)]
pub struct Driving {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Driving {
    /// Who drives.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.shared.owner
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        let counters = &self.shared.counters;
        WorkerStats {
            activations: counters.activations.get(),
            steps: counters.steps.get(),
            replayed: counters.replayed.get(),
            ended: counters.ended.get(),
            parked: counters.parked.get(),
            lost: counters.lost.get(),
            active: counters.active.load(Ordering::Relaxed),
        }
    }

    /// Drives one run now, whether it is due or not, and waits until it ends, rests or is put off.
    ///
    /// # Errors
    /// [`WorkflowError::Leased`] when another process drives it; [`WorkflowError::UnknownRun`] when there is nothing to drive.
    pub async fn drive(&self, run: &str) -> Result<(), WorkflowError> {
        let key = names::run(run)?;
        let ttl = self.shared.options.ttl;
        let sent = Instant::now();
        let claim = Claim::existing(&self.shared.owner, &key, ttl).with_events(ENTRIES);
        let claimed = self.shared.claims.send(claim).await?;
        match (claimed.grants.into_iter().next(), claimed.denied) {
            (Some(grant), _) => {
                let holding = Holding::start(&self.shared.store, &grant, ttl, sent)?;
                let _active = Active::new(&self.shared);
                activate(Arc::clone(&self.shared), grant, holding).await;
                Ok(())
            }
            (None, Some(Denied::Held(lease))) => {
                Err(WorkflowError::Leased { run: run.to_owned(), by: lease.owner, until: lease.until })
            }
            (None, Some(Denied::Blocked(reason))) => {
                Err(WorkflowError::Refused { run: run.to_owned(), asked: "driven", reason })
            }
            (None, _) => Err(WorkflowError::UnknownRun { run: run.to_owned() }),
        }
    }

    /// Stops politely: nothing new is claimed, runs are handed back at their next step, and steps may end within the grace
    /// period.
    ///
    /// # Cancel safety
    /// Dropped, everything stops at once, as when [`Driving`] is dropped.
    pub async fn shutdown(mut self) -> WorkerStats {
        self.shared.stopping.cancel();
        drop((&mut self.task).await);
        self.stats()
    }

    /// Stops at once, as a crash would: steps are broken off, and leases end by themselves. When this returns, nothing runs any more.
    /// For tests of what happens then.
    ///
    /// # Cancel safety
    /// Cancel-safe: everything stops all the same.
    pub async fn abort(mut self) {
        self.shared.killed.cancel();
        drop((&mut self.task).await);
        self.shared.claims.settle(&self.shared.owner).await;
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        self.task.abort();
    }
}
