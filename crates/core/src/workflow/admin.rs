//! Operator actions on runs: resume a failed run, and fork a run from a step.

use super::client::{RunHandle, WorkflowClient};
use super::completion::find;
use super::error::WorkflowError;
use super::journal_entry::{ChildEnded, Ending, GaveUp, JournalEntry, OpId, Placed, Reason, Started, Tried};
use super::keys;
use super::resumed::{counting, failed_children, open_children, unhandled};
use super::run_record::{Record, RunStatus};
use super::saga::UNDO;
use super::start::{NewRun, wake};
use crate::failure::Failure;
use crate::id::{DocVersion, Priority};
use crate::store::limits::BATCH_EVENTS;
use crate::store::{Batch, Delta, Expect, NewEvent, Operation, Selection};

impl WorkflowClient {
    /// Resumes a run. A failed run retries the step or child that failed it, with a fresh retry budget, and keeps its other
    /// results. A suspended or blocked run is retried at once.
    ///
    /// # Errors
    /// [`WorkflowError`] when the run does not exist, ended in another way, is a failed child, or has already undone its steps.
    pub async fn resume(&self, run: &str, reason: &str) -> Result<(), WorkflowError> {
        let unknown = || WorkflowError::UnknownRun { run: run.to_owned() };
        let (record, version) = find(&self.store, run).await?.ok_or_else(unknown)?;
        let batch = match record.status {
            RunStatus::Running => self.prodded(run, &record, version).await?,
            RunStatus::Failed if record.parent.is_some() => {
                return Err(not_resumed(
                    run,
                    "its parent has recorded the failure; resume or fork the parent",
                ));
            }
            RunStatus::Failed => self.resumed(run, reason, &record, version).await?,
            status => return Err(WorkflowError::Over { run: run.to_owned(), status, asked: "resumed" }),
        };
        self.store.apply(batch.and(self.beside.clone())).await?;
        keys::wake(&record.queue);
        Ok(())
    }

    /// Returns the batch that makes a running run due at once. It enqueues the work row again if that was removed.
    async fn prodded(&self, run: &str, record: &Record, version: DocVersion) -> Result<Batch, WorkflowError> {
        let key = keys::run(run)?;
        let rows = || Selection::Keys(vec![key.clone()]);
        let batch = match self.store.work(&key).await? {
            Some(_) => Batch::new(),
            None => Batch::new().guard_document(&key, Expect::Exact(version)).enqueue(wake(run, record)?),
        };
        Ok(batch.operate(rows(), Operation::Unblock).operate(rows(), Operation::RetryNow))
    }

    /// Returns the batch that resumes a failed run, and the children whose failures it did not handle.
    async fn resumed(
        &self,
        run: &str,
        reason: &str,
        record: &Record,
        version: DocVersion,
    ) -> Result<Batch, WorkflowError> {
        let entries = counting(self.journal(run).await?);
        if !matches!(entries.first(), Some(Placed { entry: JournalEntry::Started(_), .. })) {
            return Err(not_resumed(run, "its history was removed"));
        }
        let undone = |placed: &Placed| placed.entry.op().is_some_and(|(op, _)| op.name.contains(UNDO));
        if entries.iter().any(undone) {
            return Err(not_resumed(run, "it has taken back what it did; fork it instead"));
        }
        let entry = JournalEntry::Resumed(Reason { reason: reason.to_owned() });
        let key = keys::run(run)?;
        let mut batch = Batch::new()
            .guard_document(&key, Expect::Exact(version))
            .append(&keys::journal(run, record.generation)?, Expect::Any, [entry.event()?])
            .merge(
                &key,
                [
                    Delta::set("/status", RunStatus::Running.word()),
                    Delta::remove("/failure"),
                    Delta::remove("/ended_at"),
                ],
            )
            .enqueue(wake(run, record)?);
        batch = record.indexed(run).change(batch, record.status, RunStatus::Running)?;
        for (name, child) in open_children(&entries) {
            batch = batch.and(self.missed_end(run, record, name, child).await?);
        }
        for child in failed_children(&entries) {
            let (record, version) = self.child(run, &child).await?;
            batch = batch.and(match record.status {
                RunStatus::Failed => Box::pin(self.resumed(&child, reason, &record, version)).await?,
                // The child reports its end itself.
                RunStatus::Running => {
                    Batch::new().guard_document(&keys::run(&child)?, Expect::Exact(version))
                }
                status => {
                    return Err(not_resumed(
                        run,
                        &format!("its child {child:?} is {status}; fork it instead"),
                    ));
                }
            });
        }
        Ok(batch)
    }

    /// Reads a child of a run that is resumed.
    async fn child(&self, run: &str, child: &str) -> Result<(Record, DocVersion), WorkflowError> {
        let gone = || not_resumed(run, &format!("its child {child:?} was removed; fork it instead"));
        find(&self.store, child).await?.ok_or_else(gone)
    }

