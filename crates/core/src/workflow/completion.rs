//! Completion, continuation as new, and cancellation of runs.

use super::activation::Outgoing;
use super::client::WorkflowClient;
use super::driver::{ActivationResult, Drive, DriverFlow, JournalChange};
use super::error::WorkflowError;
use super::index::Indexed;
use super::journal_entry::{ChildEnded, Ending, JournalEntry, Reason, Started};
use super::keys;
use super::run_record::{self, Record, RunStatus};
use super::start::{row, wake};
use super::suspension::Suspension;
use crate::clock::{Due, Timestamp};
use crate::error::InvalidInput;
use crate::failure::Failure;
use crate::id::{DocVersion, Priority, StreamVersion};
use crate::key::Key;
use crate::model::limits::ERROR_BYTES;
use crate::payload::Payload;
use crate::store::limits::{BATCH_BYTES, BATCH_EVENTS, PAYLOAD_BYTES, TRUNCATE_EVENTS};
use crate::store::{
    ApplyError, Batch, Delta, Expect, NewEvent, Refusal, SharedStore, StreamInfo, StreamQuery,
};
use crate::telemetry::{self, WORKFLOW};
use crate::worker::{Committed, local_notify};

/// Commits the end of a run, with all outgoing entries, in one batch, and notifies the waiters.
///
/// Returns `None` when the driver must rewind: a step that the workflow dropped has recorded its end, or entries of others
/// precede the outgoing entries. The run fails when its output does not fit into its document beside the input.
pub(super) async fn end(drive: &mut Drive, mut ending: Ending) -> Option<ActivationResult> {
    let left = drive.take_outgoing();
    let rejectable = left.iter().any(Outgoing::may_be_refused);
    let at = loop {
        match write_end(drive, &left, &ending).await {
            Ok(at) => break at,
            Err(Unwritten::Behind) if left.is_empty() => match drive.read_news(None).await {
                Ok(JournalChange::Overtaken) => return None,
                Ok(_) => {
                    if let Err(left) = drive.deliver_rest().await {
                        return Some(left);
                    }
                }
                Err(_) => return Some(ActivationResult::Lost),
            },
            // Entries of others precede results that the workflow received ahead of the journal. A replay may take another path.
            Err(Unwritten::Behind) => {
                return match drive.write_rest(left).await {
                    DriverFlow::Gone => Some(ActivationResult::Lost),
                    DriverFlow::On | DriverFlow::Rewind => None,
                };
            }
            Err(Unwritten::Changed) => {}
            Err(Unwritten::Invalid(reason)) if !rejectable && matches!(ending, Ending::Completed(_)) => {
                let failure = Failure::permanent(format!("its output cannot be recorded: {reason}"));
                ending = Ending::Failed(failure.truncated(ERROR_BYTES));
            }
            Err(Unwritten::Invalid(reason)) => {
                return Some(ActivationResult::Parked(Suspension::rejected(reason)));
            }
            Err(Unwritten::For(left)) => return Some(left),
        }
    };
    report_end(drive, &left, &ending, at);
    Some(ActivationResult::Ended)
}

/// The reason why an end was not committed.
enum Unwritten {
    /// The journal has entries that the driver has not read.
    Behind,
    /// The parent has changed.
    Changed,
    /// It exceeds a limit.
    Invalid(String),
    For(ActivationResult),
}

