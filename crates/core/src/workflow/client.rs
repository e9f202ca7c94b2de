//! Workflow client: starts, awaits, signals and finds runs.

use std::collections::BTreeSet;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::completion::{self, Word, find};
use super::definition::{Signal, Workflow};
use super::error::WorkflowError;
use super::journal_entry::{JournalEntry, RegisteredWorkflow, SignalReceived};
use super::keys;
use super::run_record::{Record, RunStatus};
use super::start::NewRun;
use crate::clock::Due;
use crate::error::InvalidInput;
use crate::id::Priority;
use crate::payload::Payload;
use crate::process;
use crate::runtime::timer::sleep_until;
use crate::store::{ApplyError, Batch, DocumentFound, Page, Receipt, Refusal, SharedStore};
use crate::worker::{idle, local_notify};

/// A client that starts runs, sends them signals and reads their state. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WorkflowClient {
    pub(super) store: SharedStore,
    /// The queues that this client has announced as fair to their workers.
    shared_out: Arc<Mutex<BTreeSet<String>>>,
    /// The batch that commits together with a change.
    pub(super) beside: Batch,
}

impl WorkflowClient {
    /// Creates a client of this store. Its process needs no worker.
    #[must_use]
    pub fn new(store: SharedStore) -> Self {
        Self { store, shared_out: Arc::default(), beside: Batch::new() }
    }

    /// Returns a client for one change that commits together with this batch: both are applied, or neither. Use it for records
    /// of the change, such as an audit event. A call that changes nothing, such as the start of an existing run, does not apply
    /// the batch.
    #[must_use]
    pub fn with_batch(&self, batch: Batch) -> Self {
        Self { beside: batch, ..self.clone() }
    }

    /// Prepares a run of a workflow. Await it to start the run, or add its batch to another batch.
    pub fn start<I: Serialize, O>(&self, workflow: Workflow<I, O>, input: &I) -> StartRequest<O> {
        StartRequest::of(self, Payload::of(input).map(|input| NewRun::of(&workflow, input)))
    }

    /// Prepares a run of a workflow that a worker has registered, by its name.
    ///
    /// # Errors
    /// [`WorkflowError::UnknownWorkflow`] when no worker has ever registered it on this store.
    pub async fn start_named(
        &self,
        workflow: &str,
        input: Payload,
    ) -> Result<StartRequest<serde_json::Value>, WorkflowError> {
        let Some(note) = self.store.document(&keys::workflow(workflow)?).await? else {
            let known = self.workflows().await?;
            return Err(WorkflowError::UnknownWorkflow { workflow: workflow.to_owned(), known });
        };
        let known: RegisteredWorkflow = note.value.parse()?;
        let new = NewRun { queue: known.queue, ..NewRun::named(workflow, known.signals, input) };
        Ok(StartRequest::of(self, Ok(new)))
    }

    /// Returns the names of the workflows that workers have registered on this store.
    ///
    /// # Errors
    /// [`WorkflowError::Store`] when the store cannot be read.
    pub async fn workflows(&self) -> Result<Vec<String>, WorkflowError> {
        let mut known = Vec::new();
        let mut page = Page::first(1_000);
        loop {
            let found = self.store.documents(&keys::all_workflows(), page).await?;
            known.extend(found.rows.iter().filter_map(
                |document| match document.key.args().into_iter().next() {
                    Some(crate::key::Arg::Str(name)) => Some(name),
                    _ => None,
                },
            ));
            match found.next {
                Some(next) => page = Page::after(&next, 1_000),
                None => return Ok(known),
            }
        }
    }

    /// Returns a handle to a run that was started before.
    pub fn handle<I, O>(&self, _: Workflow<I, O>, run: &str) -> RunHandle<O> {
        RunHandle::of(self, run)
    }

    /// Sends a signal. Once this returns, the run will receive the signal, however many processes die. A signal that arrives
    /// before the run waits for it is kept.
    ///
    /// # Errors
    /// [`WorkflowError`] when the run does not exist, has ended, or does not accept the signal.
    pub async fn signal<T: Serialize + Sync>(
        &self,
        run: &str,
        signal: Signal<T>,
        value: &T,
    ) -> Result<(), WorkflowError> {
        self.signal_named(run, signal.name(), None, Payload::of(value)?).await
    }