    /// Returns the batch that reports to a resumed run a child that ended while the run had failed. A child that has not ended
    /// will report its end itself.
    async fn missed_end(
        &self,
        run: &str,
        parent: &Record,
        name: String,
        child: String,
    ) -> Result<Batch, WorkflowError> {
        let (record, version) = self.child(run, &child).await?;
        let unchanged = Batch::new().guard_document(&keys::run(&child)?, Expect::Exact(version));
        let failure = record.failure.unwrap_or_else(|| Failure::new("it does not say why"));
        let ending = match record.status {
            RunStatus::Running => return Ok(unchanged),
            RunStatus::Completed => Ending::Completed(record.output.unwrap_or_default()),
            RunStatus::Failed => Ending::Failed(failure),
            RunStatus::Cancelled => Ending::Cancelled(failure),
        };
        let entry = JournalEntry::ChildEnded(ChildEnded { name, run: child, ending });
        let journal = keys::journal(run, parent.generation)?;
        Ok(unchanged.append(&journal, Expect::Any, [entry.event()?]))
    }

    /// Starts a run with the history of another run before a step, and continues from there. The other run stays unchanged.
    ///
    /// # Errors
    /// [`WorkflowError`] when the run or the step does not exist, the new id is taken, or the history is too long for one batch.
    pub async fn fork(
        &self,
        run: &str,
        from: &str,
        id: &str,
    ) -> Result<RunHandle<serde_json::Value>, WorkflowError> {
        let refused =
            |reason: String| WorkflowError::Refused { run: run.to_owned(), asked: "forked", reason };
        let unknown = || WorkflowError::UnknownRun { run: run.to_owned() };
        let (record, _) = find(&self.store, run).await?.ok_or_else(unknown)?;
        let entries = self.journal(run).await?;
        let Some(Placed { entry: JournalEntry::Started(started), .. }) = entries.first() else {
            return Err(refused("its history was removed".to_owned()));
        };
        let started = started.clone();
        let history = before(counting(entries), from)
            .ok_or_else(|| refused(format!("it has no step {from:?}; see its steps for their names")))?;
        if history.len() + 1 > BATCH_EVENTS {
            return Err(refused(format!("{} entries are too many for one batch", history.len())));
        }
        let events = history.iter().map(JournalEntry::event).collect::<Result<Vec<NewEvent>, _>>()?;
        let new = NewRun { started_at: self.store.estimated_now(), ..forked(&started, record, id)? };
        let batch = new.batch_with(events)?.and(self.beside.clone());
        let key = keys::run(id)?;
        self.store.apply(batch).await.map_err(|error| match error.refusal() {
            Some(crate::store::Refusal::Document { key: found, .. }) if *found == key => {
                WorkflowError::Taken {
                    run: id.to_owned(),
                    workflow: started.workflow.clone(),
                    same_workflow: true,
                }
            }
            _ => error.into(),
        })?;
        keys::wake(&new.queue);
        Ok(RunHandle::of(self, id))
    }
}

fn not_resumed(run: &str, reason: &str) -> WorkflowError {
    WorkflowError::Refused { run: run.to_owned(), asked: "resumed", reason: reason.to_owned() }
}

/// Returns the history of a run before the first entry of a step. A child that has not ended belongs to the other run, and
/// is left out.
fn before(entries: Vec<Placed>, step: &str) -> Option<Vec<JournalEntry>> {
    let named = |placed: &Placed| placed.entry.op().is_some_and(|(op, _)| op.name == step);
    let cut = entries.iter().position(named)?;
    // Failures that the run handled stay handled.
    let unhandled = unhandled(&entries);
    let retried = |op: &OpId| unhandled.contains(&op.name);
    let entries: Vec<JournalEntry> = entries.into_iter().take(cut).map(|placed| placed.entry).collect();
    let ended = |name: &str| {
        entries.iter().any(|entry| matches!(entry, JournalEntry::ChildEnded(e) if e.name == name))
    };
    let kept = |entry: &&JournalEntry| match entry {
        JournalEntry::Started(_) | JournalEntry::Ended(_) | JournalEntry::Cancel(_) => false,
        JournalEntry::GaveUp(GaveUp { op, .. }) | JournalEntry::ChildRefused(GaveUp { op, .. }) => {
            !retried(op)
        }
        JournalEntry::Tried(Tried { op, .. }) => !retried(op),
        JournalEntry::ChildStarted(started) => ended(&started.op.name),
        _ => true,
    };
    Some(entries.iter().filter(kept).cloned().collect())
}

fn forked(started: &Started, record: Record, id: &str) -> Result<NewRun, WorkflowError> {
    let mut new = NewRun::named(&started.workflow, record.signals, started.input.clone());
    id.clone_into(&mut new.id);
    new.queue.clone_from(&started.queue);
    new.priority = Priority::new(started.priority)?;
    new.attributes = record.attributes;
    Ok(new)
}
