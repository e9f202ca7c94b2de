//! Snapshots of aggregates. A load folds only the events after the snapshot. They are written asynchronously and are
//! optional: a missing snapshot, or one of another fold, only costs time.
//!
//! All snapshots of a stream are one document, so that one write drops them when the stream is archived. Each names the
//! type of its aggregate, because several aggregates may fold one stream.

use std::any::{Any, TypeId, type_name};
use std::cmp::Reverse;
use std::sync::Arc;

use foldhash::HashMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Events;
use super::aggregate::{Aggregate, Ends, Loaded};
use super::error::EventsError;
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::{Epoch, EventType, Position, StreamVersion};
use crate::key::Key;
use crate::key::reserved::{BASE, SNAPSHOT};
use crate::model::hash;
use crate::payload::Payload;
use crate::process;
use crate::store::{ApplyError, Batch, Event, Expect, NewEvent, Refusal, SharedStore, Store, StoredDocument};
use crate::telemetry;

/// The type of the event that restarts a stream. It holds the state, and the events before it are removed.
pub(super) const BEGUN_ANEW: &str = "tidelock.snapshot";
/// The most aggregates with a snapshot of one stream.
const MOST: usize = 8;

impl Events {
    /// Enables snapshots of this aggregate, after every `every` events, at least one. Call this before the instance is
    /// used.
    #[must_use]
    pub fn snapshots<A: Aggregate + Serialize + DeserializeOwned>(mut self, every: u64) -> Self {
        let form: Form<A> = Form { every: every.max(1), write: Payload::of, read: Payload::parse };
        let mut all = (*self.snapshots.0).clone();
        all.insert(TypeId::of::<A>(), Arc::new(form));
        self.snapshots = Snapshots(Arc::new(all));
        self
    }

    /// Creates the event that restarts a stream. The events before it are not read again.
    pub(crate) fn begin_anew<A: Aggregate>(&self, stream: &Key, state: &A) -> Result<NewEvent, EventsError> {
        let Some(anew) = self.snapshots.anew(state) else {
            return Err(EventsError::NotKept { stream: stream.clone(), kind: A::KIND });
        };
        let new = NewEvent::new(EventType::new(BEGUN_ANEW)?, anew?);
        Ok(self.context.stamp(new, 1)?)
    }

    /// Adds to a batch the base document: this state, which replaces all events up to its version.
    pub(crate) fn keep_base<A: Aggregate>(
        &self,
        batch: Batch,
        stream: &Key,
        loaded: &Loaded<A>,
    ) -> Result<Batch, EventsError> {
        let Some(kept) = self.snapshots.of::<A>() else {
            return Err(EventsError::NotKept { stream: stream.clone(), kind: A::KIND });
        };
        let Some(place) = SnapshotPosition::of(loaded) else { return Ok(batch) };
        let taken = Taken::new(stream, (A::name(), A::FOLD), place, (kept.write)(&loaded.state)?);
        Ok(batch.put(&stream.beside(BASE)?, Expect::Any, Payload::of(&taken)?))
    }

    /// Adds to a batch the deletion of the snapshots and the base of a closed stream.
    pub(crate) fn forget_beside(batch: Batch, stream: &Key) -> Result<Batch, InvalidInput> {
        Self::forget_base(batch.delete(&stream.beside(SNAPSHOT)?, Expect::Any), stream)
    }

    /// Adds to a batch the deletion of the base of a stream.
    pub(crate) fn forget_base(batch: Batch, stream: &Key) -> Result<Batch, InvalidInput> {
        Ok(batch.delete(&stream.beside(BASE)?, Expect::Any))
    }

    /// Adds to a batch the removal of the snapshots of a stream. Snapshots of events below the version are not written
    /// later.
    pub(crate) fn forget_snapshots(
        batch: Batch,
        stream: &Key,
        below: StreamVersion,
    ) -> Result<Batch, InvalidInput> {
        let none = StoredSnapshots { floor: below, states: Vec::new() };
        Ok(batch.put(&stream.beside(SNAPSHOT)?, Expect::Any, Payload::of(&none)?))
    }
}

/// Returns whether an event restarts its stream.
pub(crate) fn begins_anew(event: &Event) -> bool {
    event.event_type.as_str() == BEGUN_ANEW
}

