//! Registration of tasks in the store: creation, change and archiving.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::definition::Schedule;
use super::error::ScheduleError;
use super::record::Record;
use super::{keys, transition};
use crate::clock::{Due, Timestamp};
use crate::id::DocVersion;
use crate::key::Key;
use crate::payload::Payload;
use crate::store::{ApplyError, Batch, Expect, Get, NewWork, Page, Refusal, SharedStore, StoredDocument};
use crate::telemetry::SCHEDULE;

/// Registers tasks under the name of a scheduler, and archives the other tasks of that name.
pub(super) async fn all(
    store: &SharedStore,
    scheduler: &str,
    tasks: &BTreeMap<String, Arc<Schedule>>,
) -> Result<(), ScheduleError> {
    for task in tasks.values() {
        one(store, scheduler, task).await?;
    }
    let mut page = Page::first(500);
    loop {
        let found = store.documents(&keys::all_tasks(), page).await?;
        for document in found.rows {
            // A record that cannot be decoded belongs to no known scheduler.
            let Ok(record) = document.value.parse::<Record>() else { continue };
            let ours = record.scheduler == scheduler && record.archived.is_none();
            if ours && !tasks.contains_key(&record.task.name) {
                archive(store, document, record).await?;
            }
        }
        match found.next {
            Some(next) => page = Page::after(&next, 500),
            None => return Ok(()),
        }
    }
}

async fn one(store: &SharedStore, scheduler: &str, task: &Schedule) -> Result<(), ScheduleError> {
    let key = keys::task(&task.name)?;
    loop {
        let mut rows = store.read(&[Get::Document(key.clone()), Get::Work(key.clone())]).await?;
        let (now, found) = (rows.now, rows.take_document(0));
        let new = task.check(scheduler, now)?;
        let (record, batch) = match &found {
            None => {
                let batch = Batch::new().put(&key, Expect::Absent, Payload::of(&new)?);
                (new, batch)
            }
            Some(document) => match document.value.parse::<Record>() {
                Ok(old) => {
                    let mut record = changed(old.clone(), new);
                    record.progress.observe(now);
                    let put = |record| written(&key, document.version, record);
                    let batch = if record == old { Batch::new() } else { put(&record)? };
                    (record, batch)
                }
                Err(error) => {
                    let batch = quarantined(document, &new, &error.to_string())?;
                    (new, batch)
                }
            },
        };
        let held = rows.take_work(1).is_some_and(|row| row.lease.is_some());
        let batch =
            if held && batch.effects().is_empty() { batch } else { batch.enqueue(row(&key, &record, now)?) };
        match store.apply(batch).await {
            Err(error) if is_conflict(&error, &key) => {}
            applied => return applied.map(drop).map_err(Into::into),
        }
    }
}

/// Applies a new registration to a record and keeps its history. New times start now, and fires that the old ones missed
/// are dropped.
fn changed(old: Record, new: Record) -> Record {
    let times = |record: &Record| {
        let spec = &record.spec;
        (record.task.cron_expression.clone(), spec.zone.clone(), spec.gap, spec.repeat)
    };
    let begins_anew = times(&old) != times(&new) || old.archived.is_some();
    let mut record =
        Record { spec: new.spec, scheduler: new.scheduler, action: new.action, archived: None, ..old };
    record.task.cron_expression = new.task.cron_expression;
    record.task.retry_delay_ms = new.task.retry_delay_ms;
    if begins_anew {
        record.anchor = new.anchor;
        record.progress.pass(new.progress.cursor);
    }
    record
}

/// Archives a task that is no longer registered. A run in flight may complete.
async fn archive(store: &SharedStore, document: StoredDocument, record: Record) -> Result<(), ScheduleError> {
    let key = document.key.clone();
    let mut found = store.read(&[Get::Work(key.clone())]).await?;
    let now = found.now;
    let mut record = Record { archived: Some(now), retrying: Vec::new(), ..record };
    record.task.pending_retry_until = None;
    record.asked.clear();
    record.backfill.clear();
    tracing::info!(target: SCHEDULE, task = record.task.name, "unregistered task archived");
    let mut batch = written(&key, document.version, &record)?;
    if found.take_work(0).is_some() {
        batch = batch.enqueue(row(&key, &record, now)?);
    }
    match store.apply(batch).await {
        // Another process has archived, run or registered it. The next start handles it.
        Err(error) if is_conflict(&error, &key) => Ok(()),
        applied => applied.map(drop).map_err(Into::into),
    }
}

/// Returns the batch that writes the record over the version that was read.
pub(super) fn written(key: &Key, version: DocVersion, record: &Record) -> Result<Batch, ScheduleError> {
    Ok(Batch::new().put(key, Expect::Exact(version), Payload::of(record)?))
}

/// Returns the batch that quarantines an undecodable record and replaces it with a new one.
pub(super) fn quarantined(
    document: &StoredDocument,
    new: &Record,
    reason: &str,
) -> Result<Batch, ScheduleError> {
    let name = &new.task.name;
    tracing::error!(target: SCHEDULE, task = name, reason, "the record of a task cannot be read; it is put into quarantine");
    let kept = Batch::new().put(&keys::quarantine(name)?, Expect::Any, document.value.clone());
    Ok(written(&document.key, document.version, new)?.and(kept))
}

/// Returns the row of a task, due at its next action. If the times cannot be parsed, the row is due now, and its next
/// holder handles them.
pub(super) fn row(key: &Key, record: &Record, now: Timestamp) -> Result<NewWork, ScheduleError> {
    let wake = record.timetable().ok().and_then(|timetable| transition::wake(record, &timetable, now));
    let queue = keys::queue(&record.scheduler)?;
    Ok(NewWork::standing(key.clone(), queue).due(wake.map_or(Due::Now, Due::At)))
}

/// Returns whether a write was refused because another process has written the document.
pub(super) fn is_conflict(error: &ApplyError, document: &Key) -> bool {
    matches!(error.refusal(), Some(Refusal::Document { key, .. }) if key == document)
}
