//! A service: every worker of a process, started and stopped together.

mod handle;
mod leader;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidelock_core::clock::ManualClock;
use tidelock_core::error::InvalidInput;
use tidelock_core::failure::Failure;
use tidelock_core::housekeeping::Housekeeping;
use tidelock_core::id::Owner;
use tidelock_core::outbox::{Deliver, Outbox, Sender};
use tidelock_core::projections::{Projection, Projections};
use tidelock_core::reactions::{Reaction, Reactions};
use tidelock_core::schedule::{Schedule, Scheduler};
use tidelock_core::workflow::{Queue, Retention, Worker, Workflow, WorkflowFn};

pub use handle::{ServiceHandle, ServiceReport};
pub use leader::Leadership;

use self::leader::Candidate;
use crate::{Error, Tidelock};

/// A builder for the workers of a process, from [`Tidelock::service`].
///
/// Only the workers that have something to do are started. Housekeeping always runs: every minute, one process removes
/// expired documents, tombstones older than 7 days, and operation records older than 24 hours.
#[must_use = "nothing runs before start() is awaited"]
#[derive(Debug)]
pub struct Service {
    tide: Tidelock,
    workflows: Option<Worker>,
    queues: Vec<Queue>,
    retention: Option<Retention>,
    skip_time: Option<Arc<ManualClock>>,
    reactions: Vec<Reaction>,
    projections: Vec<Projection>,
    schedules: Vec<Schedule>,
    outboxes: Vec<(&'static str, Sender)>,
    leaders: Vec<Candidate>,
    housekeeping: Option<Housekeeping>,
    name: Option<String>,
    options: Options,
}

/// The options of every worker. `None` leaves the default of the worker.
#[derive(Clone, Debug, Default)]
struct Options {
    owner: Option<Owner>,
    concurrency: Option<usize>,
    lease_ttl: Option<Duration>,
    poll_interval: Option<Duration>,
    shutdown_timeout: Option<Duration>,
}

/// Sets the given options on the builder of a worker.
macro_rules! configured {
    ($worker:expr, $options:expr) => {{
        let mut worker = $worker;
        let Options { owner, concurrency, lease_ttl, poll_interval, shutdown_timeout } = $options.clone();
        if let Some(owner) = owner {
            worker = worker.owner(owner);
        }
        if let Some(grants) = concurrency {
            worker = worker.concurrency(grants);
        }
        if let Some(ttl) = lease_ttl {
            worker = worker.lease_ttl(ttl);
        }
        if let Some(interval) = poll_interval {
            worker = worker.poll_interval(interval);
        }
        if let Some(timeout) = shutdown_timeout {
            worker = worker.shutdown_timeout(timeout);
        }
        worker
    }};
}

impl Service {
    pub(crate) fn new(tide: Tidelock) -> Self {
        Self {
            tide,
            workflows: None,
            queues: Vec::new(),
            retention: None,
            skip_time: None,
            reactions: Vec::new(),
            projections: Vec::new(),
            schedules: Vec::new(),
            outboxes: Vec::new(),
            leaders: Vec::new(),
            housekeeping: None,
            name: None,
            options: Options::default(),
        }
    }

    /// Registers the code of a workflow.
    pub fn workflow<I, O, F>(mut self, workflow: Workflow<I, O>, code: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        F: for<'a> WorkflowFn<'a, I, O> + 'static,
    {
        let worker = self.workflows.take().unwrap_or_else(|| Worker::new(self.tide.store().clone()));
        self.workflows = Some(worker.register(workflow, code));
        self
    }

    /// Polls a queue of workflow runs, optionally with limits. Without a call, the service polls the queue `default`.
    pub fn queue(mut self, queue: impl Into<Queue>) -> Self {
        self.queues.push(queue.into());
        self
    }

    /// Removes ended runs after a time, and passes them to an archive first if the policy has one. By default they stay.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Skips the idle time of workflow runs, for tests on a store with this clock: when every run waits, the clock advances to
    /// the next due time, so that a workflow of a month ends in milliseconds.
    pub fn skip_time(mut self, clock: Arc<ManualClock>) -> Self {
        self.skip_time = Some(clock);
        self
    }

    /// Adds a reaction.
    pub fn reaction(mut self, reaction: impl Into<Reaction>) -> Self {
        self.reactions.push(reaction.into());
        self
    }

    /// Adds a projection.
    pub fn projection(mut self, projection: impl Into<Projection>) -> Self {
        self.projections.push(projection.into());
        self
    }

    /// Adds a schedule. Services with different schedules on one store need different [names](Self::name). A schedule that a
    /// service no longer has is archived, unless it was the last one: pause that with [`Tidelock::schedules`].
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedules.push(schedule);
        self
    }

    /// Delivers the messages of an outbox. [`sender`](Self::sender) takes one with options.
    pub fn outbox(self, outbox: Outbox, deliver: impl Deliver) -> Self {
        let sender = Sender::new(self.tide.store().clone(), outbox, deliver);
        self.sender(outbox, sender)
    }

    /// Delivers the messages of an outbox with a configured sender.
    pub fn sender(mut self, outbox: Outbox, sender: Sender) -> Self {
        self.outboxes.push((outbox.name(), sender));
        self
    }

