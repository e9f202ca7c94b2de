//! Workflow context: the operations that a workflow requests from its run.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::activation::{OpEvent, OpHandle, Request, Resolution};
use super::definition::{Signal, Workflow};
use super::journal_entry::{Awaited, ChildStarted, GaveUp, JournalEntry, Kind, Parent, TimerSet, TimerSpec};
use super::life::Life;
use super::nondeterminism::Nondeterminism;
use super::results::{RESULT_BYTES, decode_signal, fitting, recordable, value};
use super::start::{INPUT_DEPTH, NewRun};
use super::step::{self, Step};
use super::step_tx::TxStep;
use super::{child, keys, random};
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::failure::Failure;
use crate::failure::step_error::StepError;
use crate::model::limits::{depth, within};
use crate::model::retry::RetryPolicy;
use crate::payload::Payload;
use crate::store::{Batch, Delta};

/// The context of a run: steps, timers, signals and children. Every operation has a name in the run, by which a replay finds
/// it.
///
/// Waiting is not an error, so code that handles errors cannot catch it by mistake. Operations may be awaited together, with
/// `tokio::join!`, `tokio::select!` or any combinator of futures. A replay resolves them in the same order.
///
/// Each setting returns a new context: `cx.retry(policy).limit(minute).step("charge", …)`.
#[derive(Clone)]
pub struct Ctx {
    pub(super) life: Arc<Life>,
    pub(super) prefix: Arc<str>,
    pub(super) policy: RetryPolicy,
    pub(super) limit: Option<Duration>,
    pub(super) sheltered: bool,
    pub(super) input: Option<String>,
}

impl Ctx {
    pub(super) fn new(life: Life) -> Self {
        Self {
            life: Arc::new(life),
            prefix: Arc::from(""),
            policy: RetryPolicy::default(),
            limit: None,
            sheltered: false,
            input: None,
        }
    }

