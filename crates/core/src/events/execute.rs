//! Command execution with optimistic concurrency. A command loads, decides and appends at the version it decided on, and
//! retries on a conflict.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::Instrument as _;

use super::Events;
use super::aggregate::{Aggregate, Executed, Loaded};
use super::cache::CachedAggregate;
use super::codec::encode;
use super::error::{EventsError, ExecuteError};
use super::fairness::counted;
use super::load::next;
use super::schema::EventSchema;
use crate::error::Outcome;
use crate::id::{OpId, StreamVersion};
use crate::key::{Arg, Key, reserved};
use crate::process;
use crate::runtime::backoff::CONFLICT;
use crate::store::{Appended, ApplyError, Batch, Expect, NewEvent, Receipt, Refusal, StreamFound};
use crate::telemetry::{EVENTS, EVENTS_EXECUTE};

/// The number of resends of a batch whose outcome is unknown. Its ids ensure that it is applied once.
const ASK_AGAIN: u32 = 3;

impl Events {
    /// Executes a command. The command receives the state, and returns events or an error. The events are appended at the
    /// version of that state. On a conflict the command decides again on the newer state. It may run several times, so it
    /// must have no side effects.
    ///
    /// # Errors
    /// Returns [`ExecuteError::Refused`] with the command's error and the state that it saw, which is the newest. Returns
    /// [`EventsError::Concurrency`] when conflicts used up the attempts or the time.
    ///
    /// # Cancel safety
    /// If the future is dropped during the write, its events may still be appended.
    ///
    /// # Crash safety
    /// All events of a command are appended, or none.
    pub async fn execute<A, E, I, F>(
        &self,
        id: impl Into<Arg>,
        decide: F,
    ) -> Result<Executed<A>, ExecuteError<A, E>>
    where
        A: Aggregate,
        F: FnMut(&A) -> Result<I, E>,
        I: IntoIterator<Item = A::Event>,
    {
        let stream = A::stream(id)?;
        let span = tracing::debug_span!(target: EVENTS, EVENTS_EXECUTE, %stream);
        self.run_command(&stream, None, decide).instrument(span).await
    }

    /// Executes a command that was prepared for this version, `None` for a new stream. If the stream is at another version,
    /// the command is refused without a retry.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    ///
    /// # Cancel safety
    /// As [`execute`](Self::execute).
    pub async fn execute_at<A, E, I, F>(
        &self,
        id: impl Into<Arg>,
        version: Option<StreamVersion>,
        decide: F,
    ) -> Result<Executed<A>, ExecuteError<A, E>>
    where
        A: Aggregate,
        F: FnMut(&A) -> Result<I, E>,
        I: IntoIterator<Item = A::Event>,
    {
        let stream = A::stream(id)?;
        let span = tracing::debug_span!(target: EVENTS, EVENTS_EXECUTE, %stream);
        self.run_command(&stream, Some(version), decide).instrument(span).await
    }

    /// Runs a command on the newest state, and returns the batch that appends its events at that version. The caller
    /// commits the batch with other changes, such as the progress of a reaction. If another writer commits first, that
    /// commit is refused.
    ///
    /// # Errors
    /// Returns [`ExecuteError::Refused`] with the command's error, or [`EventsError`] when the store fails or an event
    /// cannot be decoded.
    ///
    /// # Cancel safety
    /// Cancel-safe: nothing is written.
    pub async fn decide<A, E, I, F>(&self, id: impl Into<Arg>, decide: F) -> Result<Batch, ExecuteError<A, E>>
    where
        A: Aggregate,
        F: FnOnce(&A) -> Result<I, E>,
        I: IntoIterator<Item = A::Event>,
    {
        let id = id.into();
        let stream = A::stream(id.clone())?;
        let loaded = self.load::<A>(id).await?;
        let expect = loaded.expectation();
        let Loaded { state, version, epoch, .. } = loaded;
        let events = match decide(&state) {
            Ok(events) => events.into_iter().collect::<Vec<_>>(),
            Err(error) => return Err(ExecuteError::Refused { error, state, version }),
        };
        // A decision to append nothing must still be valid at the commit.
        if events.is_empty() {
            return Ok(Batch::new().guard_stream(&stream, expect).observed_in(epoch));
        }
        let batch = Batch::new().append(&stream, expect, self.written::<A>(&stream, &events)?);
        Ok(self.inlined(batch.observed_in(epoch))?)
    }

