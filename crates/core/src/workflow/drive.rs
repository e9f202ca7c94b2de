//! One activation of a run: replay what is recorded, go on, and write every end before the next beginning.

mod writing;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tracing::Span;

use super::broken::Broken;
use super::cell::{Cell, Idle, Outgoing};
use super::client::Client;
use super::ctx::{Ctx, Life};
use super::engine::{Output, RunFuture, WorkflowEngine};
use super::entry::{Ending, Entry, Placed, Started};
use super::load::{Loaded, Unready, load};
use super::{end, names, new_run, place};
use crate::clock::{Due, Timestamp};
use crate::error::{Explain as _, InvalidInput, Retry};
use crate::id::StreamVersion;
use crate::key::Key;
use crate::lease::NEVER;
use crate::payload::Payload;
use crate::runtime::panic::text;
use crate::runtime::timer::sleep_until;
use crate::store::{Batch, Expect, Grant, SharedStore, Watch, WorkRow};
use crate::telemetry::{WORKFLOW, follow};
use crate::worker::{Committed, LeasedWork, idle};

pub(super) use self::writing::News;

/// How many entries of its journal come with the grant of a run.
pub(super) const ENTRIES: usize = 64;
/// How often a run that is busy looks for what others tell it, when there may be something.
const LOOK: Duration = Duration::from_millis(100);
/// So many activations without any progress and without any word are a reason to wait.
const SILENT_DEATHS: u32 = 5;

/// How an activation ended.
#[derive(Debug)]
pub(super) enum Left {
    /// The run is over, or has begun anew.
    Ended,
    /// It waits.
    Rests,
    /// It cannot go on with the code that is here.
    Parked(String),
    /// It is not ours any more.
    Lost,
    /// It is handed back, because this process ends.
    HandedBack,
}

/// What follows a look or a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flow {
    On,
    /// Others said something before what the workflow was told already: begin again.
    Rewind,
    Gone,
}

/// An activation.
pub(super) struct Drive {
    pub(super) shared: Arc<WorkflowEngine>,
    pub(super) holding: Arc<LeasedWork>,
    pub(super) grant: Grant,
    pub(super) started: Started,
    pub(super) journal: Key,
    /// The version of the next entry, as far as is known.
    next: StreamVersion,
    /// What is to be told to the workflow, in order.
    queue: VecDeque<Placed>,
    /// How many of them this run did itself: before they are told, the workflow is where it was before.
    own_left: usize,
    pub(super) cell: Arc<Cell>,
    future: RunFuture,
    token: tokio_util::sync::CancellationToken,
    hints: Option<Watch>,
    /// Claims without progress must be forgotten with the next write.
    stumbled: bool,
}

/// Drives a run that was granted, as far as it goes.
pub(super) async fn drive(
    shared: Arc<WorkflowEngine>,
    mut grant: Grant,
    holding: LeasedWork,
    span: &Span,
) -> Left {
    let holding = Arc::new(holding.counting_unknown());
    let events = std::mem::take(&mut grant.events);
    let left = match load(&shared, &grant, events).await {
        _ if died_again(&grant.row) => Left::Parked(silence(grant.row.attempts)),
        Err(Unready::Store(error)) => {
            tracing::warn!(target: WORKFLOW, %error, "journal read failed");
            shared.worker.back_off(&error).await;
            holding.release().await;
            Left::Lost
        }
        Err(Unready::Never(reason)) => Left::Parked(reason),
        Ok(Loaded::Over) => over(&shared, &holding, &grant).await,
        Ok(Loaded::Run(started, history, next)) => {
            span.record("workflow", started.workflow.as_str());
            follow(span, started.trace.as_deref());
            match Drive::new(&shared, &holding, &grant, *started, history, next) {
                Ok(mut drive) => drive.go().await,
                Err(unfit) => left_to_others(&shared, &holding, &grant, unfit).await,
            }
        }
    };
    if let Left::Parked(reason) = &left {
        park(&shared, &holding, &grant, reason).await;
    }
    left
}

