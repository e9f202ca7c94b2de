//! The handle of a store: every engine behind one value.

use std::panic::Location;

use serde::Serialize;
use tidelock_core::error::InvalidInput;
use tidelock_core::events::{Aggregate, Events};
use tidelock_core::key::{Arg, IntoArg, IntoKey};
use tidelock_core::lease::{self, LeaseRequest};
use tidelock_core::lock::{self, Guard, Locks};
use tidelock_core::projections::ReadModel;
use tidelock_core::reactions::Operator;
use tidelock_core::schedule::Schedules;
use tidelock_core::state::{Document, Record, Schema, State, StateRegistry, StateValue};
use tidelock_core::store::{Batch, Receipt, SharedStore};
use tidelock_core::workflow::{StartRequest, Workflow, WorkflowClient};

use crate::aggregate::AggregateHandle;
use crate::open::{self, Backend, OpenOptions};
use crate::{Error, Service};

/// A store with all engines. Clones are cheap, and share caches and connections.
///
/// ```
/// use tidelock::Tidelock;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tidelock::Error> {
/// let tide = Tidelock::open("memory:").await?; // sqlite:app.db, postgres://…
///
/// let visits = tide.state::<u64>(("visits", "home"));
/// visits.mutate(|count| *count += 1).await?;
/// assert_eq!(visits.get().await?, 1);
///
/// let _guard = tide.lock(("cart", "ann")).await?; // this process
/// let lease = tide.lease("nightly").acquire().await?; // all processes, with a fencing token
/// lease.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Tidelock {
    store: SharedStore,
    backend: Backend,
    states: StateRegistry,
    events: Events,
    runs: WorkflowClient,
}

impl Tidelock {
    /// Opens the store of a URL: `sqlite:app.db` or a path, `postgres://USER:PASSWORD@HOST/DATABASE`, or `memory:`. A
    /// missing file, schema or table is created.
    ///
    /// # Errors
    /// [`Error`] when the URL is invalid, its backend is not compiled in, or the store cannot be opened.
    pub async fn open(url: &str) -> Result<Self, Error> {
        Self::options(url).open().await
    }

    /// Opens the store that `TIDELOCK_STORE` names, or else `DATABASE_URL`, as the command line does. `TIDELOCK_SCHEMA` names
    /// the schema of a PostgreSQL store.
    ///
    /// # Errors
    /// As [`open`](Self::open), and when neither variable is set.
    pub async fn from_env() -> Result<Self, Error> {
        open::from_env(|name| std::env::var_os(name))?.open().await
    }

    /// Prepares to open the store of a URL with options.
    pub fn options(url: &str) -> OpenOptions {
        OpenOptions::new(url)
    }

    pub(crate) fn over(store: SharedStore, backend: Backend) -> Self {
        let (states, events) = (StateRegistry::new(store.clone()), Events::new(store.clone()));
        let runs = WorkflowClient::new(store.clone());
        Self { store, backend, states, events, runs }
    }

    /// Returns the state of a key. An invalid key is reported by the operations of the state.
    #[must_use]
    pub fn state<T: StateValue>(&self, key: impl IntoKey) -> State<T> {
        self.states.at(key)
    }

    /// Returns the document of a key, with a schema that migrates older values.
    ///
    /// # Errors
    /// [`Error`] when the key is invalid.
    pub fn document<T: Record>(&self, key: impl IntoKey, schema: Schema) -> Result<Document<T>, Error> {
        Ok(self.states.document(&key.into_key()?, schema))
    }

    /// Returns the aggregate of an id, to execute commands and to load its state.
    pub fn aggregate<A: Aggregate>(&self, id: impl IntoArg) -> AggregateHandle<A> {
        AggregateHandle::new(self.events.clone(), id.into_arg())
    }

    /// Returns the event engine: commands, subscriptions, tags, units of work.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Prepares a run of a workflow. Await it to start the run, or add its batch to another one.
    pub fn start<I: Serialize, O>(&self, workflow: Workflow<I, O>, input: &I) -> StartRequest<O> {
        self.runs.start(workflow, input)
    }

    /// Returns the client of workflow runs: signals, cancellation, lists, results.
    #[must_use]
    pub fn runs(&self) -> &WorkflowClient {
        &self.runs
    }

    /// Returns the schedules of the store, to list, trigger, pause and resume them.
    #[must_use]
    pub fn schedules(&self) -> Schedules {
        Schedules::new(self.store.clone())
    }

    /// Returns the rows of a projection.
    #[must_use]
    pub fn read_model(&self, projection: impl Into<String>) -> ReadModel {
        ReadModel::new(self.store.clone(), projection)
    }

    /// Returns the operator of reactions: unblock, retry, reset, replay.
    #[must_use]
    pub fn operator(&self) -> Operator {
        Operator::new(self.store.clone())
    }

    /// Returns the lock table of this process. All handles share it.
    #[must_use]
    pub fn locks(&self) -> &'static Locks {
        lock::global()
    }

    /// Acquires the lock of a key in this process, in the order of arrival. Declare a
    /// [`LockClass`](tidelock_core::lock::LockClass) for ranks and modes. The keys of a class are separate from those of this
    /// method, even if their names are equal.
    ///
    /// # Errors
    /// [`Error`] when the key is invalid, this task already holds the lock, or the wait would be a deadlock.
    ///
    /// # Cancel safety
    /// A future that is dropped while it waits leaves the queue.
    #[track_caller]
    pub fn lock(&self, key: impl IntoKey) -> impl Future<Output = Result<Guard<'static>, Error>> + Send {
        let (key, place) = (key.into_key(), Location::caller());
        async move { Ok(self.locks().lock_at(&key?.into(), place).await?) }
    }

    /// Prepares a request for the lease on a key: exclusive across all processes, with a fencing token.
    #[track_caller]
    pub fn lease(&self, key: impl IntoKey) -> LeaseRequest {
        lease::request(&self.store, key)
    }

    /// Applies a batch: all of its effects, or none.
    ///
    /// # Errors
    /// [`Error`] when a precondition does not hold or the store fails.
    pub async fn apply(&self, batch: Batch) -> Result<Receipt, Error> {
        Ok(self.store.apply(batch).await?)
    }

    /// Returns the tower layer that makes requests with an `Idempotency-Key` idempotent.
    #[cfg(feature = "http")]
    pub fn idempotency(&self) -> tidelock_http::IdempotencyLayer {
        tidelock_http::IdempotencyLayer::new(&self.store)
    }

    /// Returns the store beneath all engines.
    #[must_use]
    pub fn store(&self) -> &SharedStore {
        &self.store
    }

    /// Builds a service on this store: workflows, reactions, projections, schedules, outboxes and housekeeping.
    pub fn service(&self) -> Service {
        Service::new(self.clone())
    }

    /// Closes the store after all accepted writes. Every later operation of any handle fails with `Closed`. A memory store, or
    /// a store that was passed as a [`SharedStore`], has nothing to close.
    pub async fn close(self) {
        self.backend.close().await;
    }
}

/// The id of an aggregate, or the reason why it is invalid.
pub(crate) type Id = Result<Arg, InvalidInput>;
