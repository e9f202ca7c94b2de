//! Runs as others see them: without driving them, and without taking anything from them.

use foldhash::HashMap;
use serde::Serialize;

use super::client::Client;
use super::end::find;
use super::entry::{Attributes, ChildStarted, Done, Ending, Entry, GaveUp, Placed, TimerSet, Tried};
use super::error::WorkflowError;
use super::record::{Record, Status};
use super::{journal, names};
use crate::clock::Timestamp;
use crate::id::{Fence, Owner};
use crate::key::Key;
use crate::lease::NEVER;
use crate::payload::Payload;
use crate::store::{Document, Page, WorkFilter, WorkRow};

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
    /// It cannot go on with the code that was there, and is tried again.
    PutOff {
        /// Why.
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
    /// When its document was last changed: when it ended, if it is over.
    pub changed_at: Timestamp,
}

/// Something that a run asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepView {
    /// Its name, with its scopes.
    pub name: String,
    /// What it is: `step`, `timer`, `child` or `signal`.
    pub kind: &'static str,
    /// How it stands: `done`, `failed`, `tried`, `waits`, `fired`, `heard`.
    pub state: &'static str,
    /// How often it was tried, as far as attempts came to an end.
    pub attempts: u32,
    /// What it brought, or why it failed.
    pub value: Option<Payload>,
    /// When that was recorded.
    pub at: Timestamp,
}

/// Which runs are listed; each condition that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only of this workflow.
    pub workflow: Option<String>,
    /// Only those that stand so.
    pub status: Option<Status>,
    /// Only those whose id begins so.
    pub prefix: Option<String>,
    /// Only those with these words.
    pub attributes: Attributes,
    /// Only those that changed at this instant or later.
    pub changed_since: Option<Timestamp>,
    /// Only those that changed before this instant.
    pub changed_before: Option<Timestamp>,
}

impl RunFilter {
    pub(super) fn matches(&self, run: &str, record: &Record, changed_at: Timestamp) -> bool {
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
    /// The runs, in the order of their ids.
    pub runs: Vec<RunView>,
    /// Where the next page begins; `None` when this is the last one.
    pub next: Option<Key>,
}

/// How many documents are read for a page before it is handed out, however few of them match.
const SCANNED: usize = 10_000;

impl Client {
    /// One run.
    ///
    /// # Errors
    /// [`WorkflowError`] when there is no such run, or the store cannot be read.
    pub async fn show(&self, run: &str) -> Result<RunView, WorkflowError> {
        let key = names::run(run)?;
        let unknown = || WorkflowError::UnknownRun { run: run.to_owned() };
        let document = self.store.document(&key).await?.ok_or_else(unknown)?;
        let record: Record = document.value.parse()?;
        let doing = if record.status.is_over() {
            Doing::Over
        } else {
            let row = self.store.work(&key).await?;
            doing_of(&record, row, self.store.now().await?)
        };
        Ok(RunView::new(run.to_owned(), record, &document, doing))
    }

