//! The driver of a run: performs the actions of its [activation](super::activation) against the store.
//!
//! It decides nothing about the workflow. It holds the lease, commits, reads the journal and the clock, and polls the future.

mod commit;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::task::coop::{consume_budget, has_budget_remaining};
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use super::activation::{Action, Activation, ActivationRef, Finish, Moment, Outgoing};
use super::client::WorkflowClient;
use super::ctx::Ctx;
use super::engine::{Output, RunFuture, WorkflowEngine};
use super::error::WorkflowError;
use super::journal_entry::{Ending, Placed, Started};
use super::life::Life;
use super::load::{Loaded, Unready, load};
use super::nondeterminism::Nondeterminism;
use super::suspension::{SILENT_CLAIMS, Suspended, Suspension, workers_die};
use super::{completion, context_guard, keys, start};
use crate::clock::{Due, Timestamp};
use crate::error::{Explain as _, InvalidInput, Retry};
use crate::id::StreamVersion;
use crate::key::Key;
use crate::lease::NEVER;
use crate::model::limits::ERROR_BYTES;
use crate::payload::Payload;
use crate::process;
use crate::runtime::panic::{Isolated, isolate, text};
use crate::runtime::timer::sleep_until;
use crate::store::{Batch, Expect, Grant, SharedStore, Watch};
use crate::telemetry::{WORKFLOW, follow};
use crate::worker::{Committed, LeasedWork};

pub(super) use self::commit::JournalChange;

/// The number of journal entries that come with the grant of a run.
pub(super) const ENTRIES: usize = 64;
/// The interval at which a busy run checks for entries that others wrote, when there may be some.
const LOOK: Duration = Duration::from_millis(100);
/// The pause after a cancel of a child whose outcome is unknown.
const CANCEL_PAUSE: Duration = Duration::from_millis(500);
/// The reason for handing back a run whose journal could not be read. Its steps may have run in part.
const UNREAD: &str = "its journal could not be read";

/// The end of an activation.
#[derive(Debug)]
pub(super) enum ActivationResult {
    /// The run has ended, or has continued as new.
    Ended,
    /// The run waits in the store.
    Rests,
    /// The run cannot continue, and is suspended with this reason.
    Parked(Suspension),
    /// This worker no longer holds the run: it lost the lease, or released it after a failure of the store.
    Lost,
    /// The run is handed back to other workers, for example because this process shuts down.
    HandedBack,
}

/// The control flow after a read or a commit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DriverFlow {
    On,
    /// Replay from the beginning: entries of others precede results that the workflow has received, or a step that it dropped
    /// has recorded its end.
    Rewind,
    Gone,
}

/// A run that this process drives.
pub(super) struct Drive {
    pub(super) shared: Arc<WorkflowEngine>,
    pub(super) holding: Arc<LeasedWork>,
    pub(super) grant: Grant,
    pub(super) started: Started,
    pub(super) journal: Key,
    /// The version of the next entry, as far as this driver knows.
    next: StreamVersion,
    pub(super) activation: ActivationRef,
    future: Isolated<RunFuture>,
    token: CancellationToken,
    hints: Option<Watch>,
    /// When the journal was last read for entries of others. Hints may be lost.
    read_at: Instant,
    /// The next commit resets the count of claims without progress.
    stumbled: bool,
}

