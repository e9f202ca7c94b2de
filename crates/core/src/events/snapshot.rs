//! Snapshots: the state as of an event, so that a load need not fold what came before it. They are documents, written behind,
//! and never needed: one that is missing or of another fold costs time, and nothing else.

use std::any::{Any, TypeId};
use std::sync::Arc;

use foldhash::HashMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Events;
use super::aggregate::{Aggregate, Loaded};
use super::error::EventsError;
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::{Epoch, EventType, Position, StreamVersion};
use crate::key::Key;
use crate::key::reserved::{BASE, SNAPSHOT};
use crate::model::hash;
use crate::payload::Payload;
use crate::store::{ApplyError, Batch, Document, Event, Expect, NewEvent, Refusal, SharedStore, Store};
use crate::telemetry;

/// The type of the event with which a stream begins anew: it holds the state, and what came before is gone.
pub(super) const BEGUN_ANEW: &str = "tidelock.snapshot";

impl Events {
    /// The same, with snapshots of this aggregate after every so many events, at least one. To be set before it is used.
    #[must_use]
    pub fn snapshots<A: Aggregate + Serialize + DeserializeOwned>(mut self, every: u64) -> Self {
        let taken: Kept<A> = Kept { every: every.max(1), write: Payload::of, read: Payload::parse };
        let mut all = (*self.snapshots.0).clone();
        all.insert(TypeId::of::<A>(), Arc::new(taken));
        self.snapshots = Snapshots(Arc::new(all));
        self
    }

    /// The event with which a stream begins anew: what came before it is not read any more.
    pub(crate) fn begin_anew<A: Aggregate>(&self, stream: &Key, state: &A) -> Result<NewEvent, EventsError> {
        let Some(anew) = self.snapshots.anew(state) else {
            return Err(EventsError::NotKept { stream: stream.clone(), kind: A::KIND });
        };
        let new = NewEvent::new(EventType::new(BEGUN_ANEW)?, anew?);
        Ok(self.context.stamp(new, 1)?)
    }

    /// Adds to a batch that this state stands for all events up to its version.
    pub(crate) fn keep_base<A: Aggregate>(
        &self,
        batch: Batch,
        stream: &Key,
        loaded: &Loaded<A>,
    ) -> Result<Batch, EventsError> {
        let Some(kept) = self.snapshots.of::<A>() else {
            return Err(EventsError::NotKept { stream: stream.clone(), kind: A::KIND });
        };
        let Some(place) = Place::of(loaded) else { return Ok(batch) };
        let taken = Taken::new(stream, A::FOLD, place, (kept.write)(&loaded.state)?);
        Ok(batch.put(&stream.beside(BASE)?, Expect::Any, Payload::of(&taken)?))
    }

    /// Adds to a batch that nothing is kept beside a stream any more.
    pub(crate) fn forget_beside(batch: Batch, stream: &Key) -> Result<Batch, InvalidInput> {
        let (snapshot, base) = (stream.beside(SNAPSHOT)?, stream.beside(BASE)?);
        Ok(batch.delete(&snapshot, Expect::Any).delete(&base, Expect::Any))
    }
}

/// Whether a stream begins anew with an event.
pub(crate) fn begins_anew(event: &Event) -> bool {
    event.event_type.as_str() == BEGUN_ANEW
}

/// How the snapshots of each type of aggregate are made.
#[derive(Clone, Default)]
pub(super) struct Snapshots(Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

struct Kept<A> {
    every: u64,
    write: fn(&A) -> Result<Payload, InvalidInput>,
    read: fn(&Payload) -> Result<A, InvalidInput>,
}

/// The event up to which a state holds.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) version: StreamVersion,
    pub(super) position: Position,
    pub(super) at: Timestamp,
}

impl Place {
    fn of<A>(loaded: &Loaded<A>) -> Option<Self> {
        Some(Self { version: loaded.version?, position: loaded.position?, at: loaded.at? })
    }

