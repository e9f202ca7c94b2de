//! How runs are started, awaited, told and found.

use std::collections::BTreeSet;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::definition::{Signal, Workflow};
use super::end::{self, Word, find};
use super::entry::{Entry, Heard, Known};
use super::error::WorkflowError;
use super::names;
use super::new_run::NewRun;
use super::record::{Record, Status};
use crate::clock::Due;
use crate::error::InvalidInput;
use crate::id::Priority;
use crate::payload::Payload;
use crate::runtime::timer::sleep_until;
use crate::store::{Batch, DocumentFound, Page, Refusal, SharedStore};
use crate::worker::{idle, local_notify};

/// Starts runs, and talks to them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) store: SharedStore,
    /// The queues that workers were told to share out.
    shared_out: Arc<Mutex<BTreeSet<String>>>,
    /// What commits together with a change.
    pub(super) beside: Batch,
}

impl Client {
    /// A client of this store. It needs no worker in its own process.
    #[must_use]
    pub fn new(store: SharedStore) -> Self {
        Self { store, shared_out: Arc::default(), beside: Batch::new() }
    }

    /// A client for one change, with which this batch commits: both happen, or neither. It is for what others are to see of the
    /// change, such as an event of an audit. What changes nothing, such as a start of a run that exists, leaves nothing of it.
    #[must_use]
    pub fn beside(&self, batch: Batch) -> Self {
        Self { beside: batch, ..self.clone() }
    }

    /// A run of a workflow that is about to be started: await it, or add it to a batch of your own.
    pub fn start<I: Serialize, O>(&self, workflow: Workflow<I, O>, input: &I) -> Start<O> {
        Start::of(self, Payload::of(input).map(|input| NewRun::of(&workflow, input)))
    }

    /// A run of a workflow that some worker has registered, by its name.
    ///
    /// # Errors
    /// [`WorkflowError::UnknownWorkflow`] when no worker has ever known it on this store.
    pub async fn start_named(
        &self,
        workflow: &str,
        input: Payload,
    ) -> Result<Start<serde_json::Value>, WorkflowError> {
        let Some(note) = self.store.document(&names::workflow(workflow)?).await? else {
            let known = self.workflows().await?;
            return Err(WorkflowError::UnknownWorkflow { workflow: workflow.to_owned(), known });
        };
        let known: Known = note.value.parse()?;
        let new = NewRun { queue: known.queue, ..NewRun::named(workflow, known.signals, input) };
        Ok(Start::of(self, Ok(new)))
    }