/// Drives a granted run until it ends, rests, is suspended, or is lost.
pub(super) async fn drive(
    shared: Arc<WorkflowEngine>,
    mut grant: Grant,
    holding: LeasedWork,
    span: &Span,
) -> ActivationResult {
    let holding = Arc::new(holding.counting_unknown(Suspended::interrupted(&grant.row).row(&grant.row)));
    let events = std::mem::take(&mut grant.events);
    let left = match load(&shared, &grant, events).await {
        _ if workers_die(&grant.row) => {
            ActivationResult::Parked(Suspension::WorkersDied { claims: grant.row.attempts })
        }
        Err(Unready::Store(error)) => {
            tracing::warn!(target: WORKFLOW, %error, "journal read failed");
            shared.worker.back_off(&error).await;
            holding.release().await;
            ActivationResult::Lost
        }
        Err(Unready::Never(reason)) => ActivationResult::Parked(reason),
        Ok(Loaded::Over) => over(&shared, &holding, &grant).await,
        Ok(Loaded::Run(started, history, next)) => {
            span.record("workflow", started.workflow.as_str());
            follow(span, started.trace.as_deref());
            match Drive::new(&shared, &holding, &grant, *started, history, next) {
                Ok(mut drive) => drive.run().await,
                Err(unfit) => left_to_others(&shared, &holding, &grant, unfit, next).await,
            }
        }
    };
    if let ActivationResult::Parked(reason) = &left {
        park(&shared, &holding, &grant, reason).await;
    }
    left
}

/// Handles a journal that has ended. The work row is removed, unless the run has continued under another journal.
async fn over(shared: &WorkflowEngine, holding: &LeasedWork, grant: &Grant) -> ActivationResult {
    let run = keys::run_of(&grant.row.key).unwrap_or_default();
    let found = match completion::find(&shared.worker.store, &run).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(target: WORKFLOW, run, %error, "a run could not be read; it is handed back");
            holding.release().await;
            return ActivationResult::Lost;
        }
    };
    let mut batch = Batch::new().ack(holding.lease());
    if let Some((record, version)) = found.filter(|(record, _)| !record.status.is_over()) {
        match start::wake(&run, &record) {
            Ok(row) if row.follow == grant.row.follow => {
                let contradiction = "it has ended, and the document of the run says that it runs";
                return ActivationResult::Parked(Suspension::unreadable(contradiction));
            }
            Ok(row) => batch = batch.guard_document(&grant.row.key, Expect::Exact(version)).enqueue(row),
            Err(error) => return ActivationResult::Parked(Suspension::rejected(error)),
        }
    }
    match holding.commit(batch).await {
        Committed::Done(_) => ActivationResult::Ended,
        Committed::Gone => ActivationResult::Lost,
        Committed::Refused(_) => {
            holding.release().await;
            ActivationResult::HandedBack
        }
    }
}

/// Leaves a run that this process cannot begin to other workers, which may know its workflow and can claim it soon. When
/// none seems to, the work row records the reason.
async fn left_to_others(
    shared: &WorkflowEngine,
    holding: &LeasedWork,
    grant: &Grant,
    unfit: Unfit,
    next: StreamVersion,
) -> ActivationResult {
    let reason = match unfit {
        Unfit::Never(reason) => return ActivationResult::Parked(reason),
        Unfit::Unknown(reason) => reason,
    };
    let now = grant.row.lease.as_ref().map_or(grant.row.enqueued_at, |lease| lease.since);
    let (wait, is_likely) = shared.unknown.wait(&grant.row.key, next, now);
    let batch = if is_likely {
        shared.counters.parked.add(1);
        let text = reason.to_string();
        let suspended = Suspended { claims: grant.row.attempts, reason };
        Batch::new().fail(holding.lease(), text, Due::After(wait)).enqueue(suspended.row(&grant.row))
    } else {
        Batch::new().defer(holding.lease(), Due::After(wait))
    };
    match holding.commit(batch).await {
        Committed::Done(_) => ActivationResult::HandedBack,
        _ => ActivationResult::Lost,
    }
}

/// The reason why this process cannot begin a run.
enum Unfit {
    /// This process does not know its workflow.
    Unknown(Suspension),
    Never(Suspension),
}