    fn with<A>(self, state: Arc<A>, epoch: Epoch) -> Loaded<A> {
        let Self { version, position, at } = self;
        Loaded { state, version: Some(version), position: Some(position), at: Some(at), epoch }
    }
}

/// A snapshot or a base as it is kept.
#[derive(Serialize, Deserialize)]
pub(super) struct Taken {
    fold: u32,
    version: StreamVersion,
    position: Position,
    at: Timestamp,
    state: Payload,
    /// Binds all of it to the stream, so that an edit by hand or a copy from another stream is noticed. It is no signature.
    checksum: String,
}

impl Taken {
    fn new(stream: &Key, fold: u32, place: Place, state: Payload) -> Self {
        let checksum = checksum(stream, fold, place, &state);
        let Place { version, position, at } = place;
        Self { fold, version, position, at, state, checksum }
    }

    pub(super) fn place(&self) -> Place {
        Place { version: self.version, position: self.position, at: self.at }
    }

    /// Whether it was written for this stream, and is as it was written.
    fn is_of(&self, stream: &Key) -> bool {
        self.checksum == checksum(stream, self.fold, self.place(), &self.state)
    }

    /// Whether it can stand for what lies below an event, or why not. While books are being closed, some of the events that it
    /// stands for are still there.
    pub(super) fn check(
        &self,
        stream: &Key,
        known: Option<StreamVersion>,
        event: &Event,
    ) -> Result<(), &'static str> {
        let (version, position) = (self.version, self.position);
        if !self.is_of(stream) {
            return Err("was changed by hand: its checksum does not match");
        }
        if version.next() < event.version || known.is_some_and(|known| version <= known) {
            return Err("ends before the first event that is left");
        }
        if version.cmp(&event.version) != position.cmp(&event.position) {
            return Err("has positions of another log");
        }
        Ok(())
    }
}

fn checksum(stream: &Key, fold: u32, place: Place, state: &Payload) -> String {
    let Place { version, position, at } = place;
    let text = format!("{}\n{fold}\n{version}\n{position}\n{}\n{state}", stream.canonical(), at.as_micros());
    format!("{:016x}", hash::of(&text))
}

impl<A: Aggregate> Kept<A> {
    /// The state that a fold has written, if it is this one.
    fn state(&self, fold: u32, state: &Payload) -> Result<Arc<A>, InvalidInput> {
        if fold != A::FOLD {
            let reason = format!("it holds the state of fold {fold}, and this is fold {}", A::FOLD);
            return Err(InvalidInput::Payload { reason });
        }
        (self.read)(state).map(Arc::new)
    }
}

impl Snapshots {
    fn of<A: Aggregate>(&self) -> Option<&Kept<A>> {
        self.0.get(&TypeId::of::<A>())?.downcast_ref()
    }

    /// The snapshot of an aggregate, if there is one that can be used and is wanted.
    pub(super) async fn newest<A: Aggregate>(
        &self,
        store: &dyn Store,
        stream: &Key,
        wanted: impl Fn(&Taken) -> bool,
    ) -> Result<Option<Loaded<A>>, EventsError> {
        let Some(kept) = self.of::<A>() else { return Ok(None) };
        let epoch = store.epoch();
        let Some(document) = store.document(&stream.beside(SNAPSHOT)?).await? else { return Ok(None) };
        let Ok(taken) = document.value.parse::<Taken>() else { return Ok(None) };
        if taken.fold != A::FOLD || !taken.is_of(stream) || !wanted(&taken) {
            return Ok(None);
        }
        Ok((kept.read)(&taken.state).ok().map(|state| taken.place().with(Arc::new(state), epoch)))
    }