    /// A page of runs, in the order of their ids. Ids that were not given are in the order of their start.
    ///
    /// # Errors
    /// [`WorkflowError`] when the store cannot be read.
    pub async fn list(
        &self,
        filter: &RunFilter,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<RunPage, WorkflowError> {
        let (mut runs, mut scanned, mut from) = (Vec::new(), 0, after.cloned());
        let rows = limit.clamp(1, 500);
        while scanned < SCANNED {
            let page = from.as_ref().map_or_else(|| Page::first(rows), |from| Page::after(from, rows));
            let found = self.store.documents(&names::all_runs(), page).await?;
            scanned += found.rows.len();
            let (mut matching, mut left) = (Vec::new(), found.rows.len());
            let start = from.clone();
            for document in found.rows {
                left -= 1;
                let Some(run) = names::run_of(&document.key) else { continue };
                from = Some(document.key.clone());
                let record: Record = document.value.parse()?;
                if filter.matches(&run, &record, document.updated_at) {
                    matching.push((run, record, document));
                }
                if runs.len() + matching.len() >= limit {
                    break;
                }
            }
            runs.extend(self.views(matching, start.as_ref()).await?);
            let more = left > 0 || found.next.is_some();
            if runs.len() >= limit || !more {
                return Ok(RunPage { runs, next: from.filter(|_| more) });
            }
        }
        Ok(RunPage { runs, next: from })
    }

    /// Returns the views of runs in the order of their keys, all after a key. The work rows of all are read together.
    async fn views(
        &self,
        found: Vec<(String, Record, Document)>,
        after: Option<&Key>,
    ) -> Result<Vec<RunView>, WorkflowError> {
        let live = found.iter().rfind(|(_, record, _)| !record.status.is_over());
        let Some(last) = live.map(|(.., document)| document.key.clone()) else {
            let over = |(run, record, document)| RunView::new(run, record, &document, Doing::Over);
            return Ok(found.into_iter().map(over).collect());
        };
        let (mut rows, now) = (self.rows(after, &last, found.len()).await?, self.store.now().await?);
        let view = |(run, record, document): (String, Record, Document)| {
            let doing = doing_of(&record, rows.remove(&document.key), now);
            RunView::new(run, record, &document, doing)
        };
        Ok(found.into_iter().map(view).collect())
    }

    /// Reads the work rows of runs after a key, up to another one.
    async fn rows(
        &self,
        after: Option<&Key>,
        last: &Key,
        rows: usize,
    ) -> Result<HashMap<Key, WorkRow>, WorkflowError> {
        let filter = WorkFilter { pattern: Some(names::runs_pattern()?), ..WorkFilter::default() };
        let mut page = after.map_or_else(|| Page::first(rows), |after| Page::after(after, rows));
        let mut found = HashMap::default();
        loop {
            let read = self.store.works(&filter, page).await?;
            let reached = read.rows.last().is_none_or(|row| row.key >= *last);
            found.extend(read.rows.into_iter().map(|row| (row.key.clone(), row)));
            match read.next {
                Some(next) if !reached => page = Page::after(&next, rows),
                _ => return Ok(found),
            }
        }
    }

    /// What a run has asked for so far, in the order in which that was recorded.
    ///
    /// # Errors
    /// [`WorkflowError`] when there is no such run, or its journal cannot be read.
    pub async fn steps(&self, run: &str) -> Result<Vec<StepView>, WorkflowError> {
        let entries = self.journal(run).await?;
        Ok(steps(&entries))
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
    fn new(run: String, record: Record, document: &Document, doing: Doing) -> Self {
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
            changed_at: document.updated_at,
        }
    }
}

/// Returns the activity of a run, from its document and its work row.
fn doing_of(record: &Record, row: Option<WorkRow>, now: Timestamp) -> Doing {
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
    if let Some(lease) = row.lease.filter(|lease| lease.until > now) {
        return Doing::Driven { by: lease.owner, until: lease.until, fence: lease.fence };
    }
    match (row.due, row.last_error) {
        (Some(next), Some(reason)) if row.attempts > 0 => Doing::PutOff { reason, next },
        (Some(due), _) if due.has_come(now) => Doing::Due,
        (due, _) => Doing::Waits { until: due.filter(|due| *due != NEVER) },
    }
}

/// What the entries of a journal say about each thing that was asked for: the last word counts.
fn steps(entries: &[Placed]) -> Vec<StepView> {
    let mut steps: Vec<StepView> = Vec::new();
    let mut places: HashMap<(String, &'static str), usize> = HashMap::default();
    for placed in entries {
        let Some(step) = step(placed) else { continue };
        // Each signal is one of its own.
        let place = match step.kind {
            "signal" => None,
            kind => Some(*places.entry((step.name.clone(), kind)).or_insert(steps.len())),
        };
        match place.and_then(|place| steps.get_mut(place)) {
            Some(known) => {
                *known =
                    StepView { attempts: known.attempts.max(step.attempts).max(tried(known, &step)), ..step }
            }
            None => steps.push(step),
        }
    }
    steps
}

/// How often a step was tried that ended after attempts that failed.
fn tried(known: &StepView, step: &StepView) -> u32 {
    if known.state == "tried" && step.state != "tried" { known.attempts.saturating_add(1) } else { 0 }
}

fn step(placed: &Placed) -> Option<StepView> {
    let attempts = 1;
    let (name, kind, state, attempts, value) = match &placed.entry {
        Entry::Done(Done { op, value }) => (&op.name, "step", "done", attempts, Some(value.clone())),
        Entry::GaveUp(GaveUp { op, error }) => {
            (&op.name, "step", "failed", attempts, Payload::of(&error.to_string()).ok())
        }
        Entry::Tried(Tried { op, attempt, error, .. }) => {
            (&op.name, "step", "tried", *attempt, Payload::of(error).ok())
        }
        Entry::TimerSet(TimerSet { op, when }) => {
            (&op.name, "timer", "waits", 0, Payload::of(&when.since(placed.at).to_string()).ok())
        }
        Entry::TimerFired(named) => (&named.name, "timer", "fired", 1, None),
        Entry::ChildStarted(ChildStarted { op, run }) => {
            (&op.name, "child", "waits", 0, Payload::of(run).ok())
        }
        Entry::ChildEnded(ended) => {
            let (state, value) = match &ended.ending {
                Ending::Completed(value) => ("done", Some(value.clone())),
                Ending::Failed(failure) | Ending::Cancelled(failure) => {
                    ("failed", Payload::of(&failure.message).ok())
                }
                Ending::Continued(_) => ("waits", None),
            };
            (&ended.name, "child", state, 1, value)
        }
        Entry::ChildRefused(GaveUp { op, error }) => {
            (&op.name, "child", "failed", 0, Payload::of(&error.to_string()).ok())
        }
        Entry::Heard(heard) => (&heard.signal, "signal", "heard", 1, Some(heard.value.clone())),
        _ => return None,
    };
    Some(StepView { name: name.clone(), kind, state, attempts, value, at: placed.at })
}