/// Suspends a run that cannot continue. The run stays unchanged; its work row records the reason and the time of the retry.
async fn park(shared: &WorkflowEngine, holding: &LeasedWork, grant: &Grant, reason: &Suspension) {
    let row = &grant.row;
    tracing::warn!(target: WORKFLOW, run = %row.key, %reason, "run suspended");
    // Silent claims were retried at once; the backoff begins after them.
    let silent = matches!(reason, Suspension::WorkersDied { .. });
    let doublings = row.attempts.saturating_sub(if silent { SILENT_CLAIMS } else { 0 }).min(9);
    let wait = Duration::from_secs(1).saturating_mul(1 << doublings).min(Duration::from_mins(5));
    let suspended = Suspended { claims: row.attempts, reason: reason.clone() };
    let batch = Batch::new().fail(holding.lease(), reason.to_string(), Due::After(wait));
    let batch = batch.enqueue(suspended.row(row));
    drop(holding.commit(batch).await);
    shared.counters.parked.add(1);
}

impl Drive {
    fn new(
        shared: &Arc<WorkflowEngine>,
        holding: &Arc<LeasedWork>,
        grant: &Grant,
        started: Started,
        history: Vec<Placed>,
        next: StreamVersion,
    ) -> Result<Self, Unfit> {
        let definition = shared.definitions.get(&started.workflow).cloned().ok_or_else(|| {
            let (workflow, known) = (started.workflow.clone(), shared.definitions.keys().cloned().collect());
            Unfit::Unknown(Suspension::UnknownWorkflow { workflow, known })
        })?;
        let never = |error: InvalidInput| Unfit::Never(Suspension::rejected(error));
        let journal = keys::journal(&started.run, started.generation).map_err(never)?;
        let token = holding.token().child_token();
        shared.counters.replayed.add(history.len());
        let activation = Activation::new(history, &started.heard);
        let life = Life {
            run: started.run.as_str().into(),
            identity: keys::identity(&started.run, started.generation).into(),
            generation: started.generation,
            queue: started.queue.clone(),
            activation: Arc::clone(&activation),
            hold: Some((Arc::clone(&shared.worker.store), Arc::clone(holding))),
            token: token.clone(),
            again: grant.row.attempts > 1 || grant.row.takeovers > 0,
            takeovers: grant.row.takeovers,
        };
        let misfit = |detail: String| {
            let workflow = definition.name.clone();
            Unfit::Never(Suspension::UnfitInput { workflow, detail })
        };
        let begin = || (definition.begin)(Ctx::new(life), &started.input);
        let begun = isolate("its conversion", || context_guard::in_workflow(&activation, begin));
        let future = begun.map_err(misfit)?.map_err(|error| misfit(error.to_string()))?;
        Ok(Self {
            shared: Arc::clone(shared),
            holding: Arc::clone(holding),
            grant: grant.clone(),
            started,
            journal,
            next,
            activation,
            future: Isolated::new(future),
            token,
            hints: None,
            read_at: process::now(),
            stumbled: grant.row.attempts > 1,
        })
    }

    /// Performs actions until the activation ends.
    async fn run(&mut self) -> ActivationResult {
        let mut now = None;
        loop {
            // Code that is always ready must let other tasks run.
            consume_budget().await;
            let stopping = self.shared.worker.stopping.is_cancelled();
            let moment = Moment { stopping, linger: self.shared.options.linger, now: now.take() };
            let action = self.activation.lock().next(moment);
            match self.perform(action).await {
                Ok(read) => now = read,
                Err(left) => return left,
            }
        }
    }

    /// Performs an action. Returns the time of the store's clock if the action read it.
    async fn perform(&mut self, action: Action) -> Result<Option<Timestamp>, ActivationResult> {
        match action {
            Action::Poll => self.poll_once().await?,
            Action::CancelChildren(children) => self.cancel_children(children).await?,
            Action::Commit => {
                let flow = self.commit_outgoing().await;
                self.follow(flow).await?;
            }
            Action::Suspend(due) => self.suspend(due).await?,
            Action::ReadJournal => self.read_or_rewind().await?,
            Action::ReadOwnRecords => {
                self.read_or_rewind().await?;
                self.activation.lock().prove();
            }
            Action::ReadClock => return self.read_clock().await,
            Action::ContinueAsNew(input) => self.continue_as_new(input).await?,
            Action::Rewind => self.rewind().await?,
            Action::Release => {
                self.holding.release().await;
                return Err(ActivationResult::HandedBack);
            }
            Action::Wait(limit) => self.wait(limit).await?,
            Action::Fail(broken) => return Err(unfit(&broken)),
        }
        Ok(None)
    }