async fn write_end(drive: &mut Drive, left: &[Outgoing], ending: &Ending) -> Result<Timestamp, Unwritten> {
    // A concurrent signal or cancel is either read before the end, or rejected because the run has ended.
    let exact = Expect::Exact(drive.last());
    let batch = match drive
        .batch_at(left, exact)
        .and_then(|batch| closing(drive, left, ending, batch).map_err(|e| e.to_string()))
    {
        Ok(batch) => batch,
        Err(reason) => return Err(Unwritten::For(ActivationResult::Parked(Suspension::rejected(reason)))),
    };
    let parent = drive.started.parent.as_ref().and_then(|parent| keys::run(&parent.run).ok());
    let batch = match parent_report(&drive.shared.worker.store, &drive.started, ending).await {
        Ok(parent) => batch.and(parent),
        Err(error) => {
            tracing::warn!(target: WORKFLOW, run = drive.started.run, %error, "the end of a run is written later");
            drive.holding.release().await;
            return Err(Unwritten::For(ActivationResult::Lost));
        }
    };
    match drive.holding.commit(batch).await {
        Committed::Done(receipt) => Ok(receipt.at),
        Committed::Gone => Err(Unwritten::For(ActivationResult::Lost)),
        Committed::Refused(refusal) => Err(match &*refusal {
            Refusal::Stream { stream, .. } if *stream == drive.journal => Unwritten::Behind,
            Refusal::Document { key, .. } if Some(key) == parent.as_ref() => Unwritten::Changed,
            Refusal::Invalid(_) => Unwritten::Invalid(refusal.to_string()),
            _ => Unwritten::For(ActivationResult::Parked(Suspension::rejected(refusal))),
        }),
    }
}

/// Counts an end, and wakes the waiters of this process.
fn report_end(drive: &Drive, left: &[Outgoing], ending: &Ending, at: Timestamp) {
    let counters = &drive.shared.counters;
    let ends = |entry: &JournalEntry| matches!(entry, JournalEntry::Done(_) | JournalEntry::GaveUp(_));
    let steps = left.iter().filter(|outgoing| outgoing.entry.as_ref().is_some_and(ends)).count();
    counters.steps.add(steps);
    counters.ended.add(1);
    let (status, took) = (run_record::status(ending).word(), at.since(drive.grant.row.enqueued_at));
    telemetry::seconds_by(telemetry::RUN_SECONDS, status, took);
    local_notify::notify(&drive.grant.row.key);
    // A child runs in the queue of its parent, so this wakes the workers that may drive the parent.
    if drive.started.parent.is_some() {
        keys::wake(&drive.started.queue);
    }
}

fn closing(drive: &Drive, left: &[Outgoing], ending: &Ending, batch: Batch) -> Result<Batch, InvalidInput> {
    let ended = JournalEntry::Ended(ending.clone()).event_by(drive.holding.lease())?;
    // Outgoing entries precede the end in the same batch, and their append already carries the expected version.
    let entries = left.iter().any(|outgoing| outgoing.entry.is_some());
    let expected = if entries { Expect::Any } else { Expect::Exact(drive.last()) };
    let batch = batch.append(&drive.journal, expected, [ended]).ack(drive.holding.lease());
    let batch = batch.merge(&drive.grant.row.key, run_record::ended(ending, drive.now())?);
    let Started { run, workflow, started_at, .. } = &drive.started;
    let indexed = Indexed { run, workflow, started_at: *started_at };
    indexed.change(batch, RunStatus::Running, run_record::status(ending))
}

/// Ends this generation of a run and begins the next in one batch. Signals that do not fit into the batch are written to the
/// next journal first, which has no reader until the generation changes. Returns `None` when others have written to the
/// journal: the workflow must receive their entries first.
pub(super) async fn begin_anew(drive: &mut Drive, input: Payload) -> Option<ActivationResult> {
    match anew(drive, &input).await {
        Ok(left) => left,
        Err(WorkflowError::Store(error)) => {
            tracing::warn!(target: WORKFLOW, run = drive.started.run, %error, "next journal not read");
            drive.holding.release().await;
            Some(ActivationResult::Lost)
        }
        Err(error) => Some(ActivationResult::Parked(Suspension::rejected(error))),
    }
}

async fn anew(drive: &mut Drive, input: &Payload) -> Result<Option<ActivationResult>, WorkflowError> {
    let journal = keys::journal(&drive.started.run, drive.started.generation.saturating_add(1))?;
    let mut parts = parts(beginning(drive, input)?);
    let last = parts.pop().unwrap_or_default();
    let mut is_new = parts.is_empty();
    loop {
        let expected = if is_new { Some(Expect::Absent) } else { stage(drive, &journal, &parts).await? };
        let Some(expected) = expected else { return Ok(Some(ActivationResult::Lost)) };
        let batch = turn(drive, input)?.append(&journal, expected, last.clone());
        match drive.holding.commit(batch).await {
            Committed::Done(_) => {
                keys::wake(&drive.started.queue);
                return Ok(Some(ActivationResult::Ended));
            }
            Committed::Gone => return Ok(Some(ActivationResult::Lost)),
            Committed::Refused(refusal) => match &*refusal {
                // The journal has signals of an attempt that was cut short, or entries of an earlier run with the same id.
                Refusal::Stream { stream, .. } if *stream == journal => is_new = false,
                Refusal::Stream { .. } => return Ok(None),
                _ => return Ok(Some(ActivationResult::Parked(Suspension::rejected(refusal)))),
            },
        }
    }
}