/// The encodings of snapshots, by aggregate type.
#[derive(Clone, Default)]
pub(super) struct Snapshots(Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

struct Form<A> {
    every: u64,
    write: fn(&A) -> Result<Payload, InvalidInput>,
    read: fn(&Payload) -> Result<A, InvalidInput>,
}

/// The last event that a state includes.
#[derive(Clone, Copy)]
pub(super) struct SnapshotPosition {
    pub(super) version: StreamVersion,
    pub(super) position: Position,
    pub(super) at: Timestamp,
    /// The latest time of the events up to it.
    pub(super) latest: Timestamp,
}

impl SnapshotPosition {
    fn of<A>(loaded: &Loaded<A>) -> Option<Self> {
        let (version, position) = (loaded.version?, loaded.position?);
        Some(Self { version, position, at: loaded.at?, latest: loaded.latest? })
    }

    fn with<A>(self, state: Arc<A>, epoch: Epoch) -> Loaded<A> {
        let Self { version, position, at, latest } = self;
        let (version, position, at, latest) = (Some(version), Some(position), Some(at), Some(latest));
        Loaded { state, version, position, at, epoch, latest, ends: Ends::default() }
    }
}

/// The snapshots of a stream, one for each aggregate that folds it.
#[derive(Serialize, Deserialize)]
struct StoredSnapshots {
    /// The version below which snapshots were dropped when the stream was archived. Older snapshots are not written again.
    floor: StreamVersion,
    states: Vec<Taken>,
}

impl StoredSnapshots {
    /// Returns the usable snapshot of an aggregate, if there is one.
    fn of<A: Aggregate>(self, stream: &Key) -> Option<Taken> {
        let usable = |taken: &Taken| {
            taken.is_by(type_name::<A>(), A::FOLD) && taken.is_of(stream) && taken.version >= self.floor
        };
        self.states.into_iter().find(usable)
    }

    /// Adds a snapshot. Returns whether it is newer than the stored one.
    fn add(&mut self, taken: Taken, stream: &Key) -> bool {
        if taken.version < self.floor {
            return false;
        }
        let as_new = |known: &Taken| {
            known.is_by(&taken.aggregate, taken.fold) && known.is_of(stream) && known.version >= taken.version
        };
        if self.states.iter().any(as_new) {
            return false;
        }
        self.states.retain(|known| known.aggregate != taken.aggregate);
        // Renamed and removed types leave their snapshots behind, so only the newest are kept.
        self.states.sort_by_key(|known| Reverse(known.version));
        self.states.truncate(MOST - 1);
        self.states.push(taken);
        true
    }
}

/// A stored snapshot or base.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Taken {
    /// The aggregate: the type path in a snapshot, the [name](Aggregate::name) in a base.
    aggregate: String,
    fold: u32,
    version: StreamVersion,
    position: Position,
    at: Timestamp,
    latest: Timestamp,
    state: Payload,
    /// A checksum of all fields and the stream. It detects manual edits and copies from another stream. It is not a
    /// signature.
    checksum: String,
}

impl Taken {
    fn new(stream: &Key, (aggregate, fold): (String, u32), place: SnapshotPosition, state: Payload) -> Self {
        let checksum = checksum(stream, (&aggregate, fold), place, &state);
        let SnapshotPosition { version, position, at, latest } = place;
        Self { aggregate, fold, version, position, at, latest, state, checksum }
    }

    pub(super) fn place(&self) -> SnapshotPosition {
        SnapshotPosition { version: self.version, position: self.position, at: self.at, latest: self.latest }
    }

    fn is_by(&self, aggregate: &str, fold: u32) -> bool {
        self.aggregate == aggregate && self.fold == fold
    }

    /// Returns whether it was written for this stream, and is unchanged.
    fn is_of(&self, stream: &Key) -> bool {
        self.checksum == checksum(stream, (&self.aggregate, self.fold), self.place(), &self.state)
    }

    /// Returns whether it is a base of the aggregate for all events below the oldest remaining one.
    pub(super) fn stands_for<A: Aggregate>(&self, stream: &Key, first: Option<StreamVersion>) -> bool {
        self.aggregate == A::name()
            && self.is_of(stream)
            && first.is_none_or(|first| self.version.next() >= first)
    }

