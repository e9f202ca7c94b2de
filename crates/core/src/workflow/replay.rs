//! Replay of recorded histories against new code, before it is deployed. Code that would suspend a run in production is an
//! error in a test.

use std::sync::Arc;
use std::task::{Context, Waker};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::activation::{Activation, ActivationRef};
use super::client::WorkflowClient;
use super::ctx::Ctx;
use super::definition::Workflow;
use super::engine::RunFuture;
use super::error::WorkflowError;
use super::journal_entry::{JournalEntry, Placed, Started};
use super::life::Life;
use super::nondeterminism::Nondeterminism;
use super::resumed::counting;
use super::worker::{WorkflowFn, begin_of};
use super::{context_guard, driver, journal, keys};
use crate::error::{Code, Explain as _};
use crate::store::Event;

/// The recorded history of a run, from its journal. It can be kept as JSON, beside the tests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunHistory(pub(super) Vec<Event>);

/// The point that a replay reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// The workflow ended, or continued as new.
    ToItsEnd,
    /// All recorded entries were delivered, and the workflow waits for more.
    AsFarAsRecorded,
}

impl WorkflowClient {
    /// Returns the history of a run so far, for [`replay`].
    ///
    /// # Errors
    /// [`WorkflowError`] when the run does not exist, or its journal cannot be read.
    pub async fn history(&self, run: &str) -> Result<RunHistory, WorkflowError> {
        let unknown = || WorkflowError::UnknownRun { run: run.to_owned() };
        let (record, _) = super::completion::find(&self.store, run).await?.ok_or_else(unknown)?;
        let journal = keys::journal(run, record.generation)?;
        Ok(RunHistory(journal::events(&self.store, &journal, None).await?))
    }
}

/// The reason why code does not fit a history. A worker would suspend the run with it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("run {run:?}: {}{reason}", .code.map(|code| format!("{code}: ")).unwrap_or_default())]
pub struct ReplayError {
    /// The run whose history it is.
    pub run: String,
    /// The code of the page that explains it, where there is one.
    pub code: Option<Code>,
    /// The fault. A difference shows recorded and requested operations side by side.
    pub reason: String,
}

impl ReplayError {
    fn new(run: &str, reason: impl Into<String>) -> Self {
        Self { run: run.to_owned(), code: None, reason: reason.into() }
    }

    fn broken(run: &str, broken: &Nondeterminism) -> Self {
        Self { code: Some(broken.code()), ..Self::new(run, broken.to_string()) }
    }
}

/// Replays a history against code. No step runs, and no store is needed.
///
/// # Errors
/// [`ReplayError`] with the reason why a worker would suspend the run: code that differs from the history, a value or an input
/// that does not fit, a name that is used twice, a panic.
pub fn replay<I, O, F>(
    workflow: Workflow<I, O>,
    code: F,
    history: &RunHistory,
) -> Result<Replayed, ReplayError>
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + 'static,
    F: for<'a> WorkflowFn<'a, I, O> + 'static,
{
    let entries = history.0.iter().map(Placed::of).collect::<Result<Vec<_>, _>>();
    let entries = entries.map_err(|error| ReplayError::new("?", error.to_string()))?;
    let Some((Placed { entry: JournalEntry::Started(started), .. }, rest)) = entries.split_first() else {
        return Err(ReplayError::new("?", "the history does not begin with the start of a run"));
    };
    let Started { run, workflow: recorded, generation, queue, heard, input, .. } = &**started;
    if recorded != workflow.name() {
        let reason = format!("the history is of workflow {recorded:?}, the code of {:?}", workflow.name());
        return Err(ReplayError::new(run, reason));
    }
    let activation = Activation::new(counting(rest.to_vec()), heard);
    let life = Life {
        run: run.as_str().into(),
        identity: keys::identity(run, *generation).into(),
        generation: *generation,
        queue: queue.clone(),
        activation: Arc::clone(&activation),
        hold: None,
        token: CancellationToken::new(),
        again: false,
        takeovers: 0,
    };
    let begun = context_guard::in_workflow(&activation, || begin_of(code)(Ctx::new(life), input));
    let future =
        begun.map_err(|error| ReplayError::new(run, format!("its input does not fit the code: {error}")))?;
    deliver_all(&activation, future).map_err(|broken| ReplayError::broken(run, &broken))
}

/// Delivers all recorded entries to the code.
fn deliver_all(activation: &ActivationRef, mut future: RunFuture) -> Result<Replayed, Nondeterminism> {
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let polled = driver::poll(activation, &mut future, &mut context);
        let mut activation = activation.lock();
        if let Some(broken) = activation.broken() {
            return Err(broken.clone());
        }
        if polled.is_ready() || activation.continues_as_new() {
            return activation.ended_early().map_or(Ok(Replayed::ToItsEnd), Err);
        }
        if !activation.deliver_next() {
            return Ok(Replayed::AsFarAsRecorded);
        }
    }
}