    /// Replays the journal from the beginning, with all entries that are recorded by now.
    async fn rewind(&mut self) -> Result<(), ActivationResult> {
        let store = &self.shared.worker.store;
        let loaded = load(&self.shared, &self.grant, Vec::new()).await;
        match loaded {
            Ok(Loaded::Run(started, history, next)) => {
                let (stumbled, hints) = (self.stumbled, self.hints.take());
                let (shared, holding) = (&self.shared, &self.holding);
                // Steps that were in flight have run in part.
                self.grant.row.attempts = self.grant.row.attempts.max(2);
                let new = Self::new(shared, holding, &self.grant, *started, history, next);
                *self = new.map_err(|(Unfit::Unknown(reason) | Unfit::Never(reason))| {
                    ActivationResult::Parked(reason)
                })?;
                (self.stumbled, self.hints) = (stumbled, hints);
                Ok(())
            }
            Ok(Loaded::Over) => Err(ActivationResult::Ended),
            Err(Unready::Never(reason)) => Err(ActivationResult::Parked(reason)),
            Err(Unready::Store(error)) => {
                tracing::warn!(target: WORKFLOW, %error, store = ?store, "journal read failed");
                self.holding.hand_back(UNREAD).await;
                Err(ActivationResult::Lost)
            }
        }
    }

    async fn follow(&mut self, flow: DriverFlow) -> Result<(), ActivationResult> {
        match flow {
            DriverFlow::On => Ok(()),
            DriverFlow::Rewind => self.rewind().await,
            DriverFlow::Gone => Err(ActivationResult::Lost),
        }
    }

    /// Polls the workflow once. A cancelled run stops its steps first.
    async fn poll_once(&mut self) -> Result<(), ActivationResult> {
        if self.activation.lock().cancelled().is_some() {
            self.token.cancel();
        }
        let mut polled = self.poll_now().await;
        if polled.is_pending() && !has_budget_remaining() {
            // Combinators of tokio poll nothing once the budget of the task is used up.
            yield_now().await;
            polled = self.poll_now().await;
        }
        match polled {
            Poll::Ready(output) => self.finish(output).await,
            Poll::Pending => Ok(()),
        }
    }

