//! Execution of a granted task row: decide the next action, run it, and record the result.
//!
//! A run consists of two writes: its start, and its end with its effects. If the process dies between them, the record names
//! the fire that was in flight. The next holder of the row runs it again under the same key.

use std::sync::Arc;
use std::time::Duration;

use super::definition::{Action, Schedule};
use super::engine::ScheduleEngine;
use super::error::ScheduleError;
use super::history::{self, TickEntry};
use super::invoke::{Call, Called};
use super::keys::{self, Row};
use super::record::{Begun, Record};
use super::registration::{quarantined, row, written};
use super::transition::{self, Ended, Next, Run};
use crate::clock::{Due, Timestamp};
use crate::error::{Explain as _, Retry};
use crate::failure::Failure;
use crate::id::DocVersion;
use crate::key::Key;
use crate::model::cron::Recurrence;
use crate::payload::Payload;
use crate::store::{Batch, Get, Grant, Lease, NewWork, Operation, Refusal, Selection};
use crate::telemetry::{SCHEDULE, SCHEDULE_MISFIRES, SCHEDULE_RUNS, count, total};
use crate::worker::{Committed, LeasedWork, idle};

/// The number of immediate reruns after write conflicts on the effects. Further conflicts count as a failure.
const CONFLICTS: u32 = 5;
/// The delay of a task that this process cannot run. Another process may run it.
pub(super) const PUT_OFF: Duration = Duration::from_secs(10);

/// The delay of requested fires while the concurrent runs of the task are at their limit.
const ROOM: Duration = Duration::from_secs(1);

/// The result of a write.
pub(super) enum Wrote {
    Done,
    /// Another process has changed the record. Read it again.
    Changed,
    /// The lease was lost.
    Gone,
    /// The store refused the effects.
    Refused(Box<Refusal>),
}

/// A granted row in progress.
pub(super) struct Job {
    pub(super) engine: Arc<ScheduleEngine>,
    pub(super) grant: Grant,
    pub(super) work: LeasedWork,
}

/// A record as it was read.
pub(super) struct Read {
    pub(super) record: Record,
    pub(super) version: DocVersion,
    pub(super) now: Timestamp,
}

impl Job {
    pub(super) async fn run(self) {
        let ended = match Row::read(&self.grant.row.key) {
            Some(Row::Schedule(name)) => self.task(&name).await,
            Some(Row::Tick(name, fire)) => self.beside(&name, fire).await,
            None => {
                let reason = "this is no row of a task; remove it";
                drop(self.work.commit(Batch::new().block(self.lease(), reason)).await);
                Ok(())
            }
        };
        if let Err(error) = ended {
            let row = &self.grant.row.key;
            tracing::error!(target: SCHEDULE, %row, %error, "task execution failed and was deferred");
            drop(self.work.commit(Batch::new().defer(self.lease(), Due::After(PUT_OFF))).await);
        }
    }

    pub(super) fn lease(&self) -> &Lease {
        self.work.lease()
    }

    /// Decides and runs until the task has nothing left to do, or the lease is lost.
    async fn task(&self, name: &str) -> Result<(), ScheduleError> {
        let key = keys::task(name)?;
        loop {
            let Some(Read { mut record, version, now }) = self.read(&key).await? else { return Ok(()) };
            let before = record.clone();
            let timetable = self.timetable(&record)?;
            let (next, lost) = transition::next(&mut record, &timetable, now);
            let task = self.engine.tasks.get(name).map(Arc::clone);
            let put = |record: &Record| {
                let entries = history::add(name, lost.clone())?;
                let same = *record == before;
                Ok::<_, ScheduleError>(
                    if same { Batch::new() } else { written(&key, version, record)? }.and(entries),
                )
            };
            let wrote = match (next, task) {
                (Next::Rest(until), _) => {
                    self.write(&key, self.rest(&key, &record, until, put(&record)?)?).await
                }
                (Next::Run(_), None) => return self.leave(&key, Due::After(PUT_OFF)).await,
                (Next::Run(run), Some(_)) if transition::must_wait(&record, &run) => {
                    return self.leave(&key, Due::After(ROOM)).await;
                }
                (Next::Run(run), Some(_)) if transition::beside(&record) => {
                    let fire = self.open(&mut record, run)?;
                    let batch = put(&record)?.and(fire).ack(self.lease());
                    let again = NewWork::standing(key.clone(), keys::queue(&record.scheduler)?);
                    self.write(&key, batch.enqueue(again)).await
                }
                (Next::Run(run), Some(task)) => {
                    let begun = transition::begin(&mut record, run, self.engine.worker.owner.as_str(), now);
                    if let Some(Action::Call(_)) = task.action {
                        record.running = Some(begun.clone());
                        match self.write(&key, put(&record)?).await {
                            Wrote::Done => {
                                count_misfires(before.skipped, &record);
                                return self.call(&key, &task, &begun).await;
                            }
                            wrote => wrote,
                        }
                    } else {
                        return self.call(&key, &task, &begun).await;
                    }
                }
            };
            match wrote {
                Wrote::Done => {
                    count_misfires(before.skipped, &record);
                    return Ok(());
                }
                Wrote::Changed => {}
                Wrote::Gone => return self.gone(),
                Wrote::Refused(refusal) => return self.refused(&refusal),
            }
        }
    }

