//! Retention of ended runs: they are passed to an archive, if there is one, and removed with all their data.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::Serialize;

use super::client::WorkflowClient;
use super::completion::find;
use super::engine::WorkflowEngine;
use super::error::WorkflowError;
use super::replay::RunHistory;
use super::run_record::Record;
use super::view::RunView;
use super::{journal, keys};
use crate::failure::Failure;
use crate::id::StreamVersion;
use crate::key::Key;
use crate::runtime::panic::reason;
use crate::store::limits::TRUNCATE_EVENTS;
use crate::store::{Batch, Claim, Expect, Page, PageOf, StoredDocument};
use crate::telemetry::WORKFLOW;
use crate::worker::{MAX_TTL, MIN_TTL};

/// The number of runs that are examined at a time.
const PAGE: usize = 500;
/// The number of progress documents of a run that are removed at a time.
const PIECES: usize = 1_000;

/// A run that is about to be removed, with its history.
#[derive(Clone, Debug, Serialize)]
pub struct ArchivedRun {
    /// The run as it ended.
    pub view: RunView,
    /// Its journals: the first, and one more for each time that it continued as new.
    pub histories: Vec<RunHistory>,
}

/// The callback that archives runs before their removal.
type Archive = Arc<dyn Fn(ArchivedRun) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync>;

/// The retention policy of a worker: how long it keeps ended runs, and whether it archives them before their removal.
#[derive(Clone)]
pub struct Retention {
    older: Duration,
    archive: Option<Archive>,
}

impl Retention {
    /// Creates a policy that removes runs this long after their end. Live runs and children of live runs are never removed.
    #[must_use]
    pub fn of(older: Duration) -> Self {
        Self { older, archive: None }
    }

    /// Passes each run to this callback before the removal. A run for which it fails is kept, and passed again later. The callback
    /// may receive a run more than once, if the process dies in between. It is an async function or closure, cloned for each run.
    #[must_use]
    pub fn archive<F, Fut>(mut self, code: F) -> Self
    where
        F: FnOnce(ArchivedRun) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.archive = Some(Arc::new(move |archived| Box::pin(code.clone()(archived))));
        self
    }
}

impl fmt::Debug for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retention")
            .field("older", &self.older)
            .field("archive", &self.archive.is_some())
            .finish()
    }
}

impl WorkflowClient {
    /// Removes runs that ended at least this long ago, with all their data. Live runs and runs with a live parent are never
    /// removed. Returns the number of removed runs; call it again until that is less than the limit.
    ///
    /// # Errors
    /// [`WorkflowError`] when the store fails. Runs removed by then stay removed. The next call completes a removal that has begun.
    pub async fn retire(&self, older: Duration, limit: usize) -> Result<usize, WorkflowError> {
        let (mut removed, mut page) = (0, Page::first(PAGE));
        loop {
            let (old, next) = self.aged(older, page).await?;
            for document in old {
                if removed >= limit {
                    return Ok(removed);
                }
                removed += usize::from(self.remove(&document, None).await?);
            }
            match next {
                Some(next) => page = Page::after(&next, PAGE),
                None => return Ok(removed),
            }
        }
    }

    /// Returns how many runs [`retire`](Self::retire) would remove now, counted up to the limit. Changes nothing.
    ///
    /// # Errors
    /// [`WorkflowError`] when the store cannot be read.
    pub async fn count_retirable(&self, older: Duration, limit: usize) -> Result<usize, WorkflowError> {
        let (mut counted, mut page) = (0, Page::first(PAGE));
        loop {
            let (old, next) = self.aged(older, page).await?;
            for document in old {
                if counted >= limit {
                    return Ok(counted);
                }
                counted += usize::from(self.may_go(&document.value.parse()?).await?);
            }
            match next {
                Some(next) => page = Page::after(&next, PAGE),
                None => return Ok(counted),
            }
        }
    }

    /// Returns the runs of a page that have not changed for this long, and where the next page begins.
    async fn aged(
        &self,
        older: Duration,
        page: Page,
    ) -> Result<(Vec<StoredDocument>, Option<Key>), WorkflowError> {
        let PageOf { rows, next, now } = self.store.documents(&keys::all_runs(), page).await?;
        let aged = |document: &StoredDocument| document.updated_at.after(older).has_come(now);
        Ok((rows.into_iter().filter(aged).collect(), next))
    }

    /// Returns whether a run may be removed: it has ended, and so has its parent, if it has one.
    async fn may_go(&self, record: &Record) -> Result<bool, WorkflowError> {
        let parent = match &record.parent {
            Some(parent) => find(&self.store, &parent.run).await?,
            None => None,
        };
        Ok(record.status.is_over() && parent.is_none_or(|(parent, _)| parent.status.is_over()))
    }

