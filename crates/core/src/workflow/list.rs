//! Lists and counts of runs, by their index: newest first, in bounded pages.
//!
//! The status of a filter selects the list of the index that is read. A prefix that few runs share is read as a range of ids.
//! All other conditions are checked on the entries of the index and on the documents, [`SCANNED`] entries per page at most.
//! The cursor of the page continues after them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use super::client::WorkflowClient;
use super::error::WorkflowError;
use super::index::{self, Found};
use super::journal_entry::Attributes;
use super::keys;
use super::run_record::{Record, RunStatus};
use super::view::{RunView, doing_of};
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::store::limits::READ_ROWS;
use crate::store::{Get, Page, StoredDocument};

/// The conditions of a list of runs. Each condition that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs of this workflow.
    pub workflow: Option<String>,
    /// Only runs with this status.
    pub status: Option<RunStatus>,
    /// Only runs whose id begins with this text.
    pub prefix: Option<String>,
    /// Only runs with these attributes.
    pub attributes: Attributes,
    /// Only runs that changed at this instant or later.
    pub changed_since: Option<Timestamp>,
    /// Only runs that changed before this instant.
    pub changed_before: Option<Timestamp>,
}

impl RunFilter {
    /// Returns whether the filter may exclude runs by their entries in the index.
    fn is_selective(&self) -> bool {
        self.workflow.is_some() || self.prefix.is_some()
    }

    /// Returns whether a run may match, as far as its entry in the index shows.
    fn matches_entry(&self, entry: &Found) -> bool {
        self.workflow.as_ref().is_none_or(|workflow| *workflow == entry.workflow)
            && self.prefix.as_ref().is_none_or(|prefix| entry.run.starts_with(prefix.as_str()))
    }

    fn matches(&self, run: &str, record: &Record, changed_at: Timestamp) -> bool {
        let has = |(name, value): (&String, &String)| record.attributes.get(name) == Some(value);
        self.workflow.as_ref().is_none_or(|workflow| *workflow == record.workflow)
            && self.status.is_none_or(|status| status == record.status)
            && self.prefix.as_ref().is_none_or(|prefix| run.starts_with(prefix.as_str()))
            && self.attributes.iter().all(has)
            && self.changed_since.is_none_or(|since| changed_at >= since)
            && self.changed_before.is_none_or(|before| changed_at < before)
    }
}

/// One page of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunPage {
    /// The runs, newest first. Runs that were started in the same microsecond are in the order of their ids.
    pub runs: Vec<RunView>,
    /// Where the next page begins; `None` when this is the last one. A page with few runs or none may have a next one.
    pub next: Option<RunCursor>,
}

/// A position in a list of runs: after the run with this start and this id, whether it exists or not. Runs that start or end
/// between two pages neither repeat nor skip others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RunCursor {
    started_at: Timestamp,
    run: String,
}

impl RunCursor {
    /// Returns the position after a run.
    #[must_use]
    pub fn after(run: &RunView) -> Self {
        Self { started_at: run.started_at, run: run.run.clone() }
    }

    /// Returns whether a run comes after this position.
    fn precedes(&self, started_at: Timestamp, run: &str) -> bool {
        started_at < self.started_at || (started_at == self.started_at && run > self.run.as_str())
    }
}

impl fmt::Display for RunCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.started_at.as_micros(), self.run)
    }
}

impl FromStr for RunCursor {
    type Err = InvalidInput;

    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        let invalid = || InvalidInput::name("a cursor of runs", text, "no page of runs has ended with it");
        let (micros, run) = text.split_once(':').ok_or_else(invalid)?;
        let started_at = Timestamp::from_micros(micros.parse().map_err(|_| invalid())?);
        Ok(Self { started_at, run: run.to_owned() })
    }
}

impl From<RunCursor> for String {
    fn from(cursor: RunCursor) -> Self {
        cursor.to_string()
    }
}

impl TryFrom<String> for RunCursor {
    type Error = InvalidInput;

    fn try_from(text: String) -> Result<Self, InvalidInput> {
        text.parse()
    }
}

/// The number of index entries that are read for a page, however few of them match.
const SCANNED: usize = 10_000;
/// The maximum number of entries or documents of one read.
const ROWS: usize = 500;
/// The number of runs with a prefix that are read as a range of ids.
const FEW: usize = 200;