    /// Like [`signal`](Self::signal), with an id. A signal that is sent again with the same id is received once.
    ///
    /// # Errors
    /// [`WorkflowError`] when the run does not exist, has ended, or does not accept the signal.
    pub async fn signal_once<T: Serialize + Sync>(
        &self,
        run: &str,
        signal: Signal<T>,
        id: &str,
        value: &T,
    ) -> Result<(), WorkflowError> {
        self.signal_named(run, signal.name(), Some(id), Payload::of(value)?).await
    }

    /// Like [`signal_once`](Self::signal_once), with the name of the signal, an optional id and a JSON value.
    ///
    /// # Errors
    /// [`WorkflowError`] when the run does not exist, has ended, or does not accept the signal.
    pub async fn signal_named(
        &self,
        run: &str,
        signal: &str,
        id: Option<&str>,
        value: Payload,
    ) -> Result<(), WorkflowError> {
        let (id, name) = (id.map(str::to_owned), signal.to_owned());
        let heard = SignalReceived { signal: name, id, value };
        completion::append_entry(self, run, Word::Signal, |record| check_signal(record, run, signal, &heard))
            .await
    }

    /// Cancels a run. Its waits are given up, a step that has begun runs to its end, and the workflow cleans up.
    ///
    /// # Errors
    /// [`WorkflowError`] when the run does not exist or has ended.
    pub async fn cancel(&self, run: &str, reason: &str) -> Result<(), WorkflowError> {
        completion::cancel(self, run, reason).await
    }

    /// Returns the value that a run has published under a name.
    ///
    /// # Errors
    /// [`WorkflowError`] when the store cannot be read, or the value has another type.
    pub async fn value<T: DeserializeOwned>(
        &self,
        run: &str,
        name: &str,
    ) -> Result<Option<T>, WorkflowError> {
        let Some(document) = self.store.document(&keys::values(run)?).await? else { return Ok(None) };
        let mut values: serde_json::Map<String, serde_json::Value> = document.value.parse()?;
        let refused = |error: serde_json::Error| InvalidInput::Payload { reason: error.to_string() };
        let value = values.remove(name).map(|value| serde_json::from_value(value).map_err(refused));
        Ok(value.transpose()?)
    }
}

fn check_signal(
    record: &Record,
    run: &str,
    signal: &str,
    heard: &SignalReceived,
) -> Result<JournalEntry, WorkflowError> {
    if !record.signals.iter().any(|name| name == signal) {
        let (run, signal, accepts) = (run.to_owned(), signal.to_owned(), record.signals.clone());
        return Err(WorkflowError::UnknownSignal { run, signal, accepts });
    }
    Ok(JournalEntry::Heard(heard.clone()))
}

/// A run that is about to be started.
#[must_use = "a run is started when this is awaited, or its batch applied"]
pub struct StartRequest<O> {
    client: WorkflowClient,
    new: Result<NewRun, InvalidInput>,
    output: PhantomData<fn() -> O>,
}

impl<O> StartRequest<O> {
    fn of(client: &WorkflowClient, new: Result<NewRun, InvalidInput>) -> Self {
        let new = new.map(|new| NewRun { id: process::uuid().to_string(), ..new });
        Self { client: client.clone(), new, output: PhantomData }
    }

    fn with(mut self, change: impl FnOnce(&mut NewRun)) -> Self {
        if let Ok(new) = &mut self.new {
            change(new);
        }
        self
    }

    /// Sets the id of the run. A second start with the same id and input refers to the same run. The default is a new UUID.
    pub fn id(self, id: impl Into<String>) -> Self {
        self.with(|new| new.id = id.into())
    }

