//! Execution of one closing, from acquiring the lease to the last removal.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::builder::{ArchiveReport, ArchiveRequest};
use super::callback::ArchivePage;
use super::checkpoint::{self, ArchiveMode, Note, Progress};
use super::error::ArchiveError;
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::events::{Aggregate, AsOf, Events, EventsError, begins_anew};
use crate::id::{OpId, StreamVersion};
use crate::key::Key;
use crate::lease::{self, LeaseGuard};
use crate::payload::Payload;
use crate::process;
use crate::reactions::Operator;
use crate::runtime::backoff::CONFLICT;
use crate::store::{ApplyError, Batch, Event, Expect, Receipt, Refusal, StreamInfo, StreamQuery};
use crate::telemetry;

/// The most attempts to start a closing while other callers append.
const ATTEMPTS: u32 = 20;
/// The longest time spent on these attempts.
const LIMIT: Duration = Duration::from_secs(10);

/// Closes a stream, or resumes a closing that another call has started.
pub(super) async fn close(
    closing: ArchiveRequest,
    way: ArchiveMode,
    plan: &dyn Plan,
) -> Result<ArchiveReport, ArchiveError> {
    let name = checkpoint::name(&closing.stream)?;
    let held = lease::request(closing.events.store(), &name).ttl(closing.ttl).try_acquire().await?;
    let closed = ArchiveReport {
        stream: closing.stream.clone(),
        way,
        below: None,
        archived: 0,
        removed: 0,
        resumed: false,
    };
    let mut run = Run { closing, name, held, closed };
    let done = run.go(plan).await;
    let Run { held, closed, .. } = run;
    if let Err(error) = held.release().await {
        tracing::debug!(target: telemetry::EVENTS, stream = %closed.stream, %error, "lease release failed");
    }
    done.map(|()| closed)
}

/// The first commit of a closing.
pub(super) struct Begin {
    /// The version below which events are removed.
    cut: StreamVersion,
    /// The change to the stream.
    batch: Batch,
}

/// A strategy that decides how a closing starts.
#[async_trait]
pub(super) trait Plan: Send + Sync {
    /// Returns the first commit; `None` when there is nothing to do.
    async fn begin(&self, events: &Events, stream: &StreamInfo) -> Result<Option<Begin>, ArchiveError>;
}

struct Run {
    closing: ArchiveRequest,
    name: Key,
    held: LeaseGuard,
    closed: ArchiveReport,
}

impl Run {
    async fn go(&mut self, plan: &dyn Plan) -> Result<(), ArchiveError> {
        let found = self.closing.events.store().document(&self.name).await?;
        let progress = match found.as_ref().map(Progress::read).transpose()? {
            Some(progress) => {
                self.same_way(&progress.note)?;
                self.closed.resumed = true;
                Some(progress)
            }
            None => self.begin(plan).await?,
        };
        let Some(mut progress) = progress else { return Ok(()) };
        self.closed.below = Some(progress.note.cut);
        self.archive(&mut progress).await?;
        self.remove(&progress).await
    }

    fn same_way(&self, note: &Note) -> Result<(), ArchiveError> {
        let stream = self.closing.stream.clone();
        if note.way != self.closed.way {
            return Err(ArchiveError::UnderWay { stream, was: note.way, asked: self.closed.way });
        }
        // Removed events cannot be archived, and events that the first call wanted to archive must not be discarded.
        if note.removal != self.closing.removal() {
            return Err(ArchiveError::Removal { stream, begun: note.removal });
        }
        Ok(())
    }

    /// Commits the start of the closing at the version that was read. A concurrent append makes it read the stream again.
    async fn begin(&self, plan: &dyn Plan) -> Result<Option<Progress>, ArchiveError> {
        let (events, stream) = (&self.closing.events, &self.closing.stream);
        let (until, mut attempts) = (process::now() + LIMIT, 0);
        loop {
            let found = events.store().stream(stream).await?;
            let nothing = StreamInfo { key: stream.clone(), head: None, first: None, closed_at: None };
            let found = found.unwrap_or(nothing);
            let Some(Begin { cut, batch }) = plan.begin(events, &found).await? else { return Ok(None) };
            self.nothing_pending(cut).await?;
            let archived = found.first.unwrap_or(cut);
            let (way, removal) = (self.closed.way, self.closing.removal());
            let note = Note { way, removal, cut, archived, page: self.closing.page };
            let noted = Batch::new().put(&self.name, Expect::Absent, Payload::of(&note)?).and(batch);
            attempts += 1;
            match self.apply(noted).await {
                Ok(receipt) => return Ok(progress_of(note, &receipt)),
                Err(error) if attempts >= ATTEMPTS || process::now() >= until || !met(&error) => {
                    return Err(error);
                }
                Err(_) => CONFLICT.wait(attempts, Some(until)).await,
            }
        }
    }