    async fn poll_now(&mut self) -> Poll<Output> {
        std::future::poll_fn(|context| Poll::Ready(self.poll(context))).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Output> {
        match self.future.get_mut() {
            Some(future) => poll(&self.activation, future, context),
            None => Poll::Pending,
        }
    }

    /// Commits the outgoing entries and lets the run wait in the store.
    async fn suspend(&mut self, due: Due) -> Result<(), ActivationResult> {
        let outgoing = self.take_outgoing();
        loop {
            let batch =
                self.batch(&outgoing).and_then(|batch| self.move_to_begun(batch)).map_err(rejected)?;
            match self.holding.commit(batch.defer(self.holding.lease(), due)).await {
                Committed::Done(_) => return Err(ActivationResult::Rests),
                Committed::Gone => return Err(ActivationResult::Lost),
                Committed::Refused(refusal) if self.is_behind(&refusal) => {
                    if self.read_news(None).await.map_err(|_| ActivationResult::Lost)?
                        == JournalChange::Overtaken
                    {
                        return self.rewind().await;
                    }
                }
                Committed::Refused(refusal) => return Err(rejected(refusal)),
            }
        }
    }

    /// Moves the row to the lane of runs that have begun, when the run rests for the first time.
    fn move_to_begun(&self, batch: Batch) -> Result<Batch, String> {
        let Started { run, queue, generation, .. } = &self.started;
        let lane = keys::queue_name(queue).map_err(|error| error.to_string())?;
        if self.grant.row.queue == lane {
            return Ok(batch);
        }
        let row = start::row(run, queue, self.grant.row.priority, *generation);
        Ok(batch.enqueue(row.map_err(|error| error.to_string())?.due(Due::At(NEVER))))
    }

    /// Waits in memory until the workflow changes something, at most for this time. Reads the journal if a hint or the poll
    /// interval requires it.
    async fn wait(&mut self, limit: Option<Duration>) -> Result<(), ActivationResult> {
        let until = process::now() + limit.map_or(LOOK, |limit| limit.min(LOOK));
        let lost = self.holding.token().clone();
        let cut = self.shared.worker.cut.clone();
        let activation = Arc::clone(&self.activation);
        let ended = tokio::select! {
            biased;
            () = lost.cancelled() => return Err(ActivationResult::Lost),
            () = cut.cancelled() => {
                self.holding.hand_back("its worker was stopped while a step ran").await;
                return Err(ActivationResult::HandedBack);
            }
            ended = std::future::poll_fn(|context| match self.poll(context) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending if activation.lock().take_changed() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }) => Some(ended),
            () = sleep_until(until) => None,
        };
        match ended {
            Some(Some(output)) => self.finish(output).await,
            Some(None) => Ok(()),
            None => self.read_hinted().await,
        }
    }

    /// Reads the store's clock. While it cannot be read, steps continue for as long as the lease lasts.
    async fn read_clock(&mut self) -> Result<Option<Timestamp>, ActivationResult> {
        match self.shared.worker.store.now().await {
            Ok(now) => Ok(Some(now)),
            Err(error) => {
                tracing::warn!(target: WORKFLOW, %error, "store clock not read");
                self.wait(None).await.map(|()| None)
            }
        }
    }

    /// Reads the entries that others wrote while a step runs, when a hint indicates that there may be some. Hints may be lost;
    /// the poll interval then bounds the delay.
    async fn read_hinted(&mut self) -> Result<(), ActivationResult> {
        let overdue = process::elapsed(self.read_at) >= self.shared.worker.options.poll_interval;
        let hinted = match &mut self.hints {
            Some(hints) if !hints.has_changed() => false,
            Some(hints) => hints.changed().await,
            None => {
                self.hints = Some(self.shared.worker.store.watch());
                true
            }
        };
        if !hinted && !overdue {
            return Ok(());
        }
        match self.journal_since().await {
            Err(Unready::Store(error)) => {
                // The steps continue for as long as the lease lasts. The next check reads without a hint.
                tracing::warn!(target: WORKFLOW, %error, "journal read failed");
                self.hints = None;
                Ok(())
            }
            read => {
                let news = self.take_up(read, None);
                self.rewind_if(news).await
            }
        }
    }

    /// Reads the entries that others wrote into the journal, and rewinds when the workflow took another path.
    async fn read_or_rewind(&mut self) -> Result<(), ActivationResult> {
        let news = self.read_news(None).await.map_err(|_| ActivationResult::Lost)?;
        self.rewind_if(news).await
    }

    async fn rewind_if(&mut self, news: JournalChange) -> Result<(), ActivationResult> {
        if news == JournalChange::Overtaken { self.rewind().await } else { Ok(()) }
    }