impl WorkflowClient {
    /// Returns a page of runs, newest first.
    ///
    /// # Errors
    /// [`WorkflowError`] when the store cannot be read.
    pub async fn list(
        &self,
        filter: &RunFilter,
        after: Option<&RunCursor>,
        limit: usize,
    ) -> Result<RunPage, WorkflowError> {
        let limit = limit.max(1);
        if let Some(prefix) = filter.prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
            let page = self.store.documents(&keys::runs_from(prefix), Page::first(FEW)).await?;
            if page.next.is_none() {
                return self.list_few(page.rows, filter, after, limit).await;
            }
        }
        self.list_index(filter, after, limit).await
    }

    /// Returns the number of runs of each status, counted by the index alone.
    ///
    /// # Errors
    /// [`WorkflowError`] when the store cannot be read.
    pub async fn counts(&self) -> Result<BTreeMap<RunStatus, u64>, WorkflowError> {
        let count = async |status: RunStatus| {
            let runs = self.store.count_documents(&index::range(Some(status))).await?;
            Ok::<_, WorkflowError>((status, runs))
        };
        Ok(try_join_all(RunStatus::ALL.map(count)).await?.into_iter().collect())
    }

    /// Returns the page of a list whose documents have all been read.
    async fn list_few(
        &self,
        documents: Vec<StoredDocument>,
        filter: &RunFilter,
        after: Option<&RunCursor>,
        limit: usize,
    ) -> Result<RunPage, WorkflowError> {
        let mut matching = Vec::new();
        for document in documents {
            let Some(run) = keys::run_of(&document.key) else { continue };
            let record: Record = document.value.parse()?;
            let wanted = after.is_none_or(|after| after.precedes(record.started_at, &run));
            if wanted && filter.matches(&run, &record, document.updated_at) {
                matching.push((run, record));
            }
        }
        matching.sort_by(|(a, one), (b, other)| (other.started_at, a).cmp(&(one.started_at, b)));
        let more = matching.len() > limit;
        matching.truncate(limit);
        let last = matching.last().filter(|_| more);
        let next = last.map(|(run, record)| RunCursor { started_at: record.started_at, run: run.clone() });
        let runs: Vec<String> = matching.into_iter().map(|(run, _)| run).collect();
        Ok(RunPage { runs: self.views(&runs, filter).await?, next })
    }

    async fn list_index(
        &self,
        filter: &RunFilter,
        after: Option<&RunCursor>,
        limit: usize,
    ) -> Result<RunPage, WorkflowError> {
        let range = index::range(filter.status);
        let (mut runs, mut last, mut scanned) = (Vec::new(), after.cloned(), 0);
        loop {
            let rows = if filter.is_selective() { ROWS } else { (limit - runs.len()).min(ROWS) };
            let from = last.as_ref().map(|last| index::key(filter.status, last.started_at, &last.run));
            let page = from.transpose()?.map_or_else(|| Page::first(rows), |from| Page::after(&from, rows));
            let found = self.store.documents(&range, page).await?;
            scanned += found.rows.len();
            let mut entries = found.rows.iter().filter_map(Found::of).peekable();
            let mut candidates = Vec::new();
            while let Some(entry) = entries.next_if(|_| candidates.len() < limit - runs.len()) {
                last = Some(RunCursor { started_at: entry.started_at, run: entry.run.clone() });
                if filter.matches_entry(&entry) {
                    candidates.push(entry.run);
                }
            }
            let more = entries.peek().is_some() || found.next.is_some();
            runs.extend(self.views(&candidates, filter).await?);
            if runs.len() >= limit || !more || scanned >= SCANNED {
                return Ok(RunPage { runs, next: last.filter(|_| more) });
            }
        }
    }

    /// Reads runs, and leaves out those that do not match: one may have ended since its entry was read.
    async fn views(&self, runs: &[String], filter: &RunFilter) -> Result<Vec<RunView>, WorkflowError> {
        let parts = runs.chunks(READ_ROWS / 2).map(|part| self.views_of_one_read(part, filter));
        Ok(try_join_all(parts).await?.into_iter().flatten().collect())
    }

    /// Reads runs with their work rows from one snapshot.
    async fn views_of_one_read(
        &self,
        runs: &[String],
        filter: &RunFilter,
    ) -> Result<Vec<RunView>, WorkflowError> {
        let mut gets = Vec::with_capacity(runs.len() * 2);
        for run in runs {
            let key = keys::run(run)?;
            gets.extend([Get::Document(key.clone()), Get::Work(key)]);
        }
        let mut found = self.store.read(&gets).await?;
        let mut views = Vec::with_capacity(runs.len());
        for (place, run) in runs.iter().enumerate() {
            let Some(document) = found.take_document(2 * place) else { continue };
            let record: Record = document.value.parse()?;
            if filter.matches(run, &record, document.updated_at) {
                let doing = doing_of(&record, found.take_work(2 * place + 1), found.now);
                views.push(RunView::new(run.clone(), record, &document, doing));
            }
        }
        Ok(views)
    }
}