    /// The state that a stream begins anew with.
    pub(super) fn begun_anew<A: Aggregate>(&self, event: &Event) -> Result<Arc<A>, InvalidInput> {
        let refused = |reason: String| InvalidInput::Payload { reason };
        let kept = self.of::<A>().ok_or_else(|| {
            refused("it holds the state itself; name the aggregate in Events::snapshots".to_owned())
        })?;
        let taken: Anew = event.payload.parse()?;
        kept.state(taken.fold, &taken.state)
    }

    /// What a stream begins anew with.
    fn anew<A: Aggregate>(&self, state: &A) -> Option<Result<Payload, InvalidInput>> {
        let kept = self.of::<A>()?;
        Some((kept.write)(state).and_then(|state| Payload::of(&Anew { fold: A::FOLD, state })))
    }

    /// The document that stands for the events that a stream has lost, if there is one.
    pub(super) async fn base(
        &self,
        store: &dyn Store,
        stream: &Key,
    ) -> Result<Option<Document>, EventsError> {
        Ok(store.document(&stream.beside(BASE)?).await?)
    }

    /// An aggregate as it was when the events before were removed.
    pub(super) fn begin_with<A: Aggregate>(
        &self,
        stream: &Key,
        base: &Taken,
        epoch: Epoch,
    ) -> Result<Loaded<A>, EventsError> {
        let Some(kept) = self.of::<A>() else {
            return Err(EventsError::NotKept { stream: stream.clone(), kind: A::KIND });
        };
        let event_type = EventType::new(BEGUN_ANEW)?;
        let state = kept.state(base.fold, &base.state).map_err(|error| EventsError::Undecodable {
            stream: stream.clone(),
            version: base.version,
            event_type,
            reason: error.to_string(),
        })?;
        Ok(base.place().with(state, epoch))
    }

    /// Writes a snapshot when enough events came since the version before. Nobody waits for it, and nothing is wrong when it
    /// fails.
    pub(super) fn write_behind<A: Aggregate>(
        &self,
        store: &SharedStore,
        stream: &Key,
        before: Option<StreamVersion>,
        loaded: &Loaded<A>,
    ) {
        let Some(kept) = self.of::<A>() else { return };
        let count = |version: Option<StreamVersion>| version.map_or(0, |version| version.0.saturating_add(1));
        let Some(place) = Place::of(loaded) else { return };
        if count(before) / kept.every == count(loaded.version) / kept.every {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (store, stream) = (Arc::clone(store), stream.clone());
        let (state, write, epoch) = (Arc::clone(&loaded.state), kept.write, loaded.epoch);
        runtime.spawn(async move {
            let taken = write(&state).map(|state| Taken::new(&stream, A::FOLD, place, state));
            if let Err(error) = put(&*store, &stream, taken, epoch).await {
                tracing::warn!(target: telemetry::EVENTS, %stream, %error, "no snapshot was written");
            }
        });
    }
}

#[derive(Serialize, Deserialize)]
struct Anew {
    fold: u32,
    state: Payload,
}

/// Writes a snapshot, unless there is one as new already: snapshots of one aggregate are written at the same time.
async fn put(
    store: &dyn Store,
    stream: &Key,
    taken: Result<Taken, InvalidInput>,
    epoch: Epoch,
) -> Result<(), EventsError> {
    let (key, taken) = (stream.beside(SNAPSHOT)?, taken?);
    let value = Payload::of(&taken)?;
    loop {
        let found = store.document(&key).await?;
        let known = found.as_ref().and_then(|document| document.value.parse::<Taken>().ok());
        if known.is_some_and(|known| {
            known.fold == taken.fold && known.is_of(stream) && known.version >= taken.version
        }) {
            return Ok(());
        }
        let expect = found.map_or(Expect::Absent, |document| Expect::Exact(document.version));
        match store.apply(Batch::new().put(&key, expect, value.clone()).observed_in(epoch)).await {
            Err(ApplyError::Refused(refusal)) if matches!(*refusal, Refusal::Document { .. }) => {}
            other => return other.map(|_| ()).map_err(EventsError::from),
        }
    }
}