/// Returns the entries with which the next generation begins.
fn beginning(drive: &Drive, input: &Payload) -> Result<Vec<NewEvent>, InvalidInput> {
    let (started, activation) = (&drive.started, drive.activation.lock());
    let generation = started.generation.saturating_add(1);
    let heard = activation.signal_ids(PAYLOAD_BYTES.saturating_sub(input.len() + 64 * 1024));
    let again = Started { generation, input: input.clone(), heard, ..started.clone() };
    let mut events = vec![JournalEntry::Started(Box::new(again)).event()?];
    if let Some(reason) = activation.cancelled() {
        events.push(JournalEntry::Cancel(Reason { reason: reason.to_owned() }).event()?);
    }
    for heard in activation.unread_signals() {
        events.push(JournalEntry::Heard(heard).event()?);
    }
    Ok(events)
}

/// Splits entries into parts that each fit into a batch, with room for the end of a generation.
fn parts(events: Vec<NewEvent>) -> Vec<Vec<NewEvent>> {
    let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
    for event in events {
        bytes += event.payload.len();
        if !part.is_empty() && (part.len() >= BATCH_EVENTS / 2 || bytes > BATCH_BYTES / 2) {
            parts.push(std::mem::take(&mut part));
            bytes = event.payload.len();
        }
        part.push(event);
    }
    parts.push(part);
    parts
}

/// Writes the first parts of the next journal, which has no reader until the generation changes. Entries that it already has
/// are truncated. Returns the expected version for the last part, or `None` when a commit did not succeed.
async fn stage(
    drive: &mut Drive,
    journal: &Key,
    parts: &[Vec<NewEvent>],
) -> Result<Option<Expect<StreamVersion>>, WorkflowError> {
    let mut expected = Expect::Absent;
    let mut batches = Vec::new();
    if let Some(StreamInfo { first, head: Some(head), .. }) =
        drive.shared.worker.store.stream(journal).await?
    {
        expected = Expect::Exact(head);
        let mut before = first.unwrap_or(head.next());
        while before <= head {
            before = StreamVersion(head.next().0.min(before.0.saturating_add(TRUNCATE_EVENTS)));
            batches.push(Batch::new().truncate(journal, before));
        }
    }
    for part in parts {
        batches.push(Batch::new().append(journal, expected, part.clone()));
        expected = Expect::Exists;
    }
    for batch in batches {
        if !matches!(drive.holding.commit(batch).await, Committed::Done(_)) {
            return Ok(None);
        }
    }
    Ok(Some(expected))
}

/// Returns the batch that ends a generation and enqueues the next.
fn turn(drive: &Drive, input: &Payload) -> Result<Batch, InvalidInput> {
    let started = &drive.started;
    let generation = started.generation.saturating_add(1);
    let ending = Ending::Continued(input.clone());
    let mut deltas = run_record::ended(&ending, drive.now())?;
    deltas.push(Delta::set("/generation", generation));
    let ended = JournalEntry::Ended(ending).event_by(drive.holding.lease())?;
    Ok(Batch::new()
        .append(&drive.journal, Expect::Exact(drive.last()), [ended])
        .ack(drive.holding.lease())
        .enqueue(row(&started.run, &started.queue, Priority::new(started.priority)?, generation)?)
        .merge(&drive.grant.row.key, deltas))
}

