//! How a run ends, begins anew, and is cancelled.

use super::drive::{Drive, Left};
use super::entry::{ChildEnded, Ending, Entry, Reason, Started};
use super::error::WorkflowError;
use super::names;
use super::new_run::{row, wake};
use super::record::{self, Record};
use super::shared::Counters;
use crate::error::InvalidInput;
use crate::id::{DocVersion, Priority};
use crate::lease::{Committed, signal};
use crate::store::{ApplyError, Batch, Delta, Expect, Refusal, SharedStore};
use crate::telemetry::WORKFLOW;

/// Writes the end of a run, with all that is left to write, in one batch. Whoever waits for it is told.
pub(super) async fn end(drive: &mut Drive, ending: Ending) -> Left {
    let left = drive.left_to_write();
    let batch = match drive
        .batch(&left)
        .and_then(|batch| closing(drive, &ending, batch).map_err(|e| e.to_string()))
    {
        Ok(batch) => batch,
        Err(reason) => return Left::Parked(reason),
    };
    let batch = match told(&drive.shared.store, &drive.started, &ending).await {
        Ok(parent) => batch.and(parent),
        Err(error) => {
            tracing::warn!(target: WORKFLOW, run = drive.started.run, %error, "the end of a run is written later");
            drive.holding.release().await;
            return Left::Lost;
        }
    };
    match drive.holding.commit(batch).await {
        Committed::Done(_) => {}
        Committed::Gone => return Left::Lost,
        Committed::Refused(refusal) => return Left::Parked(refusal.to_string()),
    }
    let counters = &drive.shared.counters;
    let ends = |entry: &Entry| matches!(entry, Entry::Done(_) | Entry::GaveUp(_));
    let steps = left.iter().filter(|outgoing| outgoing.entry.as_ref().is_some_and(ends)).count();
    Counters::add(&counters.steps, steps as u64);
    if !matches!(ending, Ending::Continued(_)) {
        Counters::add(&counters.ended, 1);
        signal::changed(&drive.grant.row.key);
    }
    // Its parent, or itself anew. A parent's queue is that of its children, unless somebody started them elsewhere.
    if drive.started.parent.is_some() || matches!(ending, Ending::Continued(_)) {
        names::wake(&drive.started.queue);
    }
    Left::Ended
}

fn closing(drive: &Drive, ending: &Ending, batch: Batch) -> Result<Batch, InvalidInput> {
    let (started, run) = (&drive.started, &drive.grant.row.key);
    let mut deltas = record::ended(ending)?;
    let mut batch = batch.append(&drive.journal, Expect::Any, [Entry::Ended(ending.clone()).event()?]);
    batch = batch.ack(drive.holding.lease());
    if let Ending::Continued(input) = ending {
        let generation = started.generation.saturating_add(1);
        let again = Started { generation, input: input.clone(), ..started.clone() };
        let mut events = vec![Entry::Started(Box::new(again)).event()?];
        for heard in drive.cell.unheard() {
            events.push(Entry::Heard(heard).event()?);
        }
        let journal = names::journal(&started.run, generation)?;
        let priority = Priority::new(started.priority)?;
        deltas.push(Delta::set("/generation", generation));
        batch = batch.append(&journal, Expect::Any, events);
        batch = batch.enqueue(row(&started.run, &started.queue, priority, generation)?);
    }
    Ok(batch.merge(run, deltas))
}

/// What a parent is told.
async fn told(store: &SharedStore, started: &Started, ending: &Ending) -> Result<Batch, WorkflowError> {
    let (Some(parent), false) = (&started.parent, matches!(ending, Ending::Continued(_))) else {
        return Ok(Batch::new());
    };
    let Some((record, _)) = find(store, &parent.run).await? else { return Ok(Batch::new()) };
    if record.status.is_over() {
        return Ok(Batch::new());
    }
    let (name, run) = (parent.name.clone(), started.run.clone());
    let entry = Entry::ChildEnded(ChildEnded { name, run, ending: ending.clone() });
    let journal = names::journal(&parent.run, record.generation)?;
    let told = Batch::new().append(&journal, Expect::Any, [entry.event()?]);
    Ok(told.enqueue(wake(&parent.run, &record)?))
}

/// The document of a run.
pub(super) async fn find(
    store: &SharedStore,
    run: &str,
) -> Result<Option<(Record, DocVersion)>, WorkflowError> {
    let Some(document) = store.document(&names::run(run)?).await? else { return Ok(None) };
    Ok(Some((document.value.parse()?, document.version)))
}

/// Tells a run something while it runs. What races with its end is refused, or heard: never lost.
pub(super) async fn tell(
    store: &SharedStore,
    run: &str,
    asked: &'static str,
    entry: impl Fn(&Record) -> Result<Entry, WorkflowError>,
) -> Result<(), WorkflowError> {
    loop {
        let unknown = || WorkflowError::UnknownRun { run: run.to_owned() };
        let (record, version) = find(store, run).await?.ok_or_else(unknown)?;
        if record.status.is_over() {
            return Err(WorkflowError::Over { run: run.to_owned(), status: record.status, asked });
        }
        let journal = names::journal(run, record.generation)?;
        let key = names::run(run)?;
        let batch = Batch::new()
            .guard_document(&key, Expect::Exact(version))
            .append(&journal, Expect::Any, [entry(&record)?.event()?])
            .enqueue(wake(run, &record)?);
        match store.apply(batch).await {
            Ok(_) => {
                names::wake(&record.queue);
                return Ok(());
            }
            // It changed meanwhile: perhaps it is over.
            Err(ApplyError::Refused(refusal)) if matches!(*refusal, Refusal::Document { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Asks a run to stop.
pub(super) async fn cancel(store: &SharedStore, run: &str, reason: &str) -> Result<(), WorkflowError> {
    let entry = Entry::Cancel(Reason { reason: reason.to_owned() });
    tell(store, run, "cancelled", |_| Ok(entry.clone())).await
}