/// A journal that is over: the row goes with the run, unless the run has gone on under another journal.
async fn over(shared: &WorkflowEngine, holding: &LeasedWork, grant: &Grant) -> Left {
    let run = names::run_of(&grant.row.key).unwrap_or_default();
    let found = match end::find(&shared.worker.store, &run).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(target: WORKFLOW, run, %error, "a run could not be read; it is handed back");
            holding.release().await;
            return Left::Lost;
        }
    };
    let mut batch = Batch::new().ack(holding.lease());
    if let Some((record, version)) = found.filter(|(record, _)| !record.status.is_over()) {
        match new_run::wake(&run, &record) {
            Ok(row) if row.follow == grant.row.follow => {
                return Left::Parked("its journal has ended, and its document says that it runs".to_owned());
            }
            Ok(row) => batch = batch.guard_document(&grant.row.key, Expect::Exact(version)).enqueue(row),
            Err(error) => return Left::Parked(error.to_string()),
        }
    }
    match holding.commit(batch).await {
        Committed::Done(_) => Left::Ended,
        Committed::Gone => Left::Lost,
        Committed::Refused(_) => {
            holding.release().await;
            Left::HandedBack
        }
    }
}

/// A run that this process cannot begin: another may know its workflow, and has it soon, until it is clear that none does.
async fn left_to_others(shared: &WorkflowEngine, holding: &LeasedWork, grant: &Grant, unfit: Unfit) -> Left {
    let reason = match unfit {
        Unfit::Never(reason) => return Left::Parked(reason),
        Unfit::Unknown(reason) => reason,
    };
    let Some(wait) = shared.unknown.wait(&grant.row.key) else { return Left::Parked(reason) };
    match holding.commit(Batch::new().defer(holding.lease(), Due::After(wait))).await {
        Committed::Done(_) => Left::HandedBack,
        _ => Left::Lost,
    }
}

/// Why a run cannot be begun here.
enum Unfit {
    /// Its workflow is not known to this process.
    Unknown(String),
    Never(String),
}

/// What is said of a run whose processes died, so often.
fn silence(attempts: u32) -> String {
    format!("it was begun {attempts} times and never said how it went")
}

/// Whether a run may be what its processes die of: it was begun often without progress or a word. After each wait it is tried once.
fn died_again(row: &WorkRow) -> bool {
    let begins = silence(0);
    let silent = |told: &str| begins.split('0').all(|part| told.contains(part));
    let waited = |told: &str| told == silence(row.attempts.saturating_sub(1));
    row.attempts > SILENT_DEATHS && row.last_error.as_deref().is_none_or(|told| silent(told) && !waited(told))
}

