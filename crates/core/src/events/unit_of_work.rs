//! Unit of work: one decision and one commit across several aggregates.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::HashMap;
use parking_lot::Mutex;

use super::Events;
use super::aggregate::{Aggregate, Loaded};
use super::error::EventsError;
use super::execute::refused;
use super::snapshot::Snapshots;
use super::tags::{self, Tag, TaggedEvent};
use crate::id::{OpId, StreamVersion};
use crate::key::{Arg, Key};
use crate::process;
use crate::runtime::backoff::CONFLICT;
use crate::store::{ApplyError, Batch, Expect, NewEvent, Refusal};

/// A unit of work over several aggregates and other data of the store, changed by one commit. Loaded state must be
/// unchanged at the commit, even if the unit does not write it. A unit reads its own writes: loads and tag queries include
/// the events that it emitted.
pub struct UnitOfWork {
    events: Events,
    work: Arc<Mutex<Work>>,
}

/// The changes that a unit will commit.
#[derive(Default)]
struct Work {
    touched: BTreeMap<Key, Touched>,
    also: Batch,
}

/// A stream that was read or will be appended to.
#[derive(Default)]
struct Touched {
    /// The expected version, from the first read; `None` for no condition.
    expect: Option<Expect<StreamVersion>>,
    new: Vec<NewEvent>,
    /// The aggregates that were loaded from it, as a [`Folded`] for each type.
    states: HashMap<TypeId, Box<dyn Any + Send>>,
    /// The events of a tag, from the first read.
    tagged: Option<Vec<TaggedEvent>>,
}

/// An aggregate with the events of the unit.
struct Folded<A> {
    loaded: Loaded<A>,
    /// The number of the unit's events that it includes.
    count: usize,
}

impl Events {
    /// Runs a unit of work. If a loaded stream, or a document with an expectation, has changed at the commit, the function
    /// decides again. An error counts only if nothing has changed.
    ///
    /// # Errors
    /// Returns the error of the function, or [`EventsError`] when conflicts used up the attempts or the time, or the store
    /// fails. Nothing was written, unless the outcome is unknown.
    ///
    /// # Cancel safety
    /// If the future is dropped during the write, the unit may still be committed.
    ///
    /// # Crash safety
    /// The whole unit is committed, or nothing.
    pub async fn together<R, E, F, Fut>(&self, mut decide: F) -> Result<R, E>
    where
        F: FnMut(UnitOfWork) -> Fut,
        Fut: Future<Output = Result<R, E>>,
        E: From<EventsError>,
    {
        let (until, mut attempts) = (process::now() + self.options.limit, 0);
        loop {
            attempts += 1;
            // Read before anything else, because all reads must belong to this epoch.
            let epoch = self.store.epoch();
            let work = Arc::new(Mutex::new(Work::default()));
            let decided = decide(UnitOfWork { events: self.clone(), work: Arc::clone(&work) }).await;
            let work = std::mem::take(&mut *work.lock());
            let (batch, outcome) = match decided {
                Ok(result) => (self.inlined(work.batch())?, Ok(result)),
                // An error is checked like a success: the state that it saw must be unchanged.
                Err(no) => (work.guards(), Err(no)),
            };
            if batch.effects().is_empty() {
                return outcome;
            }
            match self.send(&batch.observed_in(epoch)).await {
                Ok(_) => return outcome,
                Err(error) => {
                    let over = attempts >= self.options.attempts || process::now() >= until;
                    if over || !is_conflict(&error) {
                        return Err(refused(error, attempts).into());
                    }
                }
            }
            CONFLICT.wait(attempts, Some(until)).await;
        }
    }
}