    /// Runs the task on its own row, and records its end.
    async fn call(&self, key: &Key, task: &Schedule, begun: &Begun) -> Result<(), ScheduleError> {
        let mut conflicts = 0;
        let call = Call { engine: &self.engine, task, begun, lease: self.work.token() };
        let Called::Ended(mut ended, mut effects) = call.run().await else { return self.gone() };
        loop {
            let Some(Read { mut record, version, now }) = self.read(key).await? else { return Ok(()) };
            let skipped = record.skipped;
            if let Some(Action::Start(_)) = task.action {
                // Nothing was written yet, so the decision is repeated and has the same result.
                let timetable = self.timetable(&record)?;
                let (next, _) = transition::next(&mut record, &timetable, now);
                let Next::Run(run) = next else { return self.leave(key, Due::Now).await };
                let same = transition::begin(&mut record, run, self.engine.worker.owner.as_str(), now);
                if (same.fire, same.kind) != (begun.fire, begun.kind) {
                    return self.leave(key, Due::Now).await;
                }
            }
            let entry = transition::end(&mut record, begun, &ended, now);
            let batch = self.ending(key, &record, version, entry).await?.and(effects.clone());
            match self.write(key, self.next_fire(key, &record, now, batch.ack(self.lease()))?).await {
                Wrote::Done => {
                    count_misfires(skipped, &record);
                    return self.counted(&ended);
                }
                Wrote::Changed => {}
                Wrote::Gone => return self.gone(),
                Wrote::Refused(refusal) => {
                    if matches!(ended, Ended::Started(_)) && is_run(&refusal) {
                        effects = Batch::new();
                        continue;
                    }
                    conflicts += 1;
                    if refusal.retry() == Retry::Now && conflicts <= CONFLICTS {
                        let Called::Ended(again, with) = call.run().await else { return self.gone() };
                        (ended, effects) = (again, with);
                        continue;
                    }
                    (ended, effects) = (refused(&refusal), Batch::new());
                }
            }
        }
    }

    /// Releases the row, for another process that can run it, or for a later time.
    async fn leave(&self, key: &Key, due: Due) -> Result<(), ScheduleError> {
        match self.write(key, Batch::new().defer(self.lease(), due)).await {
            Wrote::Done => Ok(()),
            Wrote::Changed | Wrote::Gone => self.gone(),
            Wrote::Refused(refusal) => self.refused(&refusal),
        }
    }

    /// Returns the batch that writes the record and the history at the end of a run.
    pub(super) async fn ending(
        &self,
        key: &Key,
        record: &Record,
        version: DocVersion,
        entry: TickEntry,
    ) -> Result<Batch, ScheduleError> {
        let batch = written(key, version, record)?.and(history::add(&record.task.name, [entry])?);
        if !record.runs.is_multiple_of(8) {
            return Ok(batch);
        }
        // Removing old entries can wait. Recording the run cannot.
        let trimmed = history::trim(&self.engine.worker.store, key, record.spec.keep).await;
        Ok(batch.and(trimmed.unwrap_or_default()))
    }

    fn rest(
        &self,
        key: &Key,
        record: &Record,
        until: Option<Timestamp>,
        batch: Batch,
    ) -> Result<Batch, ScheduleError> {
        if record.archived.is_some() {
            return Ok(batch.operate(Selection::Keys(vec![key.clone()]), Operation::Remove));
        }
        let batch = batch.ack(self.lease());
        let Some(until) = until else { return Ok(batch) };
        let queue = keys::queue(&record.scheduler)?;
        Ok(batch.enqueue(NewWork::standing(key.clone(), queue).due(Due::At(until))))
    }

    fn next_fire(
        &self,
        key: &Key,
        record: &Record,
        now: Timestamp,
        batch: Batch,
    ) -> Result<Batch, ScheduleError> {
        match record.timetable().map(|timetable| transition::wake(record, &timetable, now)) {
            Ok(None) => Ok(batch),
            _ => Ok(batch.enqueue(row(key, record, now)?)),
        }
    }

    /// Opens the row of a fire that runs concurrently with others. When there are too many, the fire is skipped.
    fn open(&self, record: &mut Record, run: Run) -> Result<Batch, ScheduleError> {
        if record.open.len() >= transition::OPEN {
            record.skipped += 1;
            return Ok(Batch::new());
        }
        record.open.push(run.fire);
        let key = keys::fire(&record.task.name, run.fire)?;
        let row = NewWork::once(key, keys::queue(&record.scheduler)?).payload(Payload::of(&run.kind)?);
        Ok(Batch::new().enqueue(row))
    }