    /// Cancels children. An error of the store is retried for as long as the lease lasts: a cancel may be repeated, and the
    /// next driver of the run cancels its children again.
    pub(super) async fn cancel_children(&mut self, children: Vec<String>) -> Result<(), ActivationResult> {
        let client = WorkflowClient::new(SharedStore::clone(&self.shared.worker.store));
        for child in children {
            let reason = self.activation.lock().cancelled().unwrap_or_default().to_owned();
            while let Err(error) = client.cancel(&child, &reason).await {
                let retry = match (&error, error.retry()) {
                    (_, Retry::After(wait)) => Some(wait),
                    (_, Retry::Now) => Some(Duration::ZERO),
                    (WorkflowError::Store(_), _) => Some(CANCEL_PAUSE),
                    (WorkflowError::Write(write), _) if write.refusal().is_none() => Some(CANCEL_PAUSE),
                    _ => None,
                };
                let Some(wait) = retry else {
                    tracing::debug!(target: WORKFLOW, child, %error, "child not cancelled");
                    break;
                };
                tracing::warn!(target: WORKFLOW, child, %error, "child cancellation retried");
                let (lost, cut) = (self.holding.token().clone(), self.shared.worker.cut.clone());
                tokio::select! {
                    biased;
                    () = lost.cancelled() => return Err(ActivationResult::Lost),
                    () = cut.cancelled() => {
                        self.holding.hand_back("its worker was stopped while it cancelled its children").await;
                        return Err(ActivationResult::HandedBack);
                    }
                    () = sleep_until(process::now() + wait) => {}
                }
            }
        }
        Ok(())
    }

    /// Ends the run with an output, unless the journal shows that the workflow took another path.
    async fn finish(&mut self, output: Output) -> Result<(), ActivationResult> {
        loop {
            let finish = self.activation.lock().finish();
            match finish {
                Finish::End => break,
                Finish::Rewind => return self.rewind().await,
                Finish::Fail(broken) => return Err(unfit(&broken)),
                Finish::Commit => match self.commit_outgoing().await {
                    DriverFlow::On => {}
                    flow => return self.follow(flow).await,
                },
            }
        }
        let cancelled = self.activation.lock().cancelled().is_some();
        let ending = match output {
            Ok(output) => Ending::Completed(output),
            Err(failure) if cancelled => Ending::Cancelled(failure.truncated(ERROR_BYTES)),
            Err(failure) => Ending::Failed(failure.truncated(ERROR_BYTES)),
        };
        match completion::end(self, ending).await {
            Some(left) => Err(left),
            None => self.rewind().await,
        }
    }

    /// Ends this generation and begins the next. Entries that others write concurrently are delivered first, or carried over.
    async fn continue_as_new(&mut self, input: Payload) -> Result<(), ActivationResult> {
        match self.read_news(None).await {
            Ok(JournalChange::Overtaken) => self.rewind().await,
            Ok(JournalChange::Some) => Ok(()),
            Ok(JournalChange::Nothing) => match completion::begin_anew(self, input).await {
                Some(left) => Err(left),
                None => Ok(()),
            },
            Err(_) => Err(ActivationResult::Lost),
        }
    }

    /// Returns the estimated time of the store's clock, for times that are recorded.
    pub(super) fn now(&self) -> Timestamp {
        self.shared.worker.store.estimated_now().max(self.started.started_at)
    }

    /// Returns the version of the last entry, as far as this driver knows.
    pub(super) fn last(&self) -> StreamVersion {
        StreamVersion(self.next.0.saturating_sub(1))
    }

    pub(super) fn take_outgoing(&self) -> Vec<Outgoing> {
        self.activation.lock().take_outgoing()
    }
}

/// Returns the exit of a run whose code does not fit.
fn unfit(broken: &Nondeterminism) -> ActivationResult {
    ActivationResult::Parked(Suspension::from(broken))
}

/// Returns the exit of a run whose commit cannot be built, or is rejected.
fn rejected(reason: impl std::fmt::Display) -> ActivationResult {
    ActivationResult::Parked(Suspension::rejected(reason))
}

/// Polls a workflow once. A panic makes the run unfit to continue.
pub(super) fn poll(
    activation: &ActivationRef,
    future: &mut RunFuture,
    context: &mut Context<'_>,
) -> Poll<Output> {
    let polled = context_guard::in_workflow(activation, || {
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)))
    });
    polled.unwrap_or_else(|panic| {
        activation.lock().fail(Nondeterminism::Panicked { reason: text(&*panic).to_owned() });
        Poll::Pending
    })
}