    /// Sets the queue. The default is `default`, and for [`start_named`](WorkflowClient::start_named) the queue that the worker registered.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.with(|new| new.queue = queue.into())
    }

    /// Sets the priority.
    pub fn priority(self, priority: Priority) -> Self {
        self.with(|new| new.priority = priority)
    }

    /// Sets when the run begins. The default is now.
    pub fn due(self, due: Due) -> Self {
        self.with(|new| new.due = due)
    }

    /// Sets the fairness key, such as a customer or a tenant. Runs of a queue with different keys begin in turn, so that a key
    /// with thousands of runs does not delay the others. Keys are hashed to 16 lanes; keys of the same lane share its turns.
    /// Runs of a higher priority still begin first.
    pub fn fairness_key(self, whose: impl Into<String>) -> Self {
        self.with(|new| new.whose = Some(whose.into()))
    }

    /// Sets the trace of the request that starts the run, as the text of a W3C `traceparent` header. The activations of the run
    /// are linked to it. The trace of the current span, if there is one, takes precedence.
    pub fn trace(self, traceparent: impl Into<String>) -> Self {
        self.with(|new| new.trace = Some(traceparent.into()))
    }

    /// Sets an attribute by which the run is found.
    pub fn attribute(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|new| drop(new.attributes.insert(name.into(), value.into())))
    }

    /// Returns the store that the run is started in.
    #[must_use]
    pub fn store(&self) -> &SharedStore {
        &self.client.store
    }

    /// Returns the id of the run, and its start as a batch. Added to another batch, the run exists if and only if that batch is
    /// applied.
    ///
    /// # Errors
    /// [`WorkflowError::Invalid`] when the id or the input cannot be used.
    pub fn batch(self) -> Result<(String, Batch), WorkflowError> {
        let mut new = self.new?;
        new.started_at = self.client.store.estimated_now();
        Ok((new.id.clone(), new.batch()?.and(self.client.beside)))
    }

    /// Returns the start as a batch that the caller applies, and the end of the start, which takes the result of that batch.
    /// Use it to start a run in another transaction than [`Store::apply`](crate::store::Store::apply) makes.
    ///
    /// # Errors
    /// [`WorkflowError::Invalid`] when the id or the input cannot be used.
    pub fn split(self) -> Result<(Batch, PendingStart<O>), WorkflowError> {
        self.split_announced(|_| false)
    }

    fn split_announced(
        self,
        announced: impl FnOnce(&NewRun) -> bool,
    ) -> Result<(Batch, PendingStart<O>), WorkflowError> {
        let Self { client, new, .. } = self;
        let mut new = new?;
        new.announced = new.whose.is_none() || announced(&new);
        new.started_at = client.store.estimated_now();
        let batch = new.batch()?.and(client.beside.clone());
        let handle = RunHandle::of(&client, &new.id);
        Ok((batch, PendingStart { new, handle }))
    }

    async fn start(self) -> Result<RunHandle<O>, WorkflowError> {
        let client = self.client.clone();
        let (batch, pending) = self.split_announced(|new| client.shared_out.lock().contains(&new.queue))?;
        let applied = client.store.apply(batch).await;
        if applied.is_ok() {
            if !pending.new.announced {
                client.shared_out.lock().insert(pending.new.queue.clone());
            }
            keys::wake(&pending.new.queue);
        }
        pending.finish(applied)
    }
}

/// The end of a start whose batch the caller applies: see [`StartRequest::split`].
#[must_use = "it returns the handle of the run"]
pub struct PendingStart<O> {
    new: NewRun,
    handle: RunHandle<O>,
}

impl<O> PendingStart<O> {
    /// Returns the handle of the run, from the result of the batch. The store refuses the batch when the run exists. That is a
    /// success if the existing run has the same workflow and input.
    ///
    /// # Errors
    /// [`WorkflowError::Taken`] when another run has the id, and [`WorkflowError::Write`] for any other failure of the batch.
    pub fn finish(self, applied: Result<Receipt, ApplyError>) -> Result<RunHandle<O>, WorkflowError> {
        let Err(error) = applied else { return Ok(self.handle) };
        // A precondition of the caller's own effects may have failed instead.
        if let Some(Refusal::Document { key, found, .. }) = error.refusal()
            && *key == keys::run(&self.new.id)?
            && let DocumentFound::Present(document) = &**found
        {
            same(&self.new, &document.value.parse()?)?;
            return Ok(self.handle);
        }
        Err(error.into())
    }
}

impl<O> fmt::Debug for PendingStart<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingStart").field("new", &self.new).finish_non_exhaustive()
    }
}

/// Checks that an existing run is the one to start.
fn same(new: &NewRun, found: &Record) -> Result<(), WorkflowError> {
    let same_workflow = new.workflow == found.workflow;
    // The document of a run that continued as new does not have the first input.
    if same_workflow && (found.generation > 0 || found.input == new.input) {
        return Ok(());
    }
    Err(WorkflowError::Taken { run: new.id.clone(), workflow: found.workflow.clone(), same_workflow })
}