    /// Returns the id of the run.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.life.run
    }

    /// Returns a context whose names are below a name and an index, for loops: `cx.scope("item", 3).step("charge", …)` is the step
    /// `item[3]/charge`.
    #[must_use]
    pub fn scope(&self, name: &str, index: impl fmt::Display) -> Self {
        Self { prefix: Arc::from(format!("{}{name}[{index}]/", self.prefix)), ..self.clone() }
    }

    /// Returns a context with another retry policy for steps. The default is five attempts within a few seconds.
    #[must_use]
    pub fn retry(&self, policy: RetryPolicy) -> Self {
        Self { policy, ..self.clone() }
    }

    /// Returns a context with a time limit for each attempt of a step. By default there is none.
    #[must_use]
    pub fn limit(&self, limit: Duration) -> Self {
        Self { limit: Some(limit), ..self.clone() }
    }

    /// Returns a context for one step that depends on a value. A replay with another value is detected and reported.
    #[must_use]
    pub fn with_input<T: Serialize + ?Sized>(&self, input: &T) -> Self {
        let input = match Payload::of(input) {
            Ok(payload) => Some(random::short(payload.as_str())),
            Err(error) => self.invalid(&error),
        };
        Self { input, ..self.clone() }
    }

    /// Returns a context for clean-up. Its operations continue when the run is cancelled.
    #[must_use]
    pub fn shielded(&self) -> Self {
        Self { sheltered: true, ..self.clone() }
    }

    /// Returns whether the run was cancelled, as of the point that the workflow has reached.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.life.activation.lock().cancelled().is_some()
    }

    /// Executes a step once in this run, and records its result. The code may run more than once, when it fails or its process
    /// dies. It never runs again once its end is committed, and the next step does not begin before that.
    ///
    /// # Errors
    /// [`StepError`] when the attempts are used up, or the run was cancelled before the step began.
    ///
    /// # Crash safety
    /// Only a step that was in flight runs again.
    pub fn step<T, F>(&self, name: &str, f: F) -> impl Future<Output = Result<T, StepError>> + use<T, F>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(Step) -> Result<T, Failure> + Clone,
    {
        self.attempts(name, f, |value| (Batch::new(), value))
    }

    /// Like [`step`](Self::step), with effects in the store. The effects and the end of the step are one commit. A rejected batch
    /// counts as a failed attempt.
    ///
    /// # Errors
    /// [`StepError`] when the attempts are used up, or the run was cancelled before the step began.
    ///
    /// # Crash safety
    /// The effects are applied exactly once, wherever the process dies.
    pub fn step_in<T, F>(&self, name: &str, f: F) -> impl Future<Output = Result<T, StepError>> + use<T, F>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(Step) -> Result<(Batch, T), Failure> + Clone,
    {
        self.attempts(name, f, |both| both)
    }

    /// Like [`step`](Self::step), with effects in your own tables. The step applies the batch of [`TxStep::end`] in its own
    /// transaction and commits it. The effects and the end of the step are thus one commit.
    ///
    /// ```no_run
    /// # use tidelock_core::workflow::{Ctx, Failure, StepError};
    /// # struct Tx; impl Tx { async fn execute(&mut self, _: &str) -> Result<(), Failure> { Ok(()) } async fn commit(self) -> Result<(), Failure> { Ok(()) } }
    /// # struct Db; impl Db { async fn begin(&self) -> Result<Tx, Failure> { Ok(Tx) } async fn apply_in(&self, _: &mut Tx, _: &tidelock_core::store::Batch) -> Result<(), Failure> { Ok(()) } }
    /// # async fn example(cx: &Ctx, db: &Db) -> Result<u32, StepError> {
    /// cx.step_tx("book", async |step| {
    ///     let mut tx = db.begin().await?;
    ///     tx.execute("INSERT INTO bookings …").await?;
    ///     let number = 7;
    ///     db.apply_in(&mut tx, &step.end(&number)?).await?;
    ///     tx.commit().await?;
    ///     Ok(number)
    /// })
    /// .await
    /// # }
    /// ```
    ///
    /// The journal decides the result. A step whose transaction committed is done, whatever the code returned. A step that
    /// returned a value without that commit has failed.
    ///
    /// # Errors
    /// [`StepError`] when the attempts are used up, or the run was cancelled before the step began.
    ///
    /// # Crash safety
    /// The effects are applied exactly once, wherever the process dies. The batch rejects a second commit, and a commit by a
    /// process that no longer holds the run.
    pub fn step_tx<T, F>(&self, name: &str, f: F) -> impl Future<Output = Result<T, StepError>> + use<T, F>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(TxStep) -> Result<T, Failure> + Clone,
    {
        let op = self.ask_for(Kind::Step, self.named(name), None, true);
        let name: Arc<str> = self.named(name).into();
        let cx = self.clone();
        async move {
            loop {
                match op.event().await {
                    OpEvent::Resolved(result) => return value(&op, result).await,
                    OpEvent::Run(attempt) => {
                        let began = cx.life.now();
                        let step = TxStep::new(cx.attempt(&name, attempt), op.id(), &cx.life, began);
                        let span = step.span();
                        let ended = step::call((f.clone())(step), cx.limit, span).await;
                        op.end_recorded_attempt(ended.err(), &cx.policy, cx.life.ran_since(began));
                    }
                }
            }
        }
    }

    /// Runs the code of a step until it succeeds or its policy permits no more attempts; `split` separates its effects from its
    /// value.
    fn attempts<T, B, F>(
        &self,
        name: &str,
        f: F,
        split: fn(B) -> (Batch, T),
    ) -> impl Future<Output = Result<T, StepError>> + use<T, B, F>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(Step) -> Result<B, Failure> + Clone,
    {
        let op = self.ask(Kind::Step, self.named(name), None);
        let name: Arc<str> = self.named(name).into();
        let cx = self.clone();
        async move {
            loop {
                match op.event().await {
                    OpEvent::Resolved(result) => return value(&op, result).await,
                    OpEvent::Run(attempt) => {
                        let (step, began) = (cx.attempt(&name, attempt), cx.life.now());
                        let span = step.span();
                        let ended = step::call((f.clone())(step), cx.limit, span).await;
                        let ran = cx.life.ran_since(began);
                        let (ended, effects) = match ended.map(split) {
                            Ok((effects, value)) => (recordable(&value), effects),
                            Err(failure) => (Err(failure), Batch::new()),
                        };
                        op.end_attempt(ended, ran, &cx.policy, effects);
                    }
                }
            }
        }
    }

    /// Waits for a duration, however long. A run that waits holds nothing but its place in the store.
    ///
    /// # Errors
    /// [`StepError::Cancelled`] when the run is cancelled.
    pub fn sleep(&self, wait: Duration) -> impl Future<Output = Result<(), StepError>> + use<> {
        self.timer(TimerSpec::After(wait))
    }

    /// Waits until an instant of the store's clock.
    ///
    /// # Errors
    /// [`StepError::Cancelled`] when the run is cancelled.
    pub fn sleep_until(&self, at: Timestamp) -> impl Future<Output = Result<(), StepError>> + use<> {
        self.timer(TimerSpec::At(at))
    }

    fn timer(&self, when: TimerSpec) -> impl Future<Output = Result<(), StepError>> + use<> {
        let name = self.numbered("sleep");
        // Timers are named by number. The time is part of the request, so that a timer added before others cannot take their place.
        let op = Self { input: Some(when.to_string()), ..self.clone() }.ask(Kind::Timer, name, None);
        op.begin(|id| (JournalEntry::TimerSet(TimerSet { op: id, when }), Batch::new()));
        async move {
            match op.resolved().await {
                Resolution::Error(error) => Err(error),
                Resolution::Value(_) | Resolution::Nothing => Ok(()),
            }
        }
    }

    /// Waits for a signal. A signal that arrived before the wait is delivered at once. Each signal is delivered once.
    ///
    /// A signal goes to the first of the waits for it that the workflow awaits. A future that is kept and not awaited, such as
    /// one that lost a `select!`, receives nothing until it is awaited again.
    ///
    /// # Errors
    /// [`StepError`] when the run is cancelled, or the value of the signal does not have the expected type.
    pub fn signal<T: DeserializeOwned>(
        &self,
        signal: Signal<T>,
    ) -> impl Future<Output = Result<T, StepError>> + use<T> {
        let op = self.wait_for(signal.name());
        async move { decode_signal(signal.name(), op.resolved().await) }
    }

    /// Waits for a signal within a time limit. Returns `None` when the limit passes first.
    ///
    /// # Errors
    /// [`StepError`] when the run is cancelled, or the value of the signal does not have the expected type.
    pub fn signal_timeout<T: DeserializeOwned>(
        &self,
        signal: Signal<T>,
        limit: Duration,
    ) -> impl Future<Output = Result<Option<T>, StepError>> + use<T> {
        let op = self.wait_for(signal.name());
        let over = self.sleep(limit);
        async move {
            tokio::select! {
                biased;
                result = op.resolved() => decode_signal(signal.name(), result).map(Some),
                over = over => over.map(|()| None),
            }
        }
    }

    fn wait_for(&self, signal: &str) -> OpHandle {
        let op = self.ask(Kind::Wait, self.numbered(&format!("signal {signal}")), Some(signal.to_owned()));
        // A run that continued after a signal is further than one that waits for it. The entry lets `version()` see the difference.
        op.note(|id| JournalEntry::Awaited(Awaited { op: id }));
        op
    }

    /// Starts a child run and waits for its end. Its id is that of this run with the name added, so that it is started once.
    ///
    /// # Errors
    /// [`StepError`] when the child fails or is cancelled, or when this run is cancelled. A cancelled run also cancels its child.
    pub fn child<I, O>(
        &self,
        name: &str,
        workflow: Workflow<I, O>,
        input: &I,
    ) -> impl Future<Output = Result<O, StepError>> + use<I, O>
    where
        I: Serialize,
        O: DeserializeOwned,
    {
        let name = self.named(name);
        let op = self.ask(Kind::Child, name.clone(), None);
        let run = keys::child(&self.life.run, self.life.generation, &name);
        match self.new_child(&run, &name, workflow, input) {
            Ok(start) => {
                let run = run.clone();
                op.begin(|id| (JournalEntry::ChildStarted(ChildStarted { op: id, run }), start));
            }
            Err(error) => {
                let error = child::refused(&name, &run, &error.to_string());
                op.begin(|op| (JournalEntry::ChildRefused(GaveUp { op, error, ran: None }), Batch::new()));
            }
        }
        async move {
            match op.resolved().await {
                Resolution::Error(error) => Err(error),
                Resolution::Nothing => fitting(&op, &Payload::null()).await,
                Resolution::Value(value) => value
                    .parse()
                    .map_err(|error| StepError::Value { what: name.clone(), reason: error.to_string() }),
            }
        }
    }

    fn new_child<I: Serialize, O>(
        &self,
        run: &str,
        name: &str,
        workflow: Workflow<I, O>,
        input: &I,
    ) -> Result<Batch, InvalidInput> {
        let mut new = NewRun::of(&workflow, Payload::of(input)?);
        new.id = run.to_owned();
        new.queue.clone_from(&self.life.queue);
        new.started_at = self.life.now();
        let (parent, generation) = (self.life.run.to_string(), self.life.generation);
        new.parent = Some(Parent { run: parent, generation, name: name.to_owned() });
        new.batch()
    }

    /// Returns the time of the store's clock when the run first reached this point.
    ///
    /// # Errors
    /// [`StepError`] when the store cannot be read, or the run is cancelled.
    pub async fn now(&self) -> Result<Timestamp, StepError> {
        let store = self.life.hold.as_ref().map(|(store, _)| Arc::clone(store));
        let name = self.unprefixed(&self.numbered("now"));
        self.step(&name, async |_| match &store {
            Some(store) => Ok(store.now().await?),
            None => Ok(Timestamp::EPOCH),
        })
        .await
    }

    /// Returns a random number that is the same in every replay of the run. Not for secrets.
    #[must_use]
    pub fn random(&self) -> u64 {
        let count = self.life.activation.lock().count("random");
        random::number(&self.life.identity, count)
    }

    /// Returns which path to take where the code was changed on purpose. Runs that reach this point from now on get `newest`.
    /// Runs that passed it before the change get `least`. The result is always the same for one run.
    #[must_use]
    pub fn version(&self, name: &str, least: u32, newest: u32) -> u32 {
        self.life.activation.lock().version(&self.named(name), least, newest)
    }

    /// Publishes a value while the run is in progress. [`WorkflowClient::value`](super::WorkflowClient::value) reads it.
    pub fn set_query_value<T: Serialize + ?Sized>(&self, name: &str, value: &T) {
        let made = serde_json::to_value(value).map_err(|e| InvalidInput::Payload { reason: e.to_string() });
        let batch = made.and_then(|value| {
            let empty = Payload::trusted("{}");
            Ok(Batch::new().merge_or_create(
                &keys::values(&self.life.run)?,
                empty,
                [Delta::set(format!("/{}", escaped(name)), value)],
            ))
        });
        self.write(batch);
    }

    /// Sets an attribute by which the run is found: see [`WorkflowClient::list`](super::WorkflowClient::list).
    pub fn attribute(&self, name: &str, value: &str) {
        let batch = keys::run(&self.life.run).map(|run| {
            Batch::new().merge(&run, [Delta::set(format!("/attributes/{}", escaped(name)), value)])
        });
        self.write(batch);
    }

    fn write(&self, batch: Result<Batch, InvalidInput>) {
        match batch {
            Ok(batch) => self.life.activation.lock().write(batch),
            Err(error) => {
                let _: Option<()> = self.invalid(&error);
            }
        }
    }

    /// Ends this run's history and continues under the same id with a new history and another input, for loops without an end.
    /// Unread signals are kept, however many there are. Returns only on an error.
    ///
    /// # Errors
    /// [`Failure`] when the input cannot be recorded, or the run is cancelled. The return type is that of the workflow, so that
    /// this call can be its last expression.
    pub async fn continue_as_new<I: Serialize + Sync, O>(&self, input: &I) -> Result<O, Failure> {
        let never =
            |error: InvalidInput| Failure::permanent(format!("its next input cannot be recorded: {error}"));
        let input = Payload::of(input).map_err(never)?;
        within("the length in bytes", "the input", input.len(), RESULT_BYTES).map_err(never)?;
        within("the nesting depth", "the input", depth(input.as_str()), INPUT_DEPTH).map_err(never)?;
        self.life.activation.lock().continue_as_new(input)?;
        std::future::pending().await
    }

    fn ask(&self, kind: Kind, name: String, signal: Option<String>) -> OpHandle {
        self.ask_for(kind, name, signal, false)
    }

    fn ask_for(&self, kind: Kind, name: String, signal: Option<String>, records_itself: bool) -> OpHandle {
        if let Err(error) = keys::check("the name of a step", &name, keys::MAX_NAME_BYTES) {
            let _: Option<()> = self.invalid(&error);
        }
        let (input, sheltered) = (self.input.clone(), self.sheltered);
        OpHandle::request(
            &self.life.activation,
            Request { kind, name, input, shielded: sheltered, signal, records_itself },
        )
    }

    fn named(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn unprefixed(&self, name: &str) -> String {
        name.strip_prefix(&*self.prefix).unwrap_or(name).to_owned()
    }

    /// Returns a numbered name for an operation that the code does not name.
    fn numbered(&self, what: &str) -> String {
        let name = self.named(what);
        let count = self.life.activation.lock().count(&name);
        format!("{name} {count}")
    }

    fn attempt(&self, name: &Arc<str>, attempt: u32) -> Step {
        let Life { run, identity, hold, token, again, takeovers, .. } = &*self.life;
        let (run, identity, name) = (Arc::clone(run), Arc::clone(identity), Arc::clone(name));
        let (token, hold) = (token.clone(), hold.clone());
        let (again, takeovers) = (*again && self.life.activation.lock().is_first_round(), *takeovers);
        Step { run, identity, name, attempt, again, takeovers, token, hold }
    }

    fn invalid<T>(&self, error: &InvalidInput) -> Option<T> {
        self.life.activation.lock().fail(Nondeterminism::Invalid { what: error.to_string() });
        None
    }
}

impl fmt::Debug for Ctx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ctx")
            .field("run", &self.life.run)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Escapes a name for use as one segment of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