    /// Removes a run that has ended, once the archive has it. The document is deleted last, so that the next caller completes a
    /// removal that a crash cut short. Returns whether the run was removed.
    async fn remove(
        &self,
        document: &StoredDocument,
        archive: Option<&Archive>,
    ) -> Result<bool, WorkflowError> {
        let record: Record = document.value.parse()?;
        let Some(run) = keys::run_of(&document.key) else { return Ok(false) };
        if !self.may_go(&record).await? {
            return Ok(false);
        }
        if let Some(archive) = archive
            && let Err(failure) = kept_by(archive, self.archived(&run, record.generation).await?).await
        {
            tracing::warn!(target: WORKFLOW, run, %failure, "a run was not archived; it stays, and comes again");
            return Ok(false);
        }
        let guard = || Batch::new().guard_document(&document.key, Expect::Exact(document.version));
        // The next generation may have a journal, if its beginning was cut short.
        for generation in 0..=record.generation.saturating_add(1) {
            self.empty(&keys::journal(&run, generation)?, &guard).await?;
        }
        loop {
            let pieces = self.store.documents(&keys::all_progress(&run), Page::first(PIECES)).await?;
            let batch = pieces.rows.iter().fold(guard(), |batch, kept| batch.delete(&kept.key, Expect::Any));
            if pieces.next.is_none() {
                let batch =
                    batch.delete(&keys::values(&run)?, Expect::Any).delete(&document.key, Expect::Any);
                let batch = record.indexed(&run).remove(batch, record.status)?;
                self.store.apply(batch).await?;
                return Ok(true);
            }
            self.store.apply(batch).await?;
        }
    }

    async fn archived(&self, run: &str, generation: u32) -> Result<ArchivedRun, WorkflowError> {
        let mut histories = Vec::new();
        for generation in 0..=generation {
            let events = journal::events(&self.store, &keys::journal(run, generation)?, None).await?;
            histories.push(RunHistory(events));
        }
        Ok(ArchivedRun { view: self.show(run).await?, histories })
    }

    async fn empty(&self, journal: &Key, guard: &impl Fn() -> Batch) -> Result<(), WorkflowError> {
        while let Some(info) = self.store.stream(journal).await? {
            let (Some(first), Some(head)) = (info.first, info.head) else { break };
            let end = head.next().0.min(first.0.saturating_add(TRUNCATE_EVENTS));
            self.store.apply(guard().truncate(journal, StreamVersion(end))).await?;
        }
        Ok(())
    }
}

/// Passes a run to the archive. A panic counts as a failure.
async fn kept_by(archive: &Archive, run: ArchivedRun) -> Result<(), Failure> {
    let kept = AssertUnwindSafe(async { archive(run).await }).catch_unwind().await;
    kept.unwrap_or_else(|panic| Err(Failure::new(reason("the archive", panic))))
}

/// Removes runs whose retention is over, a page at a time, until the worker stops. One worker of all processes does so.
pub(super) async fn retiring(shared: Arc<WorkflowEngine>) {
    let Some(retention) = &shared.options.retention else { return };
    let (client, mut page) = (WorkflowClient::new(Arc::clone(&shared.worker.store)), None);
    while !shared.worker.stopping.is_cancelled() {
        match retire_page(&shared, &client, retention, page.take()).await {
            Ok(next) => page = next,
            Err(WorkflowError::Store(error)) => {
                tracing::warn!(target: WORKFLOW, %error, "retention failed");
                shared.worker.back_off(&error).await;
            }
            Err(error) => tracing::warn!(target: WORKFLOW, %error, "an old run could not be removed"),
        }
        // The next page follows after one poll interval, the next round after sixty.
        let rounds = if page.is_some() { 1 } else { 60 };
        shared.worker.pause(shared.worker.options.poll_interval.saturating_mul(rounds)).await;
    }
}

/// Removes the old runs of a page, unless another worker does so. Returns where the next page begins.
async fn retire_page(
    shared: &WorkflowEngine,
    client: &WorkflowClient,
    retention: &Retention,
    page: Option<Key>,
) -> Result<Option<Key>, WorkflowError> {
    let (key, lane) = keys::retention()?;
    let turn = shared.worker.options.poll_interval.saturating_mul(90);
    let turn = turn.clamp(MIN_TTL, MAX_TTL);
    if shared
        .worker
        .claims
        .send(Claim::named(&shared.worker.owner, &key, &lane, turn))
        .await?
        .grants
        .is_empty()
    {
        return Ok(None);
    }
    let page = page.map_or_else(|| Page::first(PAGE), |after| Page::after(&after, PAGE));
    let (old, next) = client.aged(retention.older, page).await?;
    for document in old {
        if shared.worker.stopping.is_cancelled() {
            break;
        }
        match client.remove(&document, retention.archive.as_ref()).await {
            Ok(_) => {}
            Err(WorkflowError::Store(error)) => return Err(error.into()),
            // The log shows the run by its key, and the removal of the others continues.
            Err(error) => {
                tracing::warn!(target: WORKFLOW, run = %document.key, %error, "an old run could not be removed");
            }
        }
    }
    Ok(next)
}