/// Puts a run off that cannot go on. It stays as it was, with the reason and the time of the next try.
async fn park(shared: &WorkflowEngine, holding: &LeasedWork, grant: &Grant, reason: &str) {
    let run = &grant.row.key;
    tracing::warn!(target: WORKFLOW, %run, reason, "a run is put off");
    // What died silently was tried at once so often; the waits begin after that.
    let tries = if reason == silence(grant.row.attempts) { SILENT_DEATHS } else { 0 };
    let doublings = grant.row.attempts.saturating_sub(tries).min(9);
    let wait = Duration::from_secs(1).saturating_mul(1 << doublings).min(Duration::from_mins(5));
    drop(holding.commit(Batch::new().fail(holding.lease(), reason, Due::After(wait))).await);
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
            let known: Vec<&str> = shared.definitions.keys().map(String::as_str).collect();
            let known = known.join(", ");
            Unfit::Unknown(format!("no worker here knows workflow {:?}; it knows: {known}", started.workflow))
        })?;
        let never = |error: InvalidInput| Unfit::Never(error.to_string());
        let journal = names::journal(&started.run, started.generation).map_err(never)?;
        let token = holding.token().child_token();
        let cell = Cell::over(&history, &started.heard);
        let again = grant.row.attempts > 1 || grant.row.takeovers > 0;
        let life = Life {
            run: started.run.as_str().into(),
            identity: names::identity(&started.run, started.generation).into(),
            generation: started.generation,
            queue: started.queue.clone(),
            cell: Arc::clone(&cell),
            hold: Some((Arc::clone(&shared.worker.store), Arc::clone(holding))),
            token: token.clone(),
            again,
            takeovers: grant.row.takeovers,
        };
        let begun = place::in_workflow(&cell, || (definition.begin)(Ctx::new(life), &started.input));
        let future = begun.map_err(|error| {
            Unfit::Never(format!("its input does not fit workflow {:?}: {error}", definition.name))
        })?;
        shared.counters.replayed.add(history.len());
        Ok(Self {
            shared: Arc::clone(shared),
            holding: Arc::clone(holding),
            grant: grant.clone(),
            started,
            journal,
            next,
            own_left: history.iter().filter(|placed| !placed.entry.is_foreign()).count(),
            queue: history.into(),
            cell,
            future,
            token,
            hints: None,
            stumbled: grant.row.attempts > 1,
        })
    }

    /// Begins again with all that is recorded by now.
    async fn rewind(&mut self) -> Result<(), Left> {
        let store = &self.shared.worker.store;
        let loaded = load(&self.shared, &self.grant, Vec::new()).await;
        match loaded {
            Ok(Loaded::Run(started, history, next)) => {
                let (stumbled, hints) = (self.stumbled, self.hints.take());
                let (shared, holding) = (&self.shared, &self.holding);
                // Steps that were under way have run in part.
                self.grant.row.attempts = self.grant.row.attempts.max(2);
                let new = Self::new(shared, holding, &self.grant, *started, history, next);
                *self =
                    new.map_err(|(Unfit::Unknown(reason) | Unfit::Never(reason))| Left::Parked(reason))?;
                (self.stumbled, self.hints) = (stumbled, hints);
                Ok(())
            }
            Ok(Loaded::Over) => Err(Left::Ended),
            Err(Unready::Never(reason)) => Err(Left::Parked(reason)),
            Err(Unready::Store(error)) => {
                tracing::warn!(target: WORKFLOW, %error, store = ?store, "a journal could not be read again");
                self.holding.release().await;
                Err(Left::Lost)
            }
        }
    }

    /// Goes on until the run ends, rests, or is not ours any more.
    pub(super) async fn go(&mut self) -> Left {
        loop {
            let went_on = match std::future::poll_fn(|cx| Poll::Ready(self.poll(cx))).await {
                Poll::Ready(output) => self.output(output).await,
                Poll::Pending => match self.cell.broken() {
                    Some(broken) => Err(Left::Parked(format!("{}: {broken}", broken.code()))),
                    None => self.advance().await,
                },
            };
            if let Err(left) = went_on {
                return left;
            }
        }
    }

    /// Does one thing after which the workflow may go on.
    async fn advance(&mut self) -> Result<(), Left> {
        if self.cell.is_overtaken() {
            return self.rewind().await;
        }
        if self.cell.answer_one() {
            self.cancel_orphans().await;
            return Ok(());
        }
        if let Some(placed) = self.queue.pop_front() {
            self.own_left = self.own_left.saturating_sub(usize::from(!placed.entry.is_foreign()));
            if self.own_left == 0 {
                self.cell.live();
            }
            self.deliver(&placed).await;
            return Ok(());
        }
        self.cell.live();
        if self.cell.take_left_unread() {
            return self.hear_or_rewind().await;
        }
        if let Some(input) = self.cell.again() {
            return self.begin_anew(input).await;
        }
        if let Some(due) = self.rest_due() {
            return self.rest(due).await;
        }
        if self.cell.has_outgoing() {
            let flow = self.flush().await;
            return self.follow(flow).await;
        }
        if self.cell.has_unproven() {
            return self.prove().await;
        }
        if self.shared.worker.stopping.is_cancelled() && !matches!(self.cell.idle(), Idle::Busy(_)) {
            self.holding.release().await;
            return Err(Left::HandedBack);
        }
        if self.cell.permit() {
            return Ok(());
        }
        self.wait().await
    }

    async fn follow(&mut self, flow: Flow) -> Result<(), Left> {
        match flow {
            Flow::On => Ok(()),
            Flow::Rewind => self.rewind().await,
            Flow::Gone => Err(Left::Lost),
        }
    }

    /// Polls the workflow once. A panic makes the run unfit to go on.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Output> {
        poll(&self.cell, &mut self.future, context)
    }

    /// When to go on, if the run can rest now, and it is worth it.
    fn rest_due(&self) -> Option<Due> {
        let due = self.cell.rests_until().filter(|_| self.cell.fits_one_batch())?;
        match due {
            Due::After(wait) if wait <= self.shared.options.linger => None,
            // Whether it has come must be looked up first.
            Due::At(at) if at != NEVER => None,
            _ => Some(due),
        }
    }

    /// Writes what is left and lets the run wait in the store.
    async fn rest(&mut self, due: Due) -> Result<(), Left> {
        let outgoing = self.cell.take_outgoing();
        loop {
            let batch =
                self.batch(&outgoing).and_then(|batch| self.under_way(batch)).map_err(Left::Parked)?;
            match self.holding.commit(batch.defer(self.holding.lease(), due)).await {
                Committed::Done(_) => return Err(Left::Rests),
                Committed::Gone => return Err(Left::Lost),
                Committed::Refused(refusal) if self.is_behind(&refusal) => {
                    if self.hear(None).await.map_err(|_| Left::Lost)? == News::Overtaken {
                        return self.rewind().await;
                    }
                }
                Committed::Refused(refusal) => return Err(Left::Parked(refusal.to_string())),
            }
        }
    }

    /// A run that has begun stands with those that are under way from its first rest on.
    fn under_way(&self, batch: Batch) -> Result<Batch, String> {
        let Started { run, queue, generation, .. } = &self.started;
        let lane = names::lane(queue).map_err(|error| error.to_string())?;
        if self.grant.row.lane == lane {
            return Ok(batch);
        }
        let row = new_run::row(run, queue, self.grant.row.priority, *generation);
        Ok(batch.enqueue(row.map_err(|error| error.to_string())?.due(Due::At(NEVER))))
    }

    /// Waits until something goes on: in memory while a step runs or the wait is short, else in the store.
    async fn wait(&mut self) -> Result<(), Left> {
        let (busy, next) = match self.cell.idle() {
            Idle::Busy(next) => (true, next),
            Idle::Waits(next) => (false, next),
        };
        let mut until = None;
        if let Some(at) = next {
            let now = self.now().await?;
            if self.cell.tick(now) {
                return Ok(());
            }
            let left = at.since(now);
            if !busy && left > self.shared.options.linger {
                return self.rest(Due::At(at)).await;
            }
            until = Some(Instant::now() + left);
        } else if !busy {
            return self.rest(Due::At(NEVER)).await;
        }
        let look = Instant::now() + LOOK;
        let until = until.map_or(look, |until| until.min(look));
        let lost = self.holding.token().clone();
        let cut = self.shared.worker.cut.clone();
        let cell = Arc::clone(&self.cell);
        let ended = tokio::select! {
            biased;
            () = lost.cancelled() => return Err(Left::Lost),
            () = cut.cancelled() => {
                self.holding.hand_back("its worker was stopped while a step ran").await;
                return Err(Left::HandedBack);
            }
            ended = std::future::poll_fn(|cx| match self.poll(cx) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending if cell.take_changed() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }) => Some(ended),
            () = sleep_until(until) => None,
        };
        match ended {
            Some(Some(output)) => self.output(output).await,
            Some(None) => Ok(()),
            None => self.look().await,
        }
    }

    async fn now(&mut self) -> Result<Timestamp, Left> {
        match self.shared.worker.store.now().await {
            Ok(now) => Ok(now),
            Err(error) => {
                tracing::warn!(target: WORKFLOW, %error, "the store's clock could not be read; the run is handed back");
                self.holding.release().await;
                Err(Left::Lost)
            }
        }
    }

    /// Hears what others told the run while a step runs, when there may be something.
    async fn look(&mut self) -> Result<(), Left> {
        let heard = match &mut self.hints {
            Some(hints) if !hints.has_changed() => false,
            Some(hints) => hints.changed().await,
            None => {
                self.hints = Some(self.shared.worker.store.watch());
                true
            }
        };
        if heard { self.hear_or_rewind().await } else { Ok(()) }
    }

    /// Takes up what others wrote into the journal, or begins again where the workflow went another way than it says.
    pub(super) async fn hear_or_rewind(&mut self) -> Result<(), Left> {
        match self.hear(None).await.map_err(|_| Left::Lost)? {
            News::Overtaken => self.rewind().await,
            News::Some | News::Nothing => Ok(()),
        }
    }

    /// Tells the workflow of an entry. A run that is cancelled stops its steps, and its children.
    async fn deliver(&mut self, placed: &Placed) {
        self.cell.deliver(placed);
        if matches!(placed.entry, Entry::Cancel(_)) {
            self.token.cancel();
        }
        self.cancel_orphans().await;
    }

    async fn cancel_orphans(&mut self) {
        for child in self.cell.take_orphans() {
            let reason = self.cell.cancelled().unwrap_or_default();
            let client = Client::new(SharedStore::clone(&self.shared.worker.store));
            loop {
                let Err(error) = client.cancel(&child, &reason).await else { break };
                let Retry::After(wait) = error.retry() else {
                    tracing::debug!(target: WORKFLOW, child, %error, "a child was not cancelled");
                    break;
                };
                tracing::warn!(target: WORKFLOW, child, %error, "a child was not cancelled; it is tried again");
                // Whoever drives the run next cancels its children again.
                if self.holding.lost().is_some() {
                    return;
                }
                idle::pause(wait, self.holding.token()).await;
            }
        }
    }

    /// The workflow has come to its end, unless the journal says that it went another way.
    async fn output(&mut self, output: Output) -> Result<(), Left> {
        if !self.cell.fits_one_batch() {
            match self.flush().await {
                Flow::On => {}
                flow => return self.follow(flow).await,
            }
        }
        // What was heard and not told yet counts, too.
        let left = |placed: &Placed| self.cell.own_record(&placed.entry) == Some(false);
        if self.cell.is_overtaken() || (self.cell.has_left() && self.queue.iter().any(left)) {
            return self.rewind().await;
        }
        if let Some(broken) = ended_early(&self.cell, &self.queue).or_else(|| self.cell.broken()) {
            return Err(Left::Parked(format!("{}: {broken}", broken.code())));
        }
        let ending = match output {
            Ok(output) => Ending::Completed(output),
            Err(failure) if self.cell.cancelled().is_some() => Ending::Cancelled(failure.cut()),
            Err(failure) => Ending::Failed(failure.cut()),
        };
        match end::end(self, ending).await {
            Some(left) => Err(left),
            None => self.rewind().await,
        }
    }

    /// Ends this generation and begins the next. What others say meanwhile is heard before, or said to the next one.
    async fn begin_anew(&mut self, input: Payload) -> Result<(), Left> {
        if self.cell.has_outgoing() {
            let flow = self.flush().await;
            return self.follow(flow).await;
        }
        match self.hear(None).await {
            Ok(News::Overtaken) => self.rewind().await,
            Ok(News::Some) => Ok(()),
            Ok(News::Nothing) => match end::begin_anew(self, input).await {
                Some(left) => Err(left),
                None => Ok(()),
            },
            Err(_) => Err(Left::Lost),
        }
    }

    /// The version of the last entry, as far as is known.
    pub(super) fn last(&self) -> StreamVersion {
        StreamVersion(self.next.0.saturating_sub(1))
    }

    /// What was asked to be written and is not yet.
    pub(super) fn left_to_write(&self) -> Vec<Outgoing> {
        self.cell.take_outgoing()
    }
}

/// Polls a workflow once. A panic makes the run unfit to go on.
pub(super) fn poll(cell: &Arc<Cell>, future: &mut RunFuture, context: &mut Context<'_>) -> Poll<Output> {
    let polled =
        place::in_workflow(cell, || catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))));
    polled.unwrap_or_else(|panic| {
        cell.break_with(Broken::Panicked { reason: text(&*panic).to_owned() });
        Poll::Pending
    })
}

/// What is recorded, and was not asked for by code that has come to its end.
pub(super) fn ended_early(cell: &Cell, left: &VecDeque<Placed>) -> Option<Broken> {
    let mut recorded = left.iter().filter_map(|placed| placed.entry.op());
    let (op, kind) = recorded.find(|(op, _)| !cell.has_asked(&op.name))?;
    Some(cell.differs(format!("{} {:?} is recorded, and the code ends before it", kind.word(), op.name)))
}
