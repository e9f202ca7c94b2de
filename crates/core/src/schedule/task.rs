//! A task as programs declare it.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use serde::Serialize;

use super::error::{ScheduleError, TaskError};
use super::fire::Fire;
use super::names;
use super::record::{Record, Spec, TaskRecord};
use crate::clock::Timestamp;
use crate::model::cron::{CatchUp, CronError, Gap, Overlap, Progress, Repeat, Timetable, When, Zone};
use crate::model::retry::RetryPolicy;
use crate::reactions::Effects;
use crate::store::Batch;
use crate::workflow::{Client, Start, Workflow, WorkflowError};

/// The future of a run.
pub(super) type RunFuture = Pin<Box<dyn Future<Output = Result<Effects, TaskError>> + Send>>;
/// Begins a run.
type Callback = dyn Fn(Fire) -> RunFuture + Send + Sync;
/// The start of a workflow for a fire, and the id of its run.
type Starter = dyn Fn(&Client, &Fire) -> Result<(String, Batch), WorkflowError> + Send + Sync;

/// What a task does.
pub(super) enum Action {
    /// Runs the user's code.
    Call(Box<Callback>),
    /// Starts a workflow, in one commit with the record of the fire.
    Start(Box<Starter>),
}

/// A task: a name, times, and what it does.
///
/// Its record is kept under its name. Registered again with other times or policies, it keeps its history; not registered any
/// more by its scheduler, it is archived.
#[must_use = "a task does nothing before it is given to a scheduler"]
pub struct Task {
    pub(super) name: String,
    when: Option<Result<When, CronError>>,
    zone: String,
    spec: Spec,
    retry_delay: Duration,
    pub(super) timeout: Option<Duration>,
    pub(super) action: Option<Action>,
    does: String,
}

impl Task {
    /// A task of this name.
    pub fn new(name: impl Into<String>) -> Self {
        let retry_delay = Duration::from_mins(1);
        Self {
            name: name.into(),
            when: None,
            zone: "UTC".to_owned(),
            spec: Spec {
                zone: String::new(),
                gap: Gap::default(),
                repeat: Repeat::default(),
                catch_up: CatchUp::default(),
                overlap: Overlap::default(),
                spread: Duration::ZERO,
                jitter: Duration::ZERO,
                max_attempts: 10,
                retry_factor: 1.0,
                retry_cap: retry_delay,
                keep: 100,
            },
            retry_delay,
            timeout: None,
            action: None,
            does: String::new(),
        }
    }

    /// Its times, as a cron expression of five fields, `@daily` and the like, `@every 10m`, or `@at 2026-03-29T01:00:00Z`.
    pub fn cron(mut self, expression: &str) -> Self {
        self.when = Some(expression.parse());
        self
    }

    /// It runs every so often, for the first time when that has passed once.
    pub fn every(mut self, interval: Duration) -> Self {
        self.when = Some(When::every(interval));
        self
    }

    /// It runs once, at that instant. If that has passed, [`catch_up`](Self::catch_up) says what becomes of it.
    pub fn at(mut self, at: Timestamp) -> Self {
        self.when = Some(Ok(When::At(at)));
        self
    }