    async fn nothing_pending(&self, cut: StreamVersion) -> Result<(), ArchiveError> {
        let ArchiveRequest { events, stream, regardless, .. } = &self.closing;
        let mut pending = Operator::new(Arc::clone(events.store())).pending(stream, cut).await?;
        pending.retain(|pending| !regardless.contains(&pending.reaction));
        if pending.is_empty() {
            return Ok(());
        }
        Err(ArchiveError::Pending { stream: stream.clone(), pending })
    }

    /// Passes the remaining events to the archive, and records the progress after each page.
    async fn archive(&mut self, progress: &mut Progress) -> Result<(), ArchiveError> {
        let Some(archive) = self.closing.archive.clone() else { return Ok(()) };
        while progress.note.archived < progress.note.cut {
            let end = page_end(&progress.note);
            let Some(page) = self.page(&progress.note, end).await? else {
                // The events of this page were removed by hand. Later pages may have events.
                progress.note.archived = end;
                continue;
            };
            let (first, last, count) = (page.first, page.last, page.events.len() as u64);
            // A holder that has lost the lease must not archive beside its successor.
            let kept = tokio::select! {
                biased;
                () = self.held.token().cancelled_owned() => None,
                kept = archive.keep(page) => Some(kept),
            };
            if let Some(Err(error)) = kept {
                let stream = self.closing.stream.clone();
                return Err(ArchiveError::Archive { stream, first, last, error: error.into() });
            }
            let note = Note { archived: end, ..progress.note.clone() };
            let put = Batch::new().put(&self.name, Expect::Exact(progress.version), Payload::of(&note)?);
            let receipt = self.apply(put).await?;
            self.closed.archived += count;
            let Some(noted) = progress_of(note, &receipt) else { return Ok(()) };
            *progress = noted;
        }
        Ok(())
    }

    /// Returns the next archive page: the remaining events below `end`.
    async fn page(&self, note: &Note, end: StreamVersion) -> Result<Option<ArchivePage>, ArchiveError> {
        let (stream, store) = (&self.closing.stream, self.closing.events.store());
        let (mut events, mut from): (Vec<Event>, _) = (Vec::new(), note.archived);
        while from < end {
            let left = usize::try_from(end.0.saturating_sub(from.0)).unwrap_or(note.page);
            let page = store.read_stream(StreamQuery::forward(stream, left).from(from)).await?;
            // A page that starts at or after `end` has no events for this one.
            from = page.events.last().map_or(end, |last| last.version.next());
            events.extend(page.events.into_iter().filter(|event| event.version < end));
        }
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(None) };
        let (first, last) = (first.version, last.version);
        Ok(Some(ArchivePage { stream: stream.clone(), first, last, events }))
    }

    /// Removes the archived events in steps. The last step also deletes the checkpoint.
    async fn remove(&mut self, progress: &Progress) -> Result<(), ArchiveError> {
        let Progress { note, version } = progress;
        let stream = self.closing.stream.clone();
        loop {
            let mut last =
                Batch::new().truncate(&stream, note.cut).delete(&self.name, Expect::Exact(*version));
            last = match note.way {
                ArchiveMode::Tombstone => Events::forget_beside(last, &stream)?,
                ArchiveMode::Restart => {
                    let last = Events::forget_snapshots(last, &stream, note.cut)?;
                    Events::forget_base(last, &stream)?
                }
                ArchiveMode::Window => Events::forget_snapshots(last, &stream, note.cut)?,
            };
            let error = match self.apply(last).await {
                Ok(receipt) => {
                    self.closed.removed += receipt.truncated.iter().sum::<u64>();
                    return Ok(());
                }
                Err(error) => error,
            };
            let Some(Refusal::TruncateTooMuch { step_to, .. }) = refusal(&error) else { return Err(error) };
            let step = self.apply(Batch::new().truncate(&stream, *step_to)).await?;
            self.closed.removed += step.truncated.iter().sum::<u64>();
        }
    }

    /// Applies a batch under the lease, with an operation id so that it is applied once.
    async fn apply(&self, batch: Batch) -> Result<Receipt, ArchiveError> {
        let batch = self.held.guard(batch.op_id(OpId::new()))?;
        Ok(self.closing.events.send(&batch).await?)
    }
}

fn progress_of(note: Note, receipt: &Receipt) -> Option<Progress> {
    receipt.documents.first().map(|written| Progress { note, version: written.version })
}

fn refusal(error: &ArchiveError) -> Option<&Refusal> {
    match error {
        ArchiveError::Events(EventsError::Write(error)) => match &**error {
            ApplyError::Refused(refusal) => Some(refusal),
            ApplyError::Store { .. } => None,
        },
        _ => None,
    }
}

/// Returns whether another caller appended since the stream was read.
fn met(error: &ArchiveError) -> bool {
    matches!(refusal(error), Some(Refusal::Stream { .. }))
}

/// Returns the version after the next page. It depends only on the start of the page and the checkpoint, so that a repeated
/// page is identical.
fn page_end(note: &Note) -> StreamVersion {
    StreamVersion(note.archived.0.saturating_add(note.page as u64).min(note.cut.0))
}