/// Returns the batch that reports the end of a run to its parent.
async fn parent_report(
    store: &SharedStore,
    started: &Started,
    ending: &Ending,
) -> Result<Batch, WorkflowError> {
    let Some(parent) = &started.parent else { return Ok(Batch::new()) };
    let Some((record, version)) = find(store, &parent.run).await? else { return Ok(Batch::new()) };
    if record.generation != parent.generation {
        return Ok(Batch::new());
    }
    // A parent that has ended may be resumed concurrently. It must then receive the end, so the guard rejects this batch.
    let unchanged = Batch::new().guard_document(&keys::run(&parent.run)?, Expect::Exact(version));
    if record.status.is_over() {
        return Ok(unchanged);
    }
    let (name, run) = (parent.name.clone(), started.run.clone());
    let entry = JournalEntry::ChildEnded(ChildEnded { name, run, ending: ending.clone() });
    let journal = keys::journal(&parent.run, record.generation)?;
    let told = unchanged.append(&journal, Expect::Any, [entry.event()?]);
    Ok(told.enqueue(wake(&parent.run, &record)?))
}

/// Reads the document of a run, with its version.
pub(super) async fn find(
    store: &SharedStore,
    run: &str,
) -> Result<Option<(Record, DocVersion)>, WorkflowError> {
    let Some(document) = store.document(&keys::run(run)?).await? else { return Ok(None) };
    Ok(Some((document.value.parse()?, document.version)))
}

/// Appends an entry to the journal of a running run, and wakes the run. An entry that races with the end of the run is
/// either rejected or delivered, never lost.
pub(super) async fn append_entry(
    client: &WorkflowClient,
    run: &str,
    word: Word,
    entry: impl Fn(&Record) -> Result<JournalEntry, WorkflowError>,
) -> Result<(), WorkflowError> {
    let store = &client.store;
    loop {
        let unknown = || WorkflowError::UnknownRun { run: run.to_owned() };
        let (record, version) = find(store, run).await?.ok_or_else(unknown)?;
        if record.status.is_over() {
            return Err(WorkflowError::Over {
                run: run.to_owned(),
                status: record.status,
                asked: word.asked(),
            });
        }
        let journal = keys::journal(run, record.generation)?;
        let key = keys::run(run)?;
        let batch = Batch::new()
            .guard_document(&key, Expect::Exact(version))
            .append(&journal, Expect::Any, [entry(&record)?.event()?])
            .enqueue(wake(run, &record)?.due(due_after(store, run, &record, word).await?));
        match store.apply(batch.and(client.beside.clone())).await {
            Ok(_) => {
                keys::wake(&record.queue);
                return Ok(());
            }
            // The document changed concurrently; the run may have ended. A document of the caller's own effects is not retried.
            Err(ApplyError::Refused(refusal)) if matches!(&*refusal, Refusal::Document { key: found, .. } if *found == key) =>
                {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns when a run is due after a message: at once, unless its start is still delayed. A cancel ends the delay.
async fn due_after(
    store: &SharedStore,
    run: &str,
    record: &Record,
    word: Word,
) -> Result<Due, WorkflowError> {
    if !record.delayed || word == Word::Cancel {
        return Ok(Due::Now);
    }
    let Some(row) = store.work(&keys::run(run)?).await? else { return Ok(Due::Now) };
    // A run that has rested once is in the lane of runs that have begun.
    if row.queue == keys::queue_name(&record.queue)? {
        return Ok(Due::Now);
    }
    let begun = StreamQuery::forward(&keys::journal(run, record.generation)?, 1_000);
    for event in &store.read_stream(begun).await?.events {
        let entry = JournalEntry::of(event)?;
        if !entry.is_foreign() && !matches!(entry, JournalEntry::Started(_)) {
            return Ok(Due::Now);
        }
    }
    Ok(row.due.map_or(Due::Now, Due::At))
}

/// The kind of a message to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Signal,
    Cancel,
}

impl Word {
    fn asked(self) -> &'static str {
        match self {
            Self::Signal => "signalled",
            Self::Cancel => "cancelled",
        }
    }
}

/// Requests the cancellation of a run.
pub(super) async fn cancel(client: &WorkflowClient, run: &str, reason: &str) -> Result<(), WorkflowError> {
    let entry = JournalEntry::Cancel(Reason { reason: reason.to_owned() });
    append_entry(client, run, Word::Cancel, |_| Ok(entry.clone())).await
}
