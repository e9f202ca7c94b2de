//! Administration of tasks: list, history, and operator requests. It needs no scheduler in the process.

use super::error::ScheduleError;
use super::history::{self, TickEntry};
use super::keys;
use super::record::{Paused, Record};
use super::registration::{is_conflict, row, written};
use super::tick;
use super::view::ScheduleView;
use crate::clock::Timestamp;
use crate::key::{Arg, Key};
use crate::model::cron::Span;
use crate::store::{Batch, Get, Page, SharedStore, StoredDocument, WorkRow, limits};

/// The maximum number of requested runs that have not finished.
const ASKED: usize = 100;
/// The maximum number of fires of one backfill.
const BACKFILL: usize = 10_000;
/// The maximum number of backfills in flight.
const BACKFILLS: usize = 16;

/// The tasks of a store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Schedules {
    store: SharedStore,
    /// The batch that commits together with a change.
    beside: Batch,
}

impl Schedules {
    /// Creates a handle to the tasks of this store.
    #[must_use]
    pub fn new(store: SharedStore) -> Self {
        Self { store, beside: Batch::new() }
    }

    /// Returns a handle for one change, which commits atomically with this batch. Use the batch to record the change, such as
    /// with an audit event.
    #[must_use]
    pub fn with_batch(mut self, batch: Batch) -> Self {
        self.beside = batch;
        self
    }

    /// Lists all tasks in the order of their names, including archived ones and those whose record cannot be decoded.
    ///
    /// # Errors
    /// [`ScheduleError::Store`] when the store cannot be read.
    pub async fn list(&self) -> Result<Vec<ScheduleView>, ScheduleError> {
        let (mut tasks, mut after) = (Vec::new(), None);
        loop {
            let (found, next) = self.page(after.as_deref(), 500).await?;
            tasks.extend(found);
            match next {
                Some(next) => after = Some(next),
                None => return Ok(tasks),
            }
        }
    }

    /// Returns a page of tasks after this name, in the order of their names. The second value is the start of the next page, if
    /// any.
    ///
    /// # Errors
    /// [`ScheduleError::Store`] when the store cannot be read.
    pub async fn page(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<ScheduleView>, Option<String>), ScheduleError> {
        let page = match after {
            Some(after) => Page::after(&keys::task(after)?, limit),
            None => Page::first(limit),
        };
        let found = self.store.documents(&keys::all_tasks(), page).await?;
        let mut tasks = Vec::with_capacity(found.rows.len());
        for documents in found.rows.chunks(limits::READ_ROWS) {
            let gets: Vec<Get> = documents.iter().map(|document| Get::Work(document.key.clone())).collect();
            let mut rows = self.store.read(&gets).await?;
            for (index, document) in documents.iter().enumerate() {
                tasks.push(ScheduleView::of(document, rows.take_work(index).as_ref(), rows.now));
            }
        }
        Ok((tasks, found.next.as_ref().and_then(name)))
    }

    /// Returns a task.
    ///
    /// # Errors
    /// [`ScheduleError::UnknownTask`] when there is no task of that name.
    pub async fn show(&self, task: &str) -> Result<ScheduleView, ScheduleError> {
        let (document, row, now) = self.read_schedule(task).await?;
        Ok(ScheduleView::of(&document, row.as_ref(), now))
    }

    /// Returns the next fires of a task by its timetable. Fires that have run and the pause of a task are ignored.
    ///
    /// # Errors
    /// [`ScheduleError`] when there is no such task, or its record cannot be decoded.
    pub async fn upcoming(&self, task: &str, count: usize) -> Result<Vec<Timestamp>, ScheduleError> {
        let (document, _, mut at) = self.read_schedule(task).await?;
        let timetable = self.read(task, &document)?.timetable().map_err(|error| times(task, error))?;
        let mut fires = Vec::new();
        while fires.len() < count.min(BACKFILL)
            && let Some(fire) = timetable.next(at)
        {
            fires.push(fire);
            at = fire;
        }
        Ok(fires)
    }

    /// Returns the last runs of a task, newest first.
    ///
    /// # Errors
    /// [`ScheduleError::UnknownTask`] when there is no task of that name.
    pub async fn history(&self, task: &str, limit: usize) -> Result<Vec<TickEntry>, ScheduleError> {
        let document = self.find(task).await?;
        Ok(history::read(&self.store, &document.key, limit.clamp(1, 1_000)).await?)
    }

    /// Pauses a task until it is resumed. A run in flight completes, and requested runs still start.
    ///
    /// # Errors
    /// [`ScheduleError`] when there is no such task, or it is archived.
    pub async fn pause(&self, task: &str, reason: &str) -> Result<(), ScheduleError> {
        self.change(task, |record, now| {
            let paused = Paused { since: now, reason: reason.chars().take(1_000).collect() };
            record.paused.get_or_insert(paused);
            Ok(())
        })
        .await
    }

    /// Resumes a task. Fires that came during the pause are skipped.
    ///
    /// # Errors
    /// [`ScheduleError`] when there is no such task, or it is archived.
    pub async fn resume(&self, task: &str) -> Result<(), ScheduleError> {
        self.change(task, |record, now| {
            if record.paused.take().is_some() {
                record.progress.pass(now);
            }
            Ok(())
        })
        .await
    }

