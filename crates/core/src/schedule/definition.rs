//! Declaration of a scheduled task.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use serde::Serialize;

use super::error::ScheduleError;
use super::keys;
use super::record::{Record, ScheduleRecord, Spec};
use super::tick::Tick;
use crate::clock::Timestamp;
use crate::failure::Failure;
use crate::model::cron::{
    CatchUp, CronError, DstGap, DstOverlap, Overlap, Progress, Recurrence, Trigger, Zone,
};
use crate::model::retry::RetryPolicy;
use crate::reactions::Effects;
use crate::store::Batch;
use crate::workflow::{StartRequest, Workflow, WorkflowClient, WorkflowError};

/// The future of a run.
pub(super) type RunFuture = Pin<Box<dyn Future<Output = Result<Effects, Failure>> + Send>>;
/// The callback that starts a run.
type Callback = dyn Fn(Tick) -> RunFuture + Send + Sync;
/// The callback that starts a workflow for a fire, and returns the id of its run.
type Starter = dyn Fn(&WorkflowClient, &Tick) -> Result<(String, Batch), WorkflowError> + Send + Sync;

/// The action of a task.
pub(super) enum Action {
    /// Runs the user's code.
    Call(Box<Callback>),
    /// Starts a workflow, in one commit with the record of the fire.
    Start(Box<Starter>),
}

/// A scheduled task: a name, times, and an action.
///
/// The name identifies the record. A task that is registered again with other times or policies keeps its history. A task that
/// its scheduler no longer registers is archived.
#[must_use = "a task does nothing before it is given to a scheduler"]
pub struct Schedule {
    pub(super) name: String,
    when: Option<Result<Trigger, CronError>>,
    zone: String,
    spec: Spec,
    retry_delay: Duration,
    pub(super) timeout: Option<Duration>,
    pub(super) action: Option<Action>,
    does: String,
}

impl Schedule {
    /// Creates a task of this name.
    pub fn new(name: impl Into<String>) -> Self {
        let retry_delay = Duration::from_mins(1);
        Self {
            name: name.into(),
            when: None,
            zone: "UTC".to_owned(),
            spec: Spec {
                zone: String::new(),
                gap: DstGap::default(),
                repeat: DstOverlap::default(),
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

    /// Sets the times: a cron expression of five fields, `@daily` and the like, `@every 10m`, or `@at 2026-03-29T01:00:00Z`.
    pub fn cron(mut self, expression: &str) -> Self {
        self.when = Some(expression.parse());
        self
    }

    /// Runs the task at an interval. The first run starts after one interval.
    pub fn every(mut self, interval: Duration) -> Self {
        self.when = Some(Trigger::every(interval));
        self
    }

    /// Runs the task once, at that instant. If the instant has passed, the [`catch_up`](Self::catch_up) policy applies.
    pub fn at(mut self, at: Timestamp) -> Self {
        self.when = Some(Ok(Trigger::At(at)));
        self
    }

    /// Sets the zone of the cron expression, by its IANA name. The default is UTC.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = zone.into();
        self
    }

    /// Sets the policy for wall times that are skipped when clocks go forward. The default follows Vixie's cron.
    pub fn gap(mut self, gap: DstGap) -> Self {
        self.spec.gap = gap;
        self
    }

    /// Sets the policy for wall times that occur twice when clocks go back. The default follows Vixie's cron.
    pub fn repeat(mut self, repeat: DstOverlap) -> Self {
        self.spec.repeat = repeat;
        self
    }

    /// Sets the policy for fires that were missed while no scheduler was running. The default is one run for all of them.
    pub fn catch_up(mut self, catch_up: CatchUp) -> Self {
        self.spec.catch_up = catch_up;
        self
    }

    /// Sets the policy for fires that come while the task runs. The default is one run when it has ended.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.spec.overlap = overlap;
        self
    }

    /// Delays all fires by a share of this that the name hashes to. It is meant for many tasks with the same times.
    pub fn spread(mut self, most: Duration) -> Self {
        self.spec.spread = most;
        self
    }

    /// Delays each fire by a share of this that its key hashes to. It should be less than the time between fires.
    pub fn jitter(mut self, most: Duration) -> Self {
        self.spec.jitter = most;
        self
    }

    /// Sets the delay between the end of a failed run and its retry. The default is a minute, with ten attempts in all. An
    /// earlier fire of the timetable supersedes the retry of another one. Requested runs and those of a backfill are always
    /// retried.
    pub fn retry(mut self, delay: Duration) -> Self {
        (self.retry_delay, self.spec.retry_cap, self.spec.retry_factor) = (delay, delay, 1.0);
        self
    }

    /// Sets the retry delay, the attempts, the factor and the cap. The delays are as long as the policy allows, without jitter.
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

    /// Sets the minimum number of history entries to keep. The default is 100, and the maximum is 1,000.
    pub fn keep(mut self, entries: u32) -> Self {
        self.spec.keep = entries.clamp(1, 1_000);
        self
    }

    /// Sets the action to an async function or closure that returns effects, or `()`. It is cloned for each run, so its captures
    /// should be cheap to clone, and an `async move` closure can borrow from them.
    ///
    /// ```
    /// use tidelock_core::schedule::Schedule;
    ///
    /// let report = Schedule::new("report").cron("@daily").run(async |tick| {
    ///     println!("the report of {}", tick.time());
    ///     Ok(())
    /// });
    /// # drop(report);
    /// ```
    pub fn run<F, Fut, E>(mut self, code: F) -> Self
    where
        F: FnOnce(Tick) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<E, Failure>> + Send + 'static,
        E: Into<Effects>,
    {
        let call = move |fire: Tick| -> RunFuture {
            let running = code.clone()(fire);
            Box::pin(async move { running.await.map(Into::into) })
        };
        self.action = Some(Action::Call(Box::new(call)));
        "a function".clone_into(&mut self.does);
        self
    }

    /// Sets the action to the start of a workflow. The id of the run is the [key](Tick::key) of the fire. The start commits
    /// together with the record, so each fire has exactly one run.
    pub fn start<I, O>(
        self,
        workflow: Workflow<I, O>,
        input: impl Fn(&Tick) -> I + Send + Sync + 'static,
    ) -> Self
    where
        I: Serialize + 'static,
        O: 'static,
    {
        let name = workflow.name();
        self.start_with(name, move |client, fire| client.start(workflow, &input(fire)))
    }

    /// Like [`start`](Self::start), with a queue, a priority or attributes. The id is set to the [key](Tick::key) of the fire.
    pub fn start_with<O>(
        mut self,
        workflow: &str,
        make: impl Fn(&WorkflowClient, &Tick) -> StartRequest<O> + Send + Sync + 'static,
    ) -> Self {
        let start = move |client: &WorkflowClient, fire: &Tick| make(client, fire).id(fire.key()).batch();
        self.action = Some(Action::Start(Box::new(start)));
        self.does = format!("workflow {workflow}");
        self
    }

    /// Returns the maximum number of attempts of a fire.
    pub(super) fn attempts(&self) -> u32 {
        self.spec.max_attempts
    }

    /// Validates the task, and creates its initial record.
    pub(super) fn check(&self, scheduler: &str, now: Timestamp) -> Result<Record, ScheduleError> {
        keys::check("the name of a task", &self.name)?;
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
        let begin = Recurrence::new(&self.name, when, zone).beginning(now);
        let task = ScheduleRecord {
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

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, when, zone, does, .. } = self;
        let mut task = f.debug_struct("Schedule");
        task.field("name", name).field("when", when).field("zone", zone).field("does", does);
        task.finish_non_exhaustive()
    }
}