impl<O: 'static> IntoFuture for StartRequest<O> {
    type Output = Result<RunHandle<O>, WorkflowError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// Starts the run. Once the future resolves, the run exists, and any live worker of its queue will drive it.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}

impl<O> fmt::Debug for StartRequest<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Start").field("new", &self.new).finish_non_exhaustive()
    }
}

/// A handle to a run, with the type of its output.
pub struct RunHandle<O> {
    client: WorkflowClient,
    run: String,
    output: PhantomData<fn() -> O>,
}

impl<O> RunHandle<O> {
    pub(super) fn of(client: &WorkflowClient, run: &str) -> Self {
        // The batch beside one change must not commit with later changes.
        Self { client: client.with_batch(Batch::new()), run: run.to_owned(), output: PhantomData }
    }

    /// Returns the id of the run.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Cancels the run: see [`WorkflowClient::cancel`].
    ///
    /// # Errors
    /// [`WorkflowError`] when the run does not exist or has ended.
    pub async fn cancel(&self, reason: &str) -> Result<(), WorkflowError> {
        self.client.cancel(&self.run, reason).await
    }

    /// Sends the run a signal: see [`WorkflowClient::signal`].
    ///
    /// # Errors
    /// [`WorkflowError`] when the run does not exist, has ended, or does not accept the signal.
    pub async fn signal<T: Serialize + Sync>(
        &self,
        signal: Signal<T>,
        value: &T,
    ) -> Result<(), WorkflowError> {
        self.client.signal(&self.run, signal, value).await
    }

    /// Returns the status of the run.
    ///
    /// # Errors
    /// [`WorkflowError`] when the run does not exist, or the store cannot be read.
    pub async fn status(&self) -> Result<RunStatus, WorkflowError> {
        Ok(self.record().await?.status)
    }

    async fn record(&self) -> Result<Record, WorkflowError> {
        let found = find(&self.client.store, &self.run).await?;
        Ok(found.ok_or_else(|| WorkflowError::UnknownRun { run: self.run.clone() })?.0)
    }
}

impl<O: DeserializeOwned> RunHandle<O> {
    /// Waits for the end of the run, whichever process drives it, and returns its output.
    ///
    /// # Errors
    /// [`WorkflowError`] when the run failed, was cancelled, or does not exist.
    ///
    /// # Cancel safety
    /// Cancel-safe: the run continues, and can be awaited again.
    pub async fn result(&self) -> Result<O, WorkflowError> {
        let key = keys::run(&self.run)?;
        let here = local_notify::listen(&key);
        let mut hints = None;
        let mut pause = Duration::from_millis(20);
        loop {
            let told = here.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            let record = self.record().await?;
            let failure = record.failure.unwrap_or_else(|| super::Failure::new("it does not say why"));
            let run = self.run.clone();
            match record.status {
                RunStatus::Completed => return Ok(record.output.unwrap_or_default().parse()?),
                RunStatus::Failed => return Err(WorkflowError::Failed { run, failure }),
                RunStatus::Cancelled => return Err(WorkflowError::Cancelled { run, failure }),
                RunStatus::Running => {}
            }
            let looked = process::now();
            match &mut hints {
                // At first, hints are not worth watching: most likely this process drives the run, or the run takes a while.
                None => {
                    tokio::select! {
                        biased;
                        () = told => {}
                        () = sleep_until(looked + pause) => hints = Some(self.client.store.watch()),
                    }
                }
                // A busy store sends many hints, so the growing pause limits how often they cause a read.
                Some(hints) => {
                    tokio::select! {
                        biased;
                        () = told => {}
                        () = idle::hinted(hints, looked + pause) => {}
                        () = sleep_until(looked + Duration::from_secs(1)) => {}
                    }
                    pause = (pause * 2).min(Duration::from_millis(250));
                }
            }
        }
    }
}

impl<O> fmt::Debug for RunHandle<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.run).finish()
    }
}

impl<O> Clone for RunHandle<O> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), run: self.run.clone(), output: PhantomData }
    }
}

/// Asserts at compile time that clients and handles can be shared between threads.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<WorkflowClient>();
    shared::<RunHandle<()>>();
    let _: Option<Arc<WorkflowClient>> = None;
};