    /// The workflows that workers have registered on this store.
    ///
    /// # Errors
    /// [`WorkflowError::Store`] when the store cannot be read.
    pub async fn workflows(&self) -> Result<Vec<String>, WorkflowError> {
        let mut known = Vec::new();
        let mut page = Page::first(1_000);
        loop {
            let found = self.store.documents(&names::all_workflows(), page).await?;
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

    /// A handle to a run that was started before.
    pub fn handle<I, O>(&self, _: Workflow<I, O>, run: &str) -> Handle<O> {
        Handle::of(self, run)
    }

    /// Sends a signal. When this returns, the run will hear it, however often processes die: signals that come early wait.
    ///
    /// # Errors
    /// [`WorkflowError`] when there is no such run, it is over, or does not hear the signal.
    pub async fn signal<T: Serialize + Sync>(
        &self,
        run: &str,
        signal: Signal<T>,
        value: &T,
    ) -> Result<(), WorkflowError> {
        self.signal_named(run, signal.name(), None, Payload::of(value)?).await
    }

    /// Like [`signal`](Self::signal), under an id: sent again with the same id, it is heard once.
    ///
    /// # Errors
    /// [`WorkflowError`] when there is no such run, it is over, or does not hear the signal.
    pub async fn signal_once<T: Serialize + Sync>(
        &self,
        run: &str,
        signal: Signal<T>,
        id: &str,
        value: &T,
    ) -> Result<(), WorkflowError> {
        self.signal_named(run, signal.name(), Some(id), Payload::of(value)?).await
    }

    /// Like [`signal_once`](Self::signal_once), with a name and JSON.
    ///
    /// # Errors
    /// [`WorkflowError`] when there is no such run, it is over, or does not hear the signal.
    pub async fn signal_named(
        &self,
        run: &str,
        signal: &str,
        id: Option<&str>,
        value: Payload,
    ) -> Result<(), WorkflowError> {
        let (id, name) = (id.map(str::to_owned), signal.to_owned());
        let heard = Heard { signal: name, id, value };
        end::tell(self, run, Word::Signal, |record| hears(record, run, signal, &heard)).await
    }

    /// Asks a run to stop. What it waits for is given up, a step that has begun comes to its end, and the workflow cleans up.
    ///
    /// # Errors
    /// [`WorkflowError`] when there is no such run, or it is over.
    pub async fn cancel(&self, run: &str, reason: &str) -> Result<(), WorkflowError> {
        end::cancel(self, run, reason).await
    }

    /// What a run has published under a name.
    ///
    /// # Errors
    /// [`WorkflowError`] when the store cannot be read, or the value has another type.
    pub async fn value<T: DeserializeOwned>(
        &self,
        run: &str,
        name: &str,
    ) -> Result<Option<T>, WorkflowError> {
        let Some(document) = self.store.document(&names::values(run)?).await? else { return Ok(None) };
        let mut values: serde_json::Map<String, serde_json::Value> = document.value.parse()?;
        let refused = |error: serde_json::Error| InvalidInput::Payload { reason: error.to_string() };
        let value = values.remove(name).map(|value| serde_json::from_value(value).map_err(refused));
        Ok(value.transpose()?)
    }
}

fn hears(record: &Record, run: &str, signal: &str, heard: &Heard) -> Result<Entry, WorkflowError> {
    if !record.signals.iter().any(|name| name == signal) {
        let (run, signal, hears) = (run.to_owned(), signal.to_owned(), record.signals.clone());
        return Err(WorkflowError::UnknownSignal { run, signal, hears });
    }
    Ok(Entry::Heard(heard.clone()))
}

/// A run that is about to be started.
#[must_use = "a run is started when this is awaited, or its batch applied"]
pub struct Start<O> {
    client: Client,
    new: Result<NewRun, InvalidInput>,
    output: PhantomData<fn() -> O>,
}

impl<O> Start<O> {
    fn of(client: &Client, new: Result<NewRun, InvalidInput>) -> Self {
        let new = new.map(|new| NewRun { id: Uuid::now_v7().to_string(), ..new });
        Self { client: client.clone(), new, output: PhantomData }
    }

    fn with(mut self, change: impl FnOnce(&mut NewRun)) -> Self {
        if let Ok(new) = &mut self.new {
            change(new);
        }
        self
    }

    /// The run's id: started again with the same id and input, it is the same run. By default it is a new UUID.
    pub fn id(self, id: impl Into<String>) -> Self {
        self.with(|new| new.id = id.into())
    }

    /// The queue that it stands in: `default`.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.with(|new| new.queue = queue.into())
    }

    /// How urgent it is.
    pub fn priority(self, priority: Priority) -> Self {
        self.with(|new| new.priority = priority)
    }

    /// When it begins.
    pub fn due(self, due: Due) -> Self {
        self.with(|new| new.due = due)
    }

    /// For whom it is: a customer, a tenant. Runs of a queue that are for different ones begin in turn, so that one who starts
    /// thousands does not keep the others waiting. More urgent runs come first all the same.
    pub fn fair_for(self, whose: impl Into<String>) -> Self {
        self.with(|new| new.whose = Some(whose.into()))
    }

    /// The trace of the request that starts it, as the text of a W3C `traceparent` header: its activations are linked to it. A span of a
    /// trace that is entered here comes before it.
    pub fn trace(self, traceparent: impl Into<String>) -> Self {
        self.with(|new| new.trace = Some(traceparent.into()))
    }

    /// A word by which it is found.
    pub fn attribute(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|new| drop(new.attributes.insert(name.into(), value.into())))
    }

    /// The start as a batch, and the id of the run: added to a batch of your own, the run exists if and only if that is applied.
    ///
    /// # Errors
    /// [`WorkflowError::Invalid`] when the id or the input cannot be used.
    pub fn batch(self) -> Result<(String, Batch), WorkflowError> {
        let mut new = self.new?;
        new.started_at = self.client.store.estimated_now();
        Ok((new.id.clone(), new.batch()?.and(self.client.beside)))
    }

