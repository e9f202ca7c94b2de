//! Several aggregates, one decision, one commit.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::Events;
use super::aggregate::{Aggregate, Loaded};
use super::error::EventsError;
use super::execute::refused;
use super::tags::{self, Tag, TaggedEvent};
use crate::id::{OpId, StreamVersion};
use crate::key::{Arg, Key};
use crate::runtime::backoff::CONFLICT;
use crate::store::{ApplyError, Batch, Expect, NewEvent, Refusal};

/// Several aggregates, and whatever else the store keeps, changed by one commit. What was loaded must still be so when it is
/// committed, also where nothing was changed.
pub struct Unit {
    events: Events,
    work: Arc<Mutex<Work>>,
}

/// What a unit is about to commit.
#[derive(Default)]
struct Work {
    touched: BTreeMap<Key, Touched>,
    also: Batch,
}

/// A stream that was read or is to be appended to.
#[derive(Default)]
struct Touched {
    /// What must be true of it; `None` for nothing.
    expect: Option<Expect<StreamVersion>>,
    new: Vec<NewEvent>,
    /// The aggregate with what was emitted so far; a [`Loaded`] of its type.
    loaded: Option<Box<dyn Any + Send>>,
}

impl Events {
    /// Lets several aggregates be decided on together. If one of them, or a document that the unit expects something of,
    /// changed meanwhile, all is decided again; a no counts only when nothing did.
    ///
    /// # Errors
    /// What the work says; or [`EventsError`], when others were faster until the attempts or the time were used up, or the
    /// store fails. Nothing was written, unless its outcome says that nobody knows.
    ///
    /// # Cancel safety
    /// Dropped while it writes, the unit may still be committed.
    ///
    /// # Crash safety
    /// All of it is committed, or nothing.
    pub async fn together<R, E, F, Fut>(&self, mut decide: F) -> Result<R, E>
    where
        F: FnMut(Unit) -> Fut,
        Fut: Future<Output = Result<R, E>>,
        E: From<EventsError>,
    {
        let (until, mut attempts) = (Instant::now() + self.options.limit, 0);
        loop {
            attempts += 1;
            // Taken before anything is read: all of it must be of this epoch.
            let epoch = self.store.epoch();
            let work = Arc::new(Mutex::new(Work::default()));
            let decided = decide(Unit { events: self.clone(), work: Arc::clone(&work) }).await;
            let work = std::mem::take(&mut *work.lock());
            let (batch, outcome) = match decided {
                Ok(result) => (self.inlined(work.batch())?, Ok(result)),
                // A no is checked like a yes: what it saw must still be so.
                Err(no) => (work.guards(), Err(no)),
            };
            if batch.effects().is_empty() {
                return outcome;
            }
            match self.send(&batch.observed_in(epoch)).await {
                Ok(_) => return outcome,
                Err(error) => {
                    let over = attempts >= self.options.attempts || Instant::now() >= until;
                    if over || !is_conflict(&error) {
                        return Err(refused(error, attempts).into());
                    }
                }
            }
            CONFLICT.wait(attempts, Some(until)).await;
        }
    }
}

impl Unit {
    /// An aggregate as it is now, with what this unit emitted. It must still be at that version when the unit is committed.
    ///
    /// # Errors
    /// [`EventsError`] when the store fails or an event does not read.
    pub async fn load<A: Aggregate>(&self, id: impl Into<Arg>) -> Result<Arc<A>, EventsError> {
        let id = id.into();
        let stream = A::stream(id.clone())?;
        if let Some(state) = self.work.lock().state::<A>(&stream) {
            return Ok(state);
        }
        let loaded = self.events.load::<A>(id).await?;
        let state = Arc::clone(&loaded.state);
        let mut work = self.work.lock();
        let touched = work.touch(stream);
        touched.expect = Some(loaded.version.map_or(Expect::Absent, Expect::Exact));
        touched.loaded = Some(Box::new(loaded));
        Ok(state)
    }