    /// Checks that it can replace the events below an event. While the books are being closed, some of the replaced events
    /// still exist.
    pub(super) fn check<A: Aggregate>(
        &self,
        stream: &Key,
        known: Option<StreamVersion>,
        event: &Event,
    ) -> Result<(), &'static str> {
        let (version, position) = (self.version, self.position);
        if !self.is_of(stream) {
            return Err("was changed by hand: its checksum does not match");
        }
        if self.aggregate != A::name() {
            return Err("holds the state of another aggregate, or of one that had another Aggregate::name");
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

fn checksum(
    stream: &Key,
    (aggregate, fold): (&str, u32),
    place: SnapshotPosition,
    state: &Payload,
) -> String {
    let SnapshotPosition { version, position, at, latest } = place;
    let (stream, at, latest) = (stream.canonical(), at.as_micros(), latest.as_micros());
    let text = format!("{stream}\n{aggregate}\n{fold}\n{version}\n{position}\n{at}\n{latest}\n{state}");
    format!("{:016x}", hash::of(&text))
}

impl<A: Aggregate> Form<A> {
    /// Decodes a state, if this fold has written it.
    fn state(&self, fold: u32, state: &Payload) -> Result<Arc<A>, InvalidInput> {
        if fold != A::FOLD {
            let reason = format!("it holds the state of fold {fold}, and this is fold {}", A::FOLD);
            return Err(InvalidInput::Payload { reason });
        }
        (self.read)(state).map(Arc::new)
    }
}

impl Snapshots {
    fn of<A: Aggregate>(&self) -> Option<&Form<A>> {
        self.0.get(&TypeId::of::<A>())?.downcast_ref()
    }

    /// Returns the usable snapshot of an aggregate, if there is one that `wanted` accepts.
    pub(super) async fn newest<A: Aggregate>(
        &self,
        store: &dyn Store,
        stream: &Key,
        wanted: impl Fn(&Taken) -> bool,
    ) -> Result<Option<Loaded<A>>, EventsError> {
        let Some(kept) = self.of::<A>() else { return Ok(None) };
        let epoch = store.epoch();
        let Some(document) = store.document(&stream.beside(SNAPSHOT)?).await? else { return Ok(None) };
        let Ok(all) = document.value.parse::<StoredSnapshots>() else { return Ok(None) };
        let Some(taken) = all.of::<A>(stream).filter(wanted) else { return Ok(None) };
        Ok((kept.read)(&taken.state).ok().map(|state| taken.place().with(Arc::new(state), epoch)))
    }

    /// Decodes the state from the event that restarts a stream.
    pub(super) fn begun_anew<A: Aggregate>(&self, event: &Event) -> Result<Arc<A>, InvalidInput> {
        let refused = |reason: String| InvalidInput::Payload { reason };
        let kept = self.of::<A>().ok_or_else(|| {
            refused("it holds the state itself; name the aggregate in Events::snapshots".to_owned())
        })?;
        let taken: Anew = event.payload.parse()?;
        if taken.aggregate != A::name() {
            let (held, this) = (taken.aggregate, A::name());
            return Err(refused(format!(
                "it holds the state of the aggregate {held:?}, and this is {this:?}"
            )));
        }
        kept.state(taken.fold, &taken.state)
    }

    /// Encodes the state for the event that restarts a stream; `None` when the aggregate has no encoding.
    fn anew<A: Aggregate>(&self, state: &A) -> Option<Result<Payload, InvalidInput>> {
        let kept = self.of::<A>()?;
        Some(
            (kept.write)(state)
                .and_then(|state| Payload::of(&Anew { aggregate: A::name(), fold: A::FOLD, state })),
        )
    }

    /// Returns the base document of a stream, if there is one.
    pub(super) async fn base(
        &self,
        store: &dyn Store,
        stream: &Key,
    ) -> Result<Option<StoredDocument>, EventsError> {
        Ok(store.document(&stream.beside(BASE)?).await?)
    }

    /// Returns the aggregate with the state of the base.
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

    /// Writes a snapshot in the background when enough events were added since the version `before`. A failure is only
    /// logged.
    pub(super) fn write_behind<A: Aggregate>(
        &self,
        store: &SharedStore,
        stream: &Key,
        before: Option<StreamVersion>,
        loaded: &Loaded<A>,
    ) {
        let Some(kept) = self.of::<A>() else { return };
        let count = |version: Option<StreamVersion>| version.map_or(0, |version| version.0.saturating_add(1));
        let Some(place) = SnapshotPosition::of(loaded) else { return };
        if count(before) / kept.every == count(loaded.version) / kept.every {
            return;
        }
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (store, stream) = (Arc::clone(store), stream.clone());
        let (state, write, epoch) = (Arc::clone(&loaded.state), kept.write, loaded.epoch);
        drop(process::spawn(async move {
            let by = (type_name::<A>().to_owned(), A::FOLD);
            let taken = write(&state).map(|state| Taken::new(&stream, by, place, state));
            if let Err(error) = put(&*store, &stream, taken, epoch).await {
                tracing::warn!(target: telemetry::EVENTS, %stream, %error, "no snapshot was written");
            }
        }));
    }
}

#[derive(Serialize, Deserialize)]
struct Anew {
    aggregate: String,
    fold: u32,
    state: Payload,
}

/// Writes a snapshot, unless an equally new one exists. Several tasks may write snapshots of one aggregate at the same
/// time.
///
/// A closed stream gets no snapshot, and an archived one none from before. Removed data is not restored.
async fn put(
    store: &dyn Store,
    stream: &Key,
    taken: Result<Taken, InvalidInput>,
    epoch: Epoch,
) -> Result<(), EventsError> {
    let (key, taken) = (stream.beside(SNAPSHOT)?, taken?);
    loop {
        let found = store.document(&key).await?;
        let known = found.as_ref().and_then(|document| document.value.parse::<StoredSnapshots>().ok());
        let mut kept = known.unwrap_or(StoredSnapshots { floor: StreamVersion(0), states: Vec::new() });
        if !kept.add(taken.clone(), stream) {
            return Ok(());
        }
        let expect = found.map_or(Expect::Absent, |document| Expect::Exact(document.version));
        // An append without events has one effect: a closed stream refuses it.
        let open = Batch::new().append(stream, Expect::Exists, []);
        match store.apply(open.put(&key, expect, Payload::of(&kept)?).observed_in(epoch)).await {
            Err(ApplyError::Refused(refusal)) => match *refusal {
                Refusal::Document { .. } => {}
                Refusal::StreamClosed { .. } | Refusal::Stream { .. } => return Ok(()),
                other => return Err(ApplyError::Refused(Box::new(other)).into()),
            },
            other => return other.map(|_| ()).map_err(EventsError::from),
        }
    }
}