    async fn start(self) -> Result<Handle<O>, WorkflowError> {
        let Self { client, new, .. } = self;
        let mut new = new?;
        new.announced = new.whose.is_none() || client.shared_out.lock().contains(&new.queue);
        new.started_at = client.store.estimated_now();
        let handle = Handle::of(&client, &new.id);
        match client.store.apply(new.batch()?.and(client.beside)).await {
            Ok(_) => {
                if !new.announced {
                    handle.client.shared_out.lock().insert(new.queue.clone());
                }
                names::wake(&new.queue);
                Ok(handle)
            }
            Err(error) => {
                if let Some(Refusal::Document { found, .. }) = error.refusal()
                    && let DocumentFound::Present(document) = &**found
                {
                    same(&new, &document.value.parse()?)?;
                    return Ok(handle);
                }
                Err(error.into())
            }
        }
    }
}

/// Whether a run that exists is the one that was to be started.
fn same(new: &NewRun, found: &Record) -> Result<(), WorkflowError> {
    let same_workflow = new.workflow == found.workflow;
    // A run that continued as new has forgotten its first input.
    if same_workflow && (found.generation > 0 || found.input == new.input) {
        return Ok(());
    }
    Err(WorkflowError::Taken { run: new.id.clone(), workflow: found.workflow.clone(), same_workflow })
}

impl<O: 'static> IntoFuture for Start<O> {
    type Output = Result<Handle<O>, WorkflowError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// Starts the run. When this returns, it exists, and will be driven by whichever worker lives.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}

impl<O> fmt::Debug for Start<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Start").field("new", &self.new).finish_non_exhaustive()
    }
}

/// A run, with the type of what it brings.
pub struct Handle<O> {
    client: Client,
    run: String,
    output: PhantomData<fn() -> O>,
}

impl<O> Handle<O> {
    pub(super) fn of(client: &Client, run: &str) -> Self {
        // What was to commit with one change is not for those that come after it.
        Self { client: client.beside(Batch::new()), run: run.to_owned(), output: PhantomData }
    }

    /// The id of the run.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Asks the run to stop: see [`Client::cancel`].
    ///
    /// # Errors
    /// [`WorkflowError`] when it is over.
    pub async fn cancel(&self, reason: &str) -> Result<(), WorkflowError> {
        self.client.cancel(&self.run, reason).await
    }

    /// Sends the run a signal: see [`Client::signal`].
    ///
    /// # Errors
    /// [`WorkflowError`] when it is over, or does not hear the signal.
    pub async fn signal<T: Serialize + Sync>(
        &self,
        signal: Signal<T>,
        value: &T,
    ) -> Result<(), WorkflowError> {
        self.client.signal(&self.run, signal, value).await
    }

    /// How the run stands.
    ///
    /// # Errors
    /// [`WorkflowError`] when there is no such run, or the store cannot be read.
    pub async fn status(&self) -> Result<Status, WorkflowError> {
        Ok(self.record().await?.status)
    }

    async fn record(&self) -> Result<Record, WorkflowError> {
        let found = find(&self.client.store, &self.run).await?;
        Ok(found.ok_or_else(|| WorkflowError::UnknownRun { run: self.run.clone() })?.0)
    }
}

impl<O: DeserializeOwned> Handle<O> {
    /// Waits for the end of the run, wherever it is driven, and answers what it brought.
    ///
    /// # Errors
    /// [`WorkflowError`] when the run failed, was cancelled, or does not exist.
    ///
    /// # Cancel safety
    /// Cancel-safe: the run goes on, and can be awaited again.
    pub async fn result(&self) -> Result<O, WorkflowError> {
        let key = names::run(&self.run)?;
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
                Status::Completed => return Ok(record.output.unwrap_or_default().parse()?),
                Status::Failed => return Err(WorkflowError::Failed { run, failure }),
                Status::Cancelled => return Err(WorkflowError::Cancelled { run, failure }),
                Status::Running => {}
            }
            let looked = Instant::now();
            match &mut hints {
                // At first it is as good as certain that this process drives it, or that it takes a while.
                None => {
                    tokio::select! {
                        () = told => {}
                        () = sleep_until(looked + pause) => hints = Some(self.client.store.watch()),
                    }
                }
                // Hints are many where much is written, so they are not followed too closely.
                Some(hints) => {
                    tokio::select! {
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

impl<O> fmt::Debug for Handle<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.run).finish()
    }
}

impl<O> Clone for Handle<O> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), run: self.run.clone(), output: PhantomData }
    }
}

/// Keeps the compiler's promise that clients can be shared.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Client>();
    shared::<Handle<()>>();
    let _: Option<Arc<Client>> = None;
};
