//! New runs: the document, the beginning of the journal and the work row, in one batch.

use super::definition::Workflow;
use super::journal_entry::{Attributes, JournalEntry, Parent, Started};
use super::run_record::{Record, RunStatus};
use super::{keys, queue};
use crate::clock::{Due, Timestamp};
use crate::error::InvalidInput;
use crate::id::{Position, Priority};
use crate::model::limits::{MERGE_DEPTH, depth, within};
use crate::payload::Payload;
use crate::store::{Batch, Expect, NewEvent, NewWork};
use crate::telemetry::current_trace;

/// The deepest input or output of a run: its document is merged with later changes.
pub(super) const INPUT_DEPTH: usize = MERGE_DEPTH - 10;

/// The parameters of a new run.
#[derive(Clone, Debug)]
pub(super) struct NewRun {
    pub(super) id: String,
    pub(super) workflow: String,
    pub(super) queue: String,
    pub(super) priority: Priority,
    pub(super) due: Due,
    pub(super) input: Payload,
    pub(super) signals: Vec<String>,
    pub(super) attributes: Attributes,
    pub(super) parent: Option<Parent>,
    /// The fairness key, if it has one.
    pub(super) whose: Option<String>,
    /// The trace of the caller that starts it.
    pub(super) trace: Option<String>,
    /// Workers need no announcement of a fairness key: there is none, or they know that the queue has some.
    pub(super) announced: bool,
    /// When it is started, by the store's clock.
    pub(super) started_at: Timestamp,
}

impl NewRun {
    pub(super) fn of<I, O>(workflow: &Workflow<I, O>, input: Payload) -> Self {
        Self::named(workflow.name(), workflow.signals(), input)
    }

    pub(super) fn named(workflow: &str, signals: Vec<String>, input: Payload) -> Self {
        Self {
            id: String::new(),
            workflow: workflow.to_owned(),
            queue: keys::DEFAULT_QUEUE.to_owned(),
            priority: Priority::default(),
            due: Due::Now,
            input,
            signals,
            attributes: Attributes::new(),
            parent: None,
            whose: None,
            trace: None,
            announced: false,
            started_at: Timestamp::EPOCH,
        }
    }

    /// Returns the batch that creates the run. The store rejects it when a run with this id exists.
    pub(super) fn batch(&self) -> Result<Batch, InvalidInput> {
        self.batch_with(Vec::new())
    }

    /// Returns the batch that creates the run with a history.
    pub(super) fn batch_with(&self, history: Vec<NewEvent>) -> Result<Batch, InvalidInput> {
        keys::check("the id of a run", &self.id, keys::MAX_ID_BYTES)?;
        keys::check("the name of a workflow", &self.workflow, keys::MAX_NAME_BYTES)?;
        keys::check("the name of a queue", &self.queue, keys::MAX_NAME_BYTES)?;
        within("the nesting depth", "the input", depth(self.input.as_str()), INPUT_DEPTH)?;
        let key = keys::run(&self.id)?;
        let journal = keys::journal(&self.id, 0)?;
        let record = Record {
            workflow: self.workflow.clone(),
            status: RunStatus::Running,
            queue: self.queue.clone(),
            priority: self.priority.level(),
            generation: 0,
            input: self.input.clone(),
            output: None,
            failure: None,
            parent: self.parent.clone(),
            signals: self.signals.clone(),
            delayed: self.due != Due::Now,
            attributes: self.attributes.clone(),
            started_at: self.started_at,
            ended_at: None,
        };
        let mut events = vec![JournalEntry::Started(Box::new(self.started(0))).event()?];
        events.extend(history);
        let announced = match self.whose {
            Some(_) if !self.announced => queue::declare_fair(&self.queue)?,
            _ => Batch::new(),
        };
        let batch = announced
            .put(&key, Expect::Absent, Payload::of(&record)?)
            .append(&journal, Expect::Any, events)
            .enqueue(self.row()?);
        record.indexed(&self.id).start(batch)
    }

    /// Returns its work row, in a lane of runs that have not begun.
    fn row(&self) -> Result<NewWork, InvalidInput> {
        let lane = match &self.whose {
            None => keys::new_queue_name(&self.queue),
            Some(whose) => keys::fair_lane(&self.queue, whose),
        };
        Ok(NewWork { queue: lane?, ..row(&self.id, &self.queue, self.priority, 0)?.due(self.due) })
    }

    fn started(&self, generation: u32) -> Started {
        Started {
            run: self.id.clone(),
            workflow: self.workflow.clone(),
            queue: self.queue.clone(),
            priority: self.priority.level(),
            generation,
            input: self.input.clone(),
            parent: self.parent.clone(),
            heard: Vec::new(),
            trace: current_trace().or_else(|| self.trace.clone()),
            started_at: self.started_at,
        }
    }
}

/// Returns the work row of a run. A grant includes the beginning of the journal.
pub(super) fn row(
    id: &str,
    queue: &str,
    priority: Priority,
    generation: u32,
) -> Result<NewWork, InvalidInput> {
    let mut row = NewWork::once(keys::run(id)?, keys::queue_name(queue)?).priority(priority);
    row.follow = Some(keys::journal(id, generation)?);
    row.position = Some(Position(0));
    Ok(row)
}

/// Returns the work row that wakes a waiting run, or makes it due again when it does not wait.
pub(super) fn wake(id: &str, record: &Record) -> Result<NewWork, InvalidInput> {
    let priority = Priority::new(record.priority)?;
    row(id, &record.queue, priority, record.generation)
}