impl UnitOfWork {
    /// Loads the current state of an aggregate, with the events that this unit has emitted. The stream must be at the same
    /// version when the unit is committed. A second load returns the same state with the events emitted since.
    ///
    /// # Errors
    /// Returns [`EventsError`] when the store fails or an event cannot be decoded.
    pub async fn load<A: Aggregate>(&self, id: impl Into<Arg>) -> Result<Arc<A>, EventsError> {
        let (stream, snapshots) = (A::stream(id)?, &self.events.snapshots);
        if let Some(state) = self.work.lock().touch(stream.clone()).state::<A>(snapshots, &stream)? {
            return Ok(state);
        }
        let loaded = self.events.load_stream::<A>(&stream).await?;
        let mut work = self.work.lock();
        let touched = work.touch(stream.clone());
        touched.expect.get_or_insert(loaded.expectation());
        let known = Arc::clone(&loaded.state);
        touched.states.insert(TypeId::of::<A>(), Box::new(Folded { loaded, count: 0 }));
        Ok(touched.state::<A>(snapshots, &stream)?.unwrap_or(known))
    }

    /// Emits events of an aggregate. If this unit loads the aggregate, before or after, they are appended at that version,
    /// and otherwise at any.
    ///
    /// # Errors
    /// Returns [`EventsError::Unwritable`] when an event cannot be encoded.
    pub fn emit<A: Aggregate>(
        &self,
        id: impl Into<Arg>,
        events: impl IntoIterator<Item = A::Event>,
    ) -> Result<(), EventsError> {
        self.emit_tagged::<A>(id, &[], events)
    }

    /// Emits events of an aggregate, and makes them available under these tags.
    ///
    /// # Errors
    /// Returns [`EventsError::Unwritable`] when an event cannot be encoded.
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
        work.touch(stream).new.extend(new);
        Ok(())
    }

    /// Returns the events of a tag, oldest first, including those that this unit has emitted. Another event with the tag
    /// before the commit is a conflict. A second call returns the same events with those emitted since.
    ///
    /// # Errors
    /// Returns [`EventsError`] when the store fails.
    pub async fn tagged(&self, tag: &Tag) -> Result<Vec<TaggedEvent>, EventsError> {
        let stream = tag.stream()?;
        let seen = self.work.lock().touch(stream.clone()).tagged.clone();
        let seen = match seen {
            Some(seen) => seen,
            None => tags::read(&*self.events.store, tag).await?,
        };
        let last = seen.last().map(|last| last.number);
        let mut work = self.work.lock();
        let touched = work.touch(stream);
        touched.expect.get_or_insert(last.map_or(Expect::Absent, Expect::Exact));
        let mut found = touched.tagged.get_or_insert(seen).clone();
        for event in &touched.new {
            let number = found.last().map_or(StreamVersion(0), |last| last.number.next());
            found.push(tags::pending(event, number)?);
        }
        Ok(found)
    }

    /// Adds effects to the same commit: documents, work, or appends to other streams.
    pub fn also(&self, batch: Batch) {
        let mut work = self.work.lock();
        work.also = std::mem::take(&mut work.also).and(batch);
    }
}

impl Touched {
    /// Returns the state of a loaded aggregate with all events of the unit; `None` when it was not loaded.
    fn state<A: Aggregate>(
        &mut self,
        snapshots: &Snapshots,
        stream: &Key,
    ) -> Result<Option<Arc<A>>, EventsError> {
        let folded =
            self.states.get_mut(&TypeId::of::<A>()).and_then(|state| state.downcast_mut::<Folded<A>>());
        let Some(Folded { loaded, count }) = folded else { return Ok(None) };
        for event in self.new.iter().skip(*count) {
            loaded.apply_new(snapshots, stream, event)?;
            *count += 1;
        }
        Ok(Some(Arc::clone(&loaded.state)))
    }
}

impl Work {
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

impl std::fmt::Debug for UnitOfWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let work = self.work.lock();
        let streams: Vec<_> =
            work.touched.iter().map(|(stream, touched)| (stream, touched.new.len())).collect();
        f.debug_struct("Unit").field("streams", &streams).field("also", &work.also).finish_non_exhaustive()
    }
}