    /// The zone of its cron expression, by its IANA name: UTC.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = zone.into();
        self
    }

    /// What becomes of wall times that are left out when clocks go forward: as Vixie's cron does.
    pub fn gap(mut self, gap: Gap) -> Self {
        self.spec.gap = gap;
        self
    }

    /// What becomes of wall times that happen twice when clocks go back: as Vixie's cron does.
    pub fn repeat(mut self, repeat: Repeat) -> Self {
        self.spec.repeat = repeat;
        self
    }

    /// What becomes of fires that were missed while nobody was there: one run for all of them.
    pub fn catch_up(mut self, catch_up: CatchUp) -> Self {
        self.spec.catch_up = catch_up;
        self
    }

    /// What becomes of fires that come while the task runs: one run when it has ended.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.spec.overlap = overlap;
        self
    }

    /// All its fires are due later, by a share of this that its name hashes to. For many tasks with the same times.
    pub fn spread(mut self, most: Duration) -> Self {
        self.spec.spread = most;
        self
    }

    /// Each fire is due later, by a share of this that its key hashes to. It should be less than the time between fires.
    pub fn jitter(mut self, most: Duration) -> Self {
        self.spec.jitter = most;
        self
    }

    /// How long after the end of a failure it is tried again: a minute, ten attempts in all. A fire of the timetable that comes
    /// earlier takes the place of the retry of another one. Runs that were asked for, and those of a backfill, are always retried.
    pub fn retry(mut self, delay: Duration) -> Self {
        (self.retry_delay, self.spec.retry_cap, self.spec.retry_factor) = (delay, delay, 1.0);
        self
    }

    /// The same with attempts, a factor and a cap. The waits are as long as the policy allows, without chance.
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        (self.retry_delay, self.spec.retry_cap) = (policy.base, policy.cap);
        (self.spec.max_attempts, self.spec.retry_factor) = (policy.max_attempts, policy.factor);
        self
    }

    /// Sets the timeout of a run, after which it is interrupted and counts as failed. There is none by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How many entries of its history are kept, at least: 100, at most 1,000.
    pub fn keep(mut self, entries: u32) -> Self {
        self.spec.keep = entries.clamp(1, 1_000);
        self
    }

    /// What it does: an async function that answers effects, or `()`.
    pub fn run<F, Fut, E>(mut self, code: F) -> Self
    where
        F: Fn(Fire) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<E, TaskError>> + Send + 'static,
        E: Into<Effects>,
    {
        let call = move |fire: Fire| -> RunFuture {
            let running = code(fire);
            Box::pin(async move { running.await.map(Into::into) })
        };
        self.action = Some(Action::Call(Box::new(call)));
        "a function".clone_into(&mut self.does);
        self
    }

    /// It starts a run of a workflow. The id of the run is the [key](Fire::key) of the fire, and the start is in one commit with
    /// the record: there is one run for each fire.
    pub fn start<I, O>(
        self,
        workflow: Workflow<I, O>,
        input: impl Fn(&Fire) -> I + Send + Sync + 'static,
    ) -> Self
    where
        I: Serialize + 'static,
        O: 'static,
    {
        let name = workflow.name();
        self.start_with(name, move |client, fire| client.start(workflow, &input(fire)))
    }

    /// The same with a queue, a priority or attributes. The id is set to the [key](Fire::key) of the fire.
    pub fn start_with<O>(
        mut self,
        workflow: &str,
        make: impl Fn(&Client, &Fire) -> Start<O> + Send + Sync + 'static,
    ) -> Self {
        let start = move |client: &Client, fire: &Fire| make(client, fire).id(fire.key()).batch();
        self.action = Some(Action::Start(Box::new(start)));
        self.does = format!("workflow {workflow}");
        self
    }

    /// How often a fire is tried, at most.
    pub(super) fn attempts(&self) -> u32 {
        self.spec.max_attempts
    }

    /// Checks all of it, and makes the record that it begins with.
    pub(super) fn check(&self, scheduler: &str, now: Timestamp) -> Result<Record, ScheduleError> {
        names::check("the name of a task", &self.name)?;
        let task = || self.name.clone();
        let missing = |missing| ScheduleError::Incomplete { task: task(), missing };
        let wrong = |error| ScheduleError::Times { task: task(), error };
        let when = self
            .when
            .clone()
            .ok_or_else(|| missing("no times; give it some with cron(), every() or at()"))?;
        let when = when.map_err(wrong)?;
        let zone = Zone::parse(&self.zone).map_err(wrong)?;
        if self.action.is_none() {
            return Err(missing("nothing to do; give it something with run() or start()"));
        }
        let spec = Spec { zone: zone.as_str().to_owned(), ..self.spec.clone() };
        let cron_expression = when.to_string();
        let begin = Timetable::new(&self.name, when, zone).beginning(now);
        let task = TaskRecord {
            name: self.name.clone(),
            cron_expression,
            retry_delay_ms: u64::try_from(self.retry_delay.as_millis()).unwrap_or(u64::MAX),
            last_success_time: None,
            last_failure_time: None,
            last_attempt_time: None,
            pending_retry_until: None,
            scheduler_identifier: None,
        };
        Ok(Record {
            task,
            spec,
            scheduler: scheduler.to_owned(),
            action: self.does.clone(),
            anchor: now,
            progress: Progress::beginning(begin),
            busy: None,
            running: None,
            retrying: Vec::new(),
            asked: Vec::new(),
            last_asked: None,
            backfill: Vec::new(),
            open: Vec::new(),
            paused: None,
            archived: None,
            runs: 0,
            failures: 0,
            skipped: 0,
        })
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, when, zone, does, .. } = self;
        let mut task = f.debug_struct("Task");
        task.field("name", name).field("when", when).field("zone", zone).field("does", does);
        task.finish_non_exhaustive()
    }
}