/// Returns the version after the last one.
fn end_of(stream: &StreamInfo) -> StreamVersion {
    stream.head.map_or(StreamVersion(0), StreamVersion::next)
}

fn expect_head(stream: &StreamInfo) -> Expect<StreamVersion> {
    stream.head.map_or(Expect::Absent, Expect::Exact)
}

/// Fails unless the stream has the kind of the aggregate.
fn check<A: Aggregate>(stream: &StreamInfo) -> Result<(), ArchiveError> {
    let kind = stream.key.kind();
    if kind == A::KIND {
        return Ok(());
    }
    let reason = format!("it is no stream of the aggregate {:?}, whose streams have that kind", A::KIND);
    Err(InvalidInput::name("the kind of a stream", &kind, reason).into())
}

/// Closes the stream permanently.
pub(super) struct Tombstone;

#[async_trait]
impl Plan for Tombstone {
    async fn begin(&self, _: &Events, stream: &StreamInfo) -> Result<Option<Begin>, ArchiveError> {
        if stream.closed_at.is_some() && stream.first.is_none() {
            return Ok(None);
        }
        let batch = Batch::new().close(&stream.key, expect_head(stream));
        Ok(Some(Begin { cut: end_of(stream), batch }))
    }
}

/// Restarts the stream from a state.
pub(super) struct Anew<A> {
    /// Derives the state to restart from; `None` keeps the current one.
    #[expect(clippy::type_complexity, reason = "it is used once")]
    opening: Option<Box<dyn Fn(&A) -> A + Send + Sync>>,
}

impl<A: Aggregate> Anew<A> {
    pub(super) fn of_its_own() -> Self {
        Self { opening: None }
    }

    pub(super) fn with(opening: impl Fn(&A) -> A + Send + Sync + 'static) -> Self {
        Self { opening: Some(Box::new(opening)) }
    }
}

#[async_trait]
impl<A: Aggregate> Plan for Anew<A> {
    async fn begin(&self, events: &Events, found: &StreamInfo) -> Result<Option<Begin>, ArchiveError> {
        check::<A>(found)?;
        let (stream, Some(first)) = (&found.key, found.first) else { return Ok(None) };
        if found.closed_at.is_some() {
            return Err(EventsError::Closed { stream: stream.clone(), head: found.head }.into());
        }
        if Some(first) == found.head && self.opening.is_none() {
            let only = events.store().read_stream(StreamQuery::backward(stream, 1)).await?.events;
            if only.first().is_some_and(begins_anew) {
                return Ok(None);
            }
        }
        let loaded = events.load_stream::<A>(stream).await?;
        let opening = match &self.opening {
            Some(opening) => events.begin_anew(stream, &opening(&loaded.state))?,
            None => events.begin_anew(stream, &*loaded.state)?,
        };
        let Some(head) = loaded.version else { return Ok(None) };
        let batch = Batch::new().append(stream, Expect::Exact(head), [opening]);
        Ok(Some(Begin { cut: head.next(), batch }))
    }
}

/// The events that are kept.
#[derive(Clone, Copy)]
pub(super) enum Keep {
    /// This number of the newest events.
    Last(u64),
    /// The events recorded at this instant or later.
    Since(Timestamp),
}

/// Removes the oldest events.
pub(super) struct Window<A> {
    keep: Keep,
    of: PhantomData<fn() -> A>,
}

impl<A: Aggregate> Window<A> {
    pub(super) fn of(keep: Keep) -> Self {
        Self { keep, of: PhantomData }
    }
}

#[async_trait]
impl<A: Aggregate> Plan for Window<A> {
    async fn begin(&self, events: &Events, found: &StreamInfo) -> Result<Option<Begin>, ArchiveError> {
        check::<A>(found)?;
        let (Some(first), Some(head)) = (found.first, found.head) else { return Ok(None) };
        let cut = match self.keep {
            Keep::Last(count) => StreamVersion(head.next().0.saturating_sub(count)),
            Keep::Since(instant) => first_since(events, &found.key, instant).await?.unwrap_or(head).min(head),
        };
        let Some(last) = cut.0.checked_sub(1).filter(|_| cut > first) else { return Ok(None) };
        let moment = AsOf::Version(StreamVersion(last));
        let loaded = events.stream_as_of::<A>(&found.key, moment).await?;
        let batch = events.keep_base(Batch::new(), &found.key, &loaded)?;
        Ok(Some(Begin { cut, batch }))
    }
}

/// Returns the version of the first event recorded at an instant or later.
async fn first_since(
    events: &Events,
    stream: &Key,
    instant: Timestamp,
) -> Result<Option<StreamVersion>, ArchiveError> {
    let mut from = StreamVersion(0);
    loop {
        let page = events.store().read_stream(StreamQuery::forward(stream, 1_000).from(from)).await?;
        if let Some(event) = page.events.iter().find(|event| event.at >= instant) {
            return Ok(Some(event.version));
        }
        match page.events.last() {
            Some(last) if !page.end => from = last.version.next(),
            _ => return Ok(None),
        }
    }
}