    /// Appends events regardless of the state, for facts that need no decision.
    ///
    /// # Errors
    /// Returns [`EventsError`]. Nothing was appended, unless its outcome is unknown.
    ///
    /// # Cancel safety
    /// If the future is dropped during the write, the events may still be appended.
    pub async fn append<A: Aggregate>(
        &self,
        id: impl Into<Arg>,
        events: impl IntoIterator<Item = A::Event>,
    ) -> Result<Option<Appended>, EventsError> {
        let stream = A::stream(id)?;
        let new = self.written::<A>(&stream, &events.into_iter().collect::<Vec<_>>())?;
        if new.is_empty() {
            return Ok(None);
        }
        // Event ids alone would not recognise events that were archived since the first attempt.
        let batch = self.named(Batch::new().append(&stream, Expect::Any, new))?.op_id(OpId::new());
        let receipt = self.send(&batch).await.map_err(|error| refused(error, 1))?;
        Ok(receipt.appended.into_iter().next())
    }

    /// Encodes events and stamps them with the context.
    pub(super) fn written<A: Aggregate>(
        &self,
        stream: &Key,
        events: &[A::Event],
    ) -> Result<Vec<NewEvent>, EventsError> {
        reserved::check_stream(stream)?;
        let schema: EventSchema = A::schema();
        let written = events.iter().map(|event| {
            let (event_type, payload) = encode(event)?;
            reserved::check_event_type(&event_type)?;
            let shape = schema.version(event_type.as_str());
            self.context.stamp(NewEvent::new(event_type, payload), shape)
        });
        written
            .collect::<Result<_, _>>()
            .map_err(|reason| EventsError::Unwritable { stream: stream.clone(), reason })
    }

    async fn run_command<A, E, I, F>(
        &self,
        stream: &Key,
        pinned: Option<Option<StreamVersion>>,
        mut decide: F,
    ) -> Result<Executed<A>, ExecuteError<A, E>>
    where
        A: Aggregate,
        F: FnMut(&A) -> Result<I, E>,
        I: IntoIterator<Item = A::Event>,
    {
        let until = process::now() + self.options.limit;
        let mut turn = self.turn::<A>(stream, until).await?;
        // Whether this call has read the known state from the store, so that a refusal can be trusted.
        let (mut attempts, mut fresh) = (0, false);
        loop {
            self.await_turn(stream, &mut turn, until).await?;
            let (epoch, started) = (self.store.epoch(), process::now());
            let known =
                turn.loaded.clone().filter(|known| (fresh || pinned.is_none()) && known.epoch == epoch);
            let known = match known {
                Some(known) => known,
                None => {
                    fresh = true;
                    self.refresh(stream, &mut turn.loaded).await?
                }
            };
            check_pinned(stream, pinned, &known)?;
            attempts += 1;
            let decided = decide(&known.state).map(|events| events.into_iter().collect::<Vec<_>>());
            let events = match decided {
                Ok(events) if !events.is_empty() => events,
                said => {
                    // Only the newest state justifies an error or an empty result.
                    let newest =
                        if fresh { known.clone() } else { self.refresh(stream, &mut turn.loaded).await? };
                    fresh = true;
                    if newest.version == known.version {
                        return nothing_done(said, newest, attempts);
                    }
                    continue;
                }
            };
            let append =
                Batch::new().append(stream, known.expectation(), self.written::<A>(stream, &events)?);
            let batch = self.named(append.observed_in(known.epoch))?;
            match self.submit(&batch).await {
                Ok(receipt) => {
                    turn.contention.wrote(process::elapsed(started), process::now());
                    return Ok(self.committed(stream, &mut turn.loaded, known, (events, receipt), attempts));
                }
                Err(failed) => {
                    let took = process::elapsed(started);
                    let over =
                        pinned.is_some() || attempts >= self.options.attempts || process::now() >= until;
                    let doubt =
                        failed.doubt.filter(|_| batch.id().is_none() && conflict(&failed.error).is_some());
                    if let Some(doubt) = doubt {
                        self.never_applied(stream, &known, doubt).await?;
                    }
                    if over || conflict(&failed.error).is_none() {
                        turn.loaded = None;
                        return Err(refused(failed.error, attempts).into());
                    }
                    fresh = false;
                    self.lost(stream, &mut turn, (&failed.error, took), attempts, until).await?;
                }
            }
        }
    }

    /// Prepares the next attempt after a conflict. The wait comes before the read, so that the next decision is not based
    /// on an old state.
    async fn lost<A: Aggregate>(
        &self,
        stream: &Key,
        turn: &mut CachedAggregate<A>,
        (error, took): (&ApplyError, Duration),
        attempts: u32,
        until: Instant,
    ) -> Result<(), EventsError> {
        match error.refusal() {
            Some(Refusal::Stream { found, .. }) => turn.contention.lost(seen(*found), took, process::now()),
            _ => {
                CONFLICT.wait(attempts, Some(until)).await;
                self.refresh(stream, &mut turn.loaded).await?;
            }
        }
        Ok(())
    }

    /// Sends a batch, and sends it again while its outcome is unknown. Its ids ensure that it is applied once.
    pub(crate) async fn send(&self, batch: &Batch) -> Result<Receipt, ApplyError> {
        self.submit(batch).await.map_err(|failed| failed.error)
    }

