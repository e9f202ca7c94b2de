//! Read-only views of runs. Reading a run neither drives it nor changes it.

use serde::Serialize;

use super::client::WorkflowClient;
use super::completion::find;
use super::error::WorkflowError;
use super::journal_entry::{Attributes, Placed};
use super::run_record::{Record, RunStatus};
use super::steps::{self, StepView};
use super::suspension::{self, Suspension};
use super::{journal, keys};
use crate::clock::Timestamp;
use crate::id::{Fence, Owner};
use crate::lease::NEVER;
use crate::payload::Payload;
use crate::store::{Get, StoredDocument, WorkRow};

/// The current activity of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "doing")]
pub enum RunActivity {
    /// A worker drives it.
    Driven {
        /// The owner of the lease.
        by: Owner,
        /// When the lease expires, unless it is renewed.
        until: Timestamp,
        /// The fencing token of the worker's writes.
        fence: Fence,
    },
    /// It waits for a worker.
    Due,
    /// It waits for its start, a timer, the next attempt of a step, a signal or a child.
    Waits {
        /// When it is due. `None` when it waits for signals or children alone.
        until: Option<Timestamp>,
    },
    /// It is suspended: no worker could continue it. It is retried after a backoff.
    Suspended {
        /// The reason, as data.
        suspension: Suspension,
        /// The reason, as text.
        reason: String,
        /// When it is retried.
        next: Timestamp,
    },
    /// An operator must unblock it.
    Blocked {
        /// The reason.
        reason: String,
    },
    /// It has ended.
    Over,
}

/// A view of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunView {
    /// Its id.
    pub run: String,
    /// Its workflow.
    pub workflow: String,
    /// Its status.
    pub status: RunStatus,
    /// Its current activity.
    #[serde(flatten)]
    pub doing: RunActivity,
    /// Its queue.
    pub queue: String,
    /// Its priority.
    pub priority: u8,
    /// How often it continued as new.
    pub generation: u32,
    /// The input of its current generation.
    pub input: Payload,
    /// Its output, when it is completed.
    pub output: Option<Payload>,
    /// Why it failed or was cancelled.
    pub failure: Option<String>,
    /// The run that waits for it.
    pub parent: Option<String>,
    /// The signals that it accepts.
    pub signals: Vec<String>,
    /// The attributes by which it is found.
    pub attributes: Attributes,
    /// When it was started, by the store's clock as its starter estimated it.
    pub started_at: Timestamp,
    /// When it ended, by the store's clock as its worker estimated it. A resume clears it.
    pub ended_at: Option<Timestamp>,
    /// When its document was last changed.
    pub changed_at: Timestamp,
}

impl WorkflowClient {
    /// Returns one run.
    ///
    /// # Errors
    /// [`WorkflowError`] when the run does not exist, or the store cannot be read.
    pub async fn show(&self, run: &str) -> Result<RunView, WorkflowError> {
        let key = keys::run(run)?;
        let unknown = || WorkflowError::UnknownRun { run: run.to_owned() };
        let mut found = self.store.read(&[Get::Document(key.clone()), Get::Work(key)]).await?;
        let document = found.take_document(0).ok_or_else(unknown)?;
        let record: Record = document.value.parse()?;
        let doing = doing_of(&record, found.take_work(1), found.now);
        Ok(RunView::new(run.to_owned(), record, &document, doing))
    }

    /// Returns the operations that a run has requested so far, in the order in which they were recorded.
    ///
    /// # Errors
    /// [`WorkflowError`] when the run does not exist, or its journal cannot be read.
    pub async fn steps(&self, run: &str) -> Result<Vec<StepView>, WorkflowError> {
        let entries = self.journal(run).await?;
        Ok(steps::of(&entries))
    }

    /// Reads the entries of a run's journal.
    pub(super) async fn journal(&self, run: &str) -> Result<Vec<Placed>, WorkflowError> {
        let unknown = || WorkflowError::UnknownRun { run: run.to_owned() };
        let (record, _) = find(&self.store, run).await?.ok_or_else(unknown)?;
        let journal = keys::journal(run, record.generation)?;
        journal::read(&self.store, &journal, None).await
    }
}

impl RunView {
    pub(super) fn new(run: String, record: Record, document: &StoredDocument, doing: RunActivity) -> Self {
        Self {
            run,
            workflow: record.workflow,
            status: record.status,
            doing,
            queue: record.queue,
            priority: record.priority,
            generation: record.generation,
            input: record.input,
            output: record.output,
            failure: record.failure.map(|failure| failure.message().to_owned()),
            parent: record.parent.map(|parent| parent.run),
            signals: record.signals,
            attributes: record.attributes,
            started_at: record.started_at,
            ended_at: record.ended_at,
            changed_at: document.updated_at,
        }
    }
}

/// Returns the activity of a run, from its document and its work row.
pub(super) fn doing_of(record: &Record, row: Option<WorkRow>, now: Timestamp) -> RunActivity {
    if record.status.is_over() {
        return RunActivity::Over;
    }
    row.map_or(RunActivity::Due, |row| doing(row, now))
}

/// Returns the activity that the work row of a run shows.
fn doing(row: WorkRow, now: Timestamp) -> RunActivity {
    if let Some(blocked) = row.blocked {
        return RunActivity::Blocked { reason: blocked.reason };
    }
    let reason = suspension::reason(&row);
    if let Some(lease) = row.lease.filter(|lease| lease.until > now) {
        return RunActivity::Driven { by: lease.owner, until: lease.until, fence: lease.fence };
    }
    match (row.due, reason) {
        (Some(next), Some(suspension)) if row.attempts > 0 => {
            RunActivity::Suspended { reason: suspension.to_string(), suspension, next }
        }
        (Some(due), _) if due.has_come(now) => RunActivity::Due,
        (due, _) => RunActivity::Waits { until: due.filter(|due| *due != NEVER) },
    }
}