    /// Emits events of an aggregate. If it was loaded before, they are appended at that version; else at any.
    ///
    /// # Errors
    /// [`EventsError::Unwritable`] when an event cannot be written.
    pub fn emit<A: Aggregate>(
        &self,
        id: impl Into<Arg>,
        events: impl IntoIterator<Item = A::Event>,
    ) -> Result<(), EventsError> {
        self.emit_tagged::<A>(id, &[], events)
    }

    /// Emits events of an aggregate, and finds them again by these tags.
    ///
    /// # Errors
    /// [`EventsError::Unwritable`] when an event cannot be written.
    pub fn emit_tagged<A: Aggregate>(
        &self,
        id: impl Into<Arg>,
        tags: &[Tag],
        events: impl IntoIterator<Item = A::Event>,
    ) -> Result<(), EventsError> {
        let stream = A::stream(id)?;
        let events: Vec<A::Event> = events.into_iter().collect();
        let new = self.events.written::<A>(&stream, &events)?;
        let mut work = self.work.lock();
        for tag in tags {
            let links = new.iter().map(|event| tags::link(&stream, event)).collect::<Result<Vec<_>, _>>()?;
            work.touch(tag.stream()?).new.extend(links);
        }
        let touched = work.touch(stream);
        touched.new.extend(new);
        if let Some(loaded) = touched.loaded.as_mut().and_then(|loaded| loaded.downcast_mut::<Loaded<A>>()) {
            let state = Arc::make_mut(&mut loaded.state);
            events.iter().for_each(|event| state.apply(event));
        }
        Ok(())
    }

    /// The events of a tag, oldest first. No other may come before the unit is committed.
    ///
    /// # Errors
    /// [`EventsError`] when the store fails.
    pub async fn tagged(&self, tag: &Tag) -> Result<Vec<TaggedEvent>, EventsError> {
        let found = tags::read(&*self.events.store, tag).await?;
        let expect = found.last().map_or(Expect::Absent, |last| Expect::Exact(last.number));
        self.work.lock().touch(tag.stream()?).expect = Some(expect);
        Ok(found)
    }

    /// More effects of the same commit: documents, work, appends of other programs' streams.
    pub fn also(&self, batch: Batch) {
        let mut work = self.work.lock();
        work.also = std::mem::take(&mut work.also).and(batch);
    }
}

impl Work {
    fn state<A: Aggregate>(&self, stream: &Key) -> Option<Arc<A>> {
        let loaded: &Loaded<A> = self.touched.get(stream)?.loaded.as_ref()?.downcast_ref()?;
        Some(Arc::clone(&loaded.state))
    }

    fn touch(&mut self, stream: Key) -> &mut Touched {
        self.touched.entry(stream).or_default()
    }

    fn batch(self) -> Batch {
        let mut batch = Batch::new();
        for (stream, touched) in self.touched {
            batch = match (touched.new.is_empty(), touched.expect) {
                (true, None) => batch,
                (true, Some(expect)) => batch.guard_stream(&stream, expect),
                (false, expect) => batch.append(&stream, expect.unwrap_or(Expect::Any), touched.new),
            };
        }
        batch.and(self.also).op_id(OpId::new())
    }

    fn guards(&self) -> Batch {
        let read = self.touched.iter().filter_map(|(stream, touched)| Some((stream, touched.expect?)));
        read.fold(Batch::new(), |batch, (stream, expect)| batch.guard_stream(stream, expect))
    }
}

fn is_conflict(error: &ApplyError) -> bool {
    matches!(error.refusal(), Some(Refusal::Stream { .. } | Refusal::Document { .. } | Refusal::Epoch { .. }))
}

impl std::fmt::Debug for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let work = self.work.lock();
        let streams: Vec<_> =
            work.touched.iter().map(|(stream, touched)| (stream, touched.new.len())).collect();
        f.debug_struct("Unit").field("streams", &streams).field("also", &work.also).finish_non_exhaustive()
    }
}
