//! Runs as others see them: without driving them, and without taking anything from them.

use serde::Serialize;

use super::client::Client;
use super::end::find;
use super::entry::{Attributes, Placed};
use super::error::WorkflowError;
use super::record::{Record, Status};
use super::steps::{self, StepView};
use super::suspension::{self, Suspension};
use super::{journal, names};
use crate::clock::Timestamp;
use crate::id::{Fence, Owner};
use crate::lease::NEVER;
use crate::payload::Payload;
use crate::store::{Document, Get, WorkRow};

/// What a run does at the moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "doing")]
pub enum Doing {
    /// A worker drives it.
    Driven {
        /// Who.
        by: Owner,
        /// Until when, unless the lease is renewed.
        until: Timestamp,
        /// The fence of the worker's writes.
        fence: Fence,
    },
    /// It waits for a worker.
    Due,
    /// It waits for a timer or the next attempt of a step until then; for signals or children alone, when there is no instant.
    Waits {
        /// When it goes on by itself.
        until: Option<Timestamp>,
    },
    /// It is suspended: no worker could continue it. It is tried again.
    PutOff {
        /// The reason, as data.
        suspension: Suspension,
        /// The reason, as text.
        reason: String,
        /// When it is tried next.
        next: Timestamp,
    },
    /// An operator must unblock it.
    Blocked {
        /// Why.
        reason: String,
    },
    /// Nothing: it is over.
    Over,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunView {
    /// Its id.
    pub run: String,
    /// Its workflow.
    pub workflow: String,
    /// How it stands.
    pub status: Status,
    /// What it does at the moment.
    #[serde(flatten)]
    pub doing: Doing,
    /// The queue that it stands in.
    pub queue: String,
    /// How urgent it is.
    pub priority: u8,
    /// How often it began anew.
    pub generation: u32,
    /// What it was given.
    pub input: Payload,
    /// What it brought, when it is completed.
    pub output: Option<Payload>,
    /// Why it failed or was cancelled.
    pub failure: Option<String>,
    /// The run that waits for it.
    pub parent: Option<String>,
    /// The signals that it hears.
    pub signals: Vec<String>,
    /// Words by which it is found.
    pub attributes: Attributes,
    /// When it was started, by the store's clock as its starter knew it.
    pub started_at: Timestamp,
    /// When it ended, by the store's clock as its worker knew it. A run that is resumed has not ended.
    pub ended_at: Option<Timestamp>,
    /// When its document was last changed.
    pub changed_at: Timestamp,
}

impl Client {
    /// One run.
    ///
    /// # Errors
    /// [`WorkflowError`] when there is no such run, or the store cannot be read.
    pub async fn show(&self, run: &str) -> Result<RunView, WorkflowError> {
        let key = names::run(run)?;
        let unknown = || WorkflowError::UnknownRun { run: run.to_owned() };
        let mut found = self.store.read(&[Get::Document(key.clone()), Get::Work(key)]).await?;
        let document = found.take_document(0).ok_or_else(unknown)?;
        let record: Record = document.value.parse()?;
        let doing = doing_of(&record, found.take_work(1), found.now);
        Ok(RunView::new(run.to_owned(), record, &document, doing))
    }

    /// What a run has asked for so far, in the order in which that was recorded.
    ///
    /// # Errors
    /// [`WorkflowError`] when there is no such run, or its journal cannot be read.
    pub async fn steps(&self, run: &str) -> Result<Vec<StepView>, WorkflowError> {
        let entries = self.journal(run).await?;
        Ok(steps::of(&entries))
    }

    /// The entries of a run's journal.
    pub(super) async fn journal(&self, run: &str) -> Result<Vec<Placed>, WorkflowError> {
        let unknown = || WorkflowError::UnknownRun { run: run.to_owned() };
        let (record, _) = find(&self.store, run).await?.ok_or_else(unknown)?;
        let journal = names::journal(run, record.generation)?;
        journal::read(&self.store, &journal, None).await
    }
}

impl RunView {
    pub(super) fn new(run: String, record: Record, document: &Document, doing: Doing) -> Self {
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
            failure: record.failure.map(|failure| failure.message),
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
pub(super) fn doing_of(record: &Record, row: Option<WorkRow>, now: Timestamp) -> Doing {
    if record.status.is_over() {
        return Doing::Over;
    }
    row.map_or(Doing::Due, |row| doing(row, now))
}

/// What the work row of a run says.
fn doing(row: WorkRow, now: Timestamp) -> Doing {
    if let Some(blocked) = row.blocked {
        return Doing::Blocked { reason: blocked.reason };
    }
    let reason = suspension::reason(&row);
    if let Some(lease) = row.lease.filter(|lease| lease.until > now) {
        return Doing::Driven { by: lease.owner, until: lease.until, fence: lease.fence };
    }
    match (row.due, reason) {
        (Some(next), Some(suspension)) if row.attempts > 0 => {
            Doing::PutOff { reason: suspension.to_string(), suspension, next }
        }
        (Some(due), _) if due.has_come(now) => Doing::Due,
        (due, _) => Doing::Waits { until: due.filter(|due| *due != NEVER) },
    }
}