    /// Reads the record and the time. A record that cannot be decoded is quarantined and replaced with a new one. The row of a
    /// task without a record is removed.
    pub(super) async fn read(&self, key: &Key) -> Result<Option<Read>, ScheduleError> {
        loop {
            let Some((found, now)) = self.patient(key).await else {
                self.gone()?;
                return Ok(None);
            };
            let Some(document) = found else {
                let gone =
                    Batch::new().operate(Selection::Keys(vec![self.lease().key.clone()]), Operation::Remove);
                drop(self.work.commit(gone).await);
                return Ok(None);
            };
            let error = match document.value.parse() {
                Ok(record) => return Ok(Some(Read { record, version: document.version, now })),
                Err(error) => error,
            };
            let name = key.args().into_iter().next();
            let task = match &name {
                Some(crate::key::Arg::Str(name)) => self.engine.tasks.get(name),
                _ => None,
            };
            let Some(task) = task else { return Err(error.into()) };
            let new = task.check(&self.engine.name, now)?;
            match self.write(key, quarantined(&document, &new, &error.to_string())?).await {
                Wrote::Done => self.engine.counters.quarantined.add(1),
                Wrote::Changed => {}
                Wrote::Gone | Wrote::Refused(_) => {
                    self.gone()?;
                    return Ok(None);
                }
            }
        }
    }

    /// Reads with retries while the lease is valid, because a finished run must be recorded. Returns `None` when the lease was
    /// lost or a retry cannot help.
    async fn patient(&self, key: &Key) -> Option<(Option<crate::store::StoredDocument>, Timestamp)> {
        let store = &self.engine.worker.store;
        loop {
            let error = match store.read(&[Get::Document(key.clone())]).await {
                Ok(mut found) => return Some((found.take_document(0), found.now)),
                Err(error) => error,
            };
            if self.work.lost().is_some() || error.retry() == Retry::Never {
                tracing::warn!(target: SCHEDULE, row = %self.lease().key, %error, "a task is handed back");
                self.work.release().await;
                return None;
            }
            let wait = idle::backoff(&error, self.engine.worker.options.poll_interval);
            idle::pause(wait, self.work.token()).await;
        }
    }

    /// Returns the timetable of the task.
    fn timetable(&self, record: &Record) -> Result<Recurrence, ScheduleError> {
        let times = |error| ScheduleError::Times { task: record.task.name.clone(), error };
        record.timetable().map_err(times)
    }

    pub(super) async fn write(&self, record: &Key, batch: Batch) -> Wrote {
        match self.work.commit(batch).await {
            Committed::Done(_) => Wrote::Done,
            Committed::Gone => Wrote::Gone,
            Committed::Refused(refusal) => match &*refusal {
                Refusal::Document { key, .. } if key == record => Wrote::Changed,
                _ => Wrote::Refused(refusal),
            },
        }
    }

    pub(super) fn counted(&self, ended: &Ended) -> Result<(), ScheduleError> {
        let counters = &self.engine.counters;
        match ended {
            Ended::Interrupted => return Ok(()),
            Ended::Failed(error) => {
                counters.failures.add(1);
                let row = &self.lease().key;
                tracing::warn!(target: SCHEDULE, %row, %error, "a task failed");
            }
            Ended::Well | Ended::Started(_) => count(SCHEDULE_RUNS, "succeeded", 1),
        }
        counters.runs.add(1);
        Ok(())
    }

    pub(super) fn gone(&self) -> Result<(), ScheduleError> {
        self.engine.counters.lost.add(1);
        Ok(())
    }

    fn refused(&self, refusal: &Refusal) -> Result<(), ScheduleError> {
        let row = &self.lease().key;
        tracing::error!(target: SCHEDULE, %row, %refusal, "the record of a task is refused");
        self.gone()
    }
}

/// Counts the misfires that the written record contains.
fn count_misfires(skipped_before: u64, written: &Record) {
    let passed_over = written.skipped.saturating_sub(skipped_before);
    if passed_over > 0 {
        total(SCHEDULE_MISFIRES, passed_over);
    }
}

/// Converts a refusal of the effects into a failure of the task.
pub(super) fn refused(refusal: &Refusal) -> Ended {
    let error = format!("its effects are refused: {refusal}");
    match refusal {
        Refusal::Invalid(_) => Ended::Failed(Failure::permanent(error)),
        _ => Ended::Failed(Failure::new(error)),
    }
}

/// Returns whether a start was refused because the run exists: an earlier attempt for this fire started it.
pub(super) fn is_run(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Document { key, .. } if key.kind() == "tidelock.run")
}