    /// Runs a handler in one process at a time (leader election). The handler's future is dropped before another process can
    /// lead, and the fencing token of its [`Leadership`] rejects late writes. A process that lost the lease, or whose
    /// handler returned, becomes a candidate again, after a pause that grows with each failure in a row. Candidates lead in
    /// the order of arrival. The lease is on the key `leader(NAME)`.
    ///
    /// The handler is an async function or closure. It is cloned for each term, so its captures should be cheap to clone. The
    /// pause after a failure is at least that of [`Failure::retry_after`]; after [`Failure::permanent`] it is 30 seconds.
    pub fn leader<F, Fut>(mut self, name: &'static str, handler: F) -> Self
    where
        F: FnOnce(Leadership) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.leaders.push(Candidate::new(name, handler));
        self
    }

    /// Replaces the default housekeeping.
    pub fn housekeeping(mut self, housekeeping: Housekeeping) -> Self {
        self.housekeeping = Some(housekeeping);
        self
    }

    /// Sets the name of the scheduler; `default` by default. A service archives the schedules of its name that it does not
    /// have.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the owner name of all leases. The default is host name and process id. A unique suffix is added.
    pub fn owner(mut self, owner: Owner) -> Self {
        self.options.owner = Some(owner);
        self
    }

    /// Sets how many grants each worker executes at once. The default is 16, and 64 for workflows.
    pub fn concurrency(mut self, grants: usize) -> Self {
        self.options.concurrency = Some(grants);
        self
    }

    /// Sets the lease time of a grant. Other processes wait this long for the work of one that died. The default is 30
    /// seconds.
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.options.lease_ttl = Some(ttl);
        self
    }

    /// Sets the poll interval: the longest time that due work goes unnoticed when a notification is lost. The default is 1
    /// second.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.options.poll_interval = Some(interval);
        self
    }

    /// Sets how long executions may continue after [`ServiceHandle::shutdown`]. The default is 10 seconds.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.options.shutdown_timeout = Some(timeout);
        self
    }

    /// Registers everything and starts the workers. When one of them fails to start, those before it are shut down.
    ///
    /// # Errors
    /// [`Error`] when a definition is invalid, a name occurs twice, no Tokio runtime runs, or the store fails.
    pub async fn start(self) -> Result<ServiceHandle, Error> {
        let mut handle = ServiceHandle::new(self.tide.clone());
        match self.start_into(&mut handle).await {
            Ok(()) => Ok(handle),
            Err(error) => {
                handle.shutdown().await;
                Err(error)
            }
        }
    }

    /// Runs the service until the future ends, then shuts down. [`run`](Self::run) waits for a signal.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn run_until(self, end: impl Future) -> Result<ServiceReport, Error> {
        let handle = self.start().await?;
        end.await;
        Ok(handle.shutdown().await)
    }

    /// Runs the service until SIGTERM or Ctrl-C, then shuts down.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn run(self) -> Result<ServiceReport, Error> {
        let handle = self.start().await?;
        handle.stopped().await;
        Ok(handle.shutdown().await)
    }

    /// Checks the names that no engine compares, and that a runtime can run the workers.
    fn check(&self) -> Result<(), InvalidInput> {
        if tokio::runtime::Handle::try_current().is_err() {
            let reason = "no Tokio runtime; call start() from a runtime that outlives the service";
            return Err(invalid("service", "", reason));
        }
        distinct("outbox", self.outboxes.iter().map(|(name, _)| *name))?;
        distinct("leader", self.leaders.iter().map(Candidate::name))
    }

    async fn start_into(self, handle: &mut ServiceHandle) -> Result<(), Error> {
        self.check()?;
        let Self { tide, workflows, queues, retention, skip_time, options, .. } = self;
        let store = tide.store();
        if !self.reactions.is_empty() {
            let reactions = self.reactions.into_iter().fold(Reactions::new(store.clone()), Reactions::with);
            handle.reactions = Some(configured!(reactions, options).start().await?);
        }
        if !self.projections.is_empty() {
            let new = Projections::new(store.clone());
            let projections = self.projections.into_iter().fold(new, Projections::with);
            handle.projections = Some(configured!(projections, options).start().await?);
        }
        for (name, sender) in self.outboxes {
            handle.outboxes.push((name, configured!(sender, options).start().await?));
        }
        if let Some(mut worker) = workflows {
            if !queues.is_empty() {
                worker = worker.queues(queues);
            }
            if let Some(retention) = retention {
                worker = worker.retention(retention);
            }
            if let Some(clock) = skip_time {
                worker = worker.skip_time(clock);
            }
            handle.workflows = Some(configured!(worker, options).start().await?);
        }
        if !self.schedules.is_empty() {
            let mut scheduler =
                self.schedules.into_iter().fold(Scheduler::new(store.clone()), Scheduler::with);
            if let Some(name) = self.name {
                scheduler = scheduler.name(name);
            }
            handle.schedules = Some(configured!(scheduler, options).start().await?);
        }
        for leader in self.leaders {
            handle.leaders.push(leader.spawn(&tide, &options)?);
        }
        let housekeeping = self.housekeeping.unwrap_or_else(|| Housekeeping::new(store.clone()));
        handle.housekeeping = Some(housekeeping.spawn());
        Ok(())
    }
}

fn distinct(what: &'static str, names: impl Iterator<Item = &'static str>) -> Result<(), InvalidInput> {
    let mut known = std::collections::BTreeSet::new();
    for name in names {
        if !known.insert(name) {
            return Err(invalid(what, name, "it was added twice; give one of them another name"));
        }
    }
    Ok(())
}

fn invalid(what: &'static str, name: &str, reason: &str) -> InvalidInput {
    InvalidInput::Name { what, text: name.to_owned(), reason: reason.to_owned() }
}
