//! Reconciliation of task rows: rows that are due too late, or missing, are repaired.
//!
//! Normally there is nothing to repair. When the store's clock goes back, rows are due at times that are now far away. An
//! operator can also remove rows.

use super::engine::ScheduleEngine;
use super::error::ScheduleError;
use super::record::Record;
use super::registration::row;
use super::{keys, transition};
use crate::clock::Due;
use crate::store::{Batch, Get};
use crate::telemetry::SCHEDULE;

/// Reconciles the tasks that this scheduler knows.
pub(super) async fn reconcile(engine: &ScheduleEngine) {
    for name in engine.tasks.keys() {
        if let Err(error) = look_at(engine, name).await {
            tracing::warn!(target: SCHEDULE, task = name, %error, "a task could not be looked at");
        }
    }
}

async fn look_at(engine: &ScheduleEngine, name: &str) -> Result<(), ScheduleError> {
    let key = keys::task(name)?;
    let mut found = engine.worker.store.read(&[Get::Document(key.clone()), Get::Work(key.clone())]).await?;
    let now = found.now;
    let Some(document) = found.take_document(0) else { return Ok(()) };
    // The next holder of the row handles a record that cannot be decoded.
    let Ok(record) = document.value.parse::<Record>() else { return Ok(()) };
    let Ok(timetable) = record.timetable() else { return Ok(()) };
    if record.archived.is_some() {
        return Ok(());
    }
    let went_back = record.progress.cursor > now;
    let Some(wake) = transition::wake(&record, &timetable, now) else { return Ok(()) };
    let late = match found.take_work(1) {
        Some(row) => row.lease.is_none() && row.due.is_none_or(|due| due > wake),
        None => true,
    };
    if late || went_back {
        // The next holder of the row records that the clock went back. Fires from now on are open again.
        let row = row(&key, &record, now)?;
        let row = if went_back { row.due(Due::Now) } else { row };
        engine.worker.store.apply(Batch::new().enqueue(row)).await?;
    }
    Ok(())
}