    /// Sends a batch like [`send`](Self::send), and reports a remaining doubt about an earlier attempt.
    async fn submit(&self, batch: &Batch) -> Result<Receipt, Failed> {
        let (mut asked, mut doubt) = (0, None);
        loop {
            let error = match self.store.apply(batch.clone()).await {
                Ok(receipt) => return Ok(receipt),
                Err(error) => error,
            };
            let error = match (&error, doubt.take()) {
                (ApplyError::Store { outcome: Outcome::Unknown(_), .. }, _) => error,
                // A failure that wrote nothing does not resolve the doubt about an earlier attempt.
                (ApplyError::Store { .. }, Some(doubt)) => doubt,
                (_, doubt) => return Err(Failed { error, doubt }),
            };
            if asked >= ASK_AGAIN {
                return Err(Failed { error, doubt: None });
            }
            asked += 1;
            doubt = Some(error);
        }
    }

    /// Checks that events which were sent, and are not in the log, were never appended. The event after the known state
    /// then belongs to another writer. If that event was archived, it may have been ours, and the doubt remains.
    async fn never_applied<A>(
        &self,
        stream: &Key,
        known: &Loaded<A>,
        doubt: ApplyError,
    ) -> Result<(), EventsError> {
        let place = known.version.map_or(StreamVersion(0), next);
        let first = self.store.stream(stream).await?.and_then(|found| found.first);
        if first.is_some_and(|first| first <= place) { Ok(()) } else { Err(doubt.into()) }
    }

    /// Updates the cached state after a commit.
    fn committed<A: Aggregate>(
        &self,
        stream: &Key,
        place: &mut Option<Loaded<A>>,
        known: Loaded<A>,
        (events, receipt): (Vec<A::Event>, Receipt),
        attempts: u32,
    ) -> Executed<A> {
        let (before, mut loaded) = (known.version, known);
        // The cached copy would force `make_mut` to clone the state.
        *place = None;
        let state = Arc::make_mut(&mut loaded.state);
        events.iter().for_each(|event| state.apply(event));
        if let Some(appended) = receipt.appended.first() {
            loaded.version = Some(appended.last_version);
            loaded.position = Some(appended.last_position);
            loaded.at = Some(receipt.at);
            loaded.latest = loaded.latest.max(Some(receipt.at));
            loaded.ends.head = Some(appended.last_version);
            loaded.ends.first.get_or_insert(appended.first_version);
        }
        self.snapshots.write_behind(&self.store, stream, before, &loaded);
        *place = Some(loaded.clone());
        Executed {
            state: loaded.state,
            version: loaded.version,
            appended: events.len(),
            position: loaded.position,
            attempts,
        }
    }
}

/// Returns the result of a command that appended nothing.
fn nothing_done<A, E, V>(
    said: Result<V, E>,
    newest: Loaded<A>,
    attempts: u32,
) -> Result<Executed<A>, ExecuteError<A, E>> {
    let Loaded { state, version, .. } = newest;
    match said {
        Ok(_) => Ok(Executed { state, version, appended: 0, position: None, attempts }),
        Err(error) => Err(ExecuteError::Refused { error, state, version }),
    }
}

fn check_pinned<A>(
    stream: &Key,
    pinned: Option<Option<StreamVersion>>,
    known: &Loaded<A>,
) -> Result<(), EventsError> {
    let Some(pinned) = pinned.filter(|pinned| *pinned != known.version) else { return Ok(()) };
    Err(EventsError::Concurrency {
        stream: stream.clone(),
        expected: pinned.map_or(Expect::Absent, Expect::Exact),
        actual: known.version.map_or(StreamFound::Absent, StreamFound::At),
        attempts: 1,
    })
}

/// The reason why a batch was not applied, and the doubt about an earlier attempt.
struct Failed {
    error: ApplyError,
    doubt: Option<ApplyError>,
}

/// Converts the found version to the contention rule's representation.
fn seen(found: StreamFound) -> Option<u64> {
    match found {
        StreamFound::Absent => None,
        StreamFound::At(version) => counted(Some(version)),
    }
}

/// Returns the refusal that requires a new decision; `None` when a new decision cannot help.
fn conflict(error: &ApplyError) -> Option<&Refusal> {
    error.refusal().filter(|refusal| matches!(refusal, Refusal::Stream { .. } | Refusal::Epoch { .. }))
}

pub(super) fn refused(error: ApplyError, attempts: u32) -> EventsError {
    match error.refusal() {
        Some(Refusal::Stream { stream, expected, found, .. }) => {
            EventsError::Concurrency { stream: stream.clone(), expected: *expected, actual: *found, attempts }
        }
        Some(Refusal::StreamClosed { stream, head, .. }) => {
            EventsError::Closed { stream: stream.clone(), head: *head }
        }
        _ => error.into(),
    }
}