    /// Requests a run of a task, regardless of its times and of a pause. Returns the key of the fire.
    ///
    /// # Errors
    /// [`ScheduleError`] when there is no such task, it is archived, or too many runs are requested.
    pub async fn run_now(&self, task: &str) -> Result<String, ScheduleError> {
        let fire = self
            .change(task, |record, now| {
                let again =
                    record.retrying.iter().filter(|retry| retry.kind == tick::TickKind::Manual).count();
                within(task, "runs that are not done", record.asked.len() + again + 1, ASKED)?;
                let at = unlike(now, record.last_asked);
                record.last_asked = Some(at);
                record.asked.push(at);
                Ok(at)
            })
            .await?;
        Ok(tick::key(task, fire))
    }

    /// Runs a task for all its fires after one instant and up to another, one after the other, whether they have run or not.
    /// The runs have the same keys as the original fires. Returns the number of fires.
    ///
    /// # Errors
    /// [`ScheduleError`] when there is no such task, it is archived, or there are too many.
    pub async fn backfill(
        &self,
        task: &str,
        after: Timestamp,
        to: Timestamp,
    ) -> Result<usize, ScheduleError> {
        self.change(task, |record, _| {
            let count = fires(record, after, to)?;
            within(task, "backfills that are under way", record.backfill.len() + 1, BACKFILLS)?;
            if count > 0 {
                record.backfill.push(Span { after, to });
            }
            Ok(count)
        })
        .await
    }

    /// Returns the number of fires that a [backfill](Self::backfill) would run. It changes nothing.
    ///
    /// # Errors
    /// [`ScheduleError`] when there is no such task, or there are too many.
    pub async fn count_backfill(
        &self,
        task: &str,
        after: Timestamp,
        to: Timestamp,
    ) -> Result<usize, ScheduleError> {
        fires(&self.read(task, &self.find(task).await?)?, after, to)
    }

    async fn find(&self, task: &str) -> Result<StoredDocument, ScheduleError> {
        Ok(self.read_schedule(task).await?.0)
    }

    /// Reads the document of a task and its row, with the store's clock.
    async fn read_schedule(
        &self,
        task: &str,
    ) -> Result<(StoredDocument, Option<WorkRow>, Timestamp), ScheduleError> {
        let key = keys::task(task)?;
        let mut rows = self.store.read(&[Get::Document(key.clone()), Get::Work(key)]).await?;
        if let Some(document) = rows.take_document(0) {
            return Ok((document, rows.take_work(1), rows.now));
        }
        let found = self.store.documents(&keys::all_tasks(), Page::first(100)).await?;
        let known = found.rows.iter().filter_map(|document| name(&document.key));
        Err(ScheduleError::UnknownTask { task: task.to_owned(), known: known.collect() })
    }

    fn read(&self, task: &str, document: &StoredDocument) -> Result<Record, ScheduleError> {
        let broken = |error: crate::error::InvalidInput| ScheduleError::Broken {
            task: task.to_owned(),
            reason: error.to_string(),
        };
        document.value.parse().map_err(broken)
    }

    /// Changes a record, and wakes its row.
    async fn change<T>(
        &self,
        task: &str,
        change: impl Fn(&mut Record, Timestamp) -> Result<T, ScheduleError>,
    ) -> Result<T, ScheduleError> {
        loop {
            let (document, _, now) = self.read_schedule(task).await?;
            let mut record = self.read(task, &document)?;
            if let Some(since) = record.archived {
                return Err(ScheduleError::Archived { task: task.to_owned(), since });
            }
            let answer = change(&mut record, now)?;
            let batch = written(&document.key, document.version, &record)?;
            let batch = batch.enqueue(row(&document.key, &record, now)?).and(self.beside.clone());
            match self.store.apply(batch).await {
                Ok(_) => return Ok(answer),
                Err(error) if is_conflict(&error, &document.key) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns the name of the task that a document belongs to.
fn name(document: &Key) -> Option<String> {
    match document.args().into_iter().next() {
        Some(Arg::Str(name)) => Some(name),
        _ => None,
    }
}

/// Counts the fires after one instant and up to another.
fn fires(record: &Record, after: Timestamp, to: Timestamp) -> Result<usize, ScheduleError> {
    let task = &record.task.name;
    let timetable = record.timetable().map_err(|error| times(task, error))?;
    let (mut count, mut at) = (0, after);
    while let Some(fire) = timetable.next(at).filter(|fire| *fire <= to) {
        count += 1;
        at = fire;
        within(task, "fires", count, BACKFILL)?;
    }
    Ok(count)
}

/// Returns a unique instant for a requested run: two requests at one instant get two runs, and neither is a fire of the
/// timetable.
fn unlike(now: Timestamp, last: Option<Timestamp>) -> Timestamp {
    let next = last.map_or(now, |last| now.max(Timestamp::from_micros(last.as_micros() + 1)));
    let whole = next.as_micros().rem_euclid(1_000_000) == 0;
    Timestamp::from_micros(next.as_micros() + i64::from(whole))
}

fn times(task: &str, error: crate::model::cron::CronError) -> ScheduleError {
    ScheduleError::Times { task: task.to_owned(), error }
}

fn within(task: &str, what: &str, count: usize, limit: usize) -> Result<(), ScheduleError> {
    if count <= limit {
        return Ok(());
    }
    let what = format!("{count} {what}");
    Err(ScheduleError::TooMany { task: task.to_owned(), what, limit })
}
