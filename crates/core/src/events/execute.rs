//! Commands: load, decide, append at the version that was decided on; again, if somebody was faster.

use std::sync::Arc;
use std::time::Instant;

use tracing::Instrument as _;

use super::Events;
use super::aggregate::{Aggregate, Executed, Loaded};
use super::codec::encode;
use super::error::{EventsError, ExecuteError};
use super::load::{base_error, next};
use super::schema::EventSchema;
use crate::error::Outcome;
use crate::id::StreamVersion;
use crate::key::{Arg, Key, reserved};
use crate::runtime::backoff::CONFLICT;
use crate::store::{Appended, ApplyError, Batch, Expect, NewEvent, Receipt, Refusal, StreamFound};
use crate::telemetry::{EVENTS, EVENTS_EXECUTE};

/// How often a batch is sent again whose fate is unknown: its ids make sure that it is applied once.
const ASK_AGAIN: u32 = 3;

impl Events {
    /// Carries out a command: it sees the state, and gives events or says why not. What it gives is appended at the version
    /// that it saw; if others were faster, it decides again on the newer state. It changes nothing else: it may run often.
    ///
    /// # Errors
    /// [`ExecuteError::Refused`] with the command's error and the state that it saw, which is the newest.
    /// [`EventsError::Concurrency`] when others were faster until the attempts or the time were used up.
    ///
    /// # Cancel safety
    /// Dropped while it writes, its events may still be appended.
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
        self.carry_out(&stream, None, decide).instrument(span).await
    }

    /// Carries out a command that was thought out on this version, `None` for a new stream: if the stream is at another, it
    /// is refused and not tried again.
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
        self.carry_out(&stream, Some(version), decide).instrument(span).await
    }

    /// Lets a command decide on the newest state, and gives the batch that appends what it decided at the version that it saw,
    /// instead of sending it: for a commit with something else, such as the progress of a reaction. If somebody else is
    /// faster, that commit is refused.
    ///
    /// # Errors
    /// [`ExecuteError::Refused`] with the command's error; [`EventsError`] when the store fails or an event does not read.
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
        let Loaded { state, version, epoch, .. } = self.load::<A>(id).await?;
        let events = match decide(&state) {
            Ok(events) => events.into_iter().collect::<Vec<_>>(),
            Err(error) => return Err(ExecuteError::Refused { error, state, version }),
        };
        let expect = version.map_or(Expect::Absent, Expect::Exact);
        // A decision to do nothing is one, too: it must still be right at the commit.
        if events.is_empty() {
            return Ok(Batch::new().guard_stream(&stream, expect).observed_in(epoch));
        }
        let batch = Batch::new().append(&stream, expect, self.written::<A>(&stream, &events)?);
        Ok(self.inlined(batch.observed_in(epoch))?)
    }

    /// Appends what happened, whatever the state: for facts that nobody decides on.
    ///
    /// # Errors
    /// [`EventsError`]; nothing was appended, unless its outcome says that nobody knows.
    ///
    /// # Cancel safety
    /// Dropped while it writes, the events may still be appended.
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
        let batch = self.named(Batch::new().append(&stream, Expect::Any, new))?;
        let receipt = self.send(&batch).await.map_err(|error| refused(error, 1))?;
        Ok(receipt.appended.into_iter().next())
    }

    /// Events as they are written, with the context beside them.
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

    async fn carry_out<A, E, I, F>(
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
        let place = self.cache.place::<A>(stream);
        let mut place = place.lock().await;
        let until = Instant::now() + self.options.limit;
        // Whether what is known was read from the store by this call, so that a no can be trusted.
        let (mut attempts, mut fresh) = (0, false);
        loop {
            let epoch = self.store.epoch();
            let known = place.clone().filter(|known| (fresh || pinned.is_none()) && known.epoch == epoch);
            let known = match known {
                Some(known) => known,
                None => {
                    fresh = true;
                    self.refresh(stream, &mut place).await?
                }
            };
            check_pinned(stream, pinned, &known)?;
            attempts += 1;
            let decided = decide(&known.state).map(|events| events.into_iter().collect::<Vec<_>>());
            let events = match decided {
                Ok(events) if !events.is_empty() => events,
                said => {
                    // A no, or nothing to do: only the newest state may say so.
                    let newest = if fresh { known.clone() } else { self.refresh(stream, &mut place).await? };
                    fresh = true;
                    if newest.version == known.version {
                        self.check_new(stream, &newest).await?;
                        return nothing_done(said, newest, attempts);
                    }
                    continue;
                }
            };
            let expect = known.version.map_or(Expect::Absent, Expect::Exact);
            let append = Batch::new().append(stream, expect, self.written::<A>(stream, &events)?);
            let batch = self.named(append.observed_in(known.epoch))?;
            match self.send(&batch).await {
                Ok(receipt) => {
                    return Ok(self.committed(stream, &mut place, known, (events, receipt), attempts));
                }
                Err(error) => {
                    let over =
                        pinned.is_some() || attempts >= self.options.attempts || Instant::now() >= until;
                    let lost = conflict(&error).filter(|_| !over);
                    let Some(lost) = lost else {
                        *place = None;
                        return Err(refused(error, attempts).into());
                    };
                    // The other way round it would decide on what is old by then, and lose to the same one again.
                    CONFLICT.wait(attempts, Some(until)).await;
                    self.refresh(stream, &mut place).await?;
                    if let Lost::Version(found) = lost {
                        self.not_emptied(stream, &place, found).await?;
                    }
                    fresh = true;
                }
            }
        }
    }

    /// Sends a batch; when its fate is unknown, sends it again: its ids make sure that it is applied once.
    pub(crate) async fn send(&self, batch: &Batch) -> Result<Receipt, ApplyError> {
        let (mut asked, mut doubt) = (0, None);
        loop {
            let error = match self.store.apply(batch.clone()).await {
                Ok(receipt) => return Ok(receipt),
                Err(error) => error,
            };
            let error = match (&error, doubt.take()) {
                (ApplyError::Store { outcome: Outcome::Unknown(_), .. }, _) => error,
                // A failure that wrote nothing says nothing about the time before.
                (ApplyError::Store { .. }, Some(doubt)) => doubt,
                _ => return Err(error),
            };
            if asked >= ASK_AGAIN {
                return Err(error);
            }
            asked += 1;
            doubt = Some(error);
        }
    }

    /// A stream whose events were all removed still has a version, and no state to decide on.
    async fn not_emptied<A>(
        &self,
        stream: &Key,
        place: &Option<Loaded<A>>,
        found: StreamFound,
    ) -> Result<(), EventsError> {
        let known = place.as_ref().and_then(|known| known.version);
        let StreamFound::At(version) = found else { return Ok(()) };
        if known >= Some(version) {
            return Ok(());
        }
        match self.store.stream(stream).await?.filter(|info| info.closed_at.is_some()) {
            Some(info) => Err(EventsError::Closed { stream: stream.clone(), head: info.head }),
            None => Err(base_error(stream, next(version), "is missing")),
        }
    }

    /// What is known after a commit.
    fn committed<A: Aggregate>(
        &self,
        stream: &Key,
        place: &mut Option<Loaded<A>>,
        known: Loaded<A>,
        (events, receipt): (Vec<A::Event>, Receipt),
        attempts: u32,
    ) -> Executed<A> {
        let (before, mut loaded) = (known.version, known);
        // The copy that is kept would make every change a copy.
        *place = None;
        let state = Arc::make_mut(&mut loaded.state);
        events.iter().for_each(|event| state.apply(event));
        if let Some(appended) = receipt.appended.first() {
            loaded.version = Some(appended.last_version);
            loaded.position = Some(appended.last_position);
            loaded.at = Some(receipt.at);
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

/// A command that did nothing.
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

/// Why a decision must be made again.
#[derive(Clone, Copy)]
pub(super) enum Lost {
    /// The stream was not as expected.
    Version(StreamFound),
    /// The history of the store was cut.
    Epoch,
}

/// Why a refused batch must be decided again; `None` when that cannot help.
pub(super) fn conflict(error: &ApplyError) -> Option<Lost> {
    match error.refusal()? {
        Refusal::Stream { found, .. } => Some(Lost::Version(*found)),
        Refusal::Epoch { .. } => Some(Lost::Epoch),
        _ => None,
    }
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
