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
use crate::id::{Position, StreamVersion};
use crate::key::Key;
use crate::payload::Payload;
use crate::store::{ApplyError, Batch, Event, Expect, Refusal, SharedStore, Store};
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
}

/// How the snapshots of each type of aggregate are made.
#[derive(Clone, Default)]
pub(super) struct Snapshots(Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

struct Kept<A> {
    every: u64,
    write: fn(&A) -> Result<Payload, InvalidInput>,
    read: fn(&Payload) -> Result<A, InvalidInput>,
}

/// A snapshot as it is kept.
#[derive(Serialize, Deserialize)]
pub(super) struct Taken {
    fold: u32,
    pub(super) version: StreamVersion,
    pub(super) position: Position,
    pub(super) at: Timestamp,
    state: Payload,
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
        let Some(document) = store.document(&stream.beside("snapshot")?).await? else { return Ok(None) };
        let Ok(taken) = document.value.parse::<Taken>() else { return Ok(None) };
        if taken.fold != A::FOLD || !wanted(&taken) {
            return Ok(None);
        }
        Ok((kept.read)(&taken.state).ok().map(|state| Loaded {
            state: Arc::new(state),
            version: Some(taken.version),
            position: Some(taken.position),
            at: Some(taken.at),
        }))
    }

    /// The state that a stream begins anew with.
    pub(super) fn begun_anew<A: Aggregate>(&self, event: &Event) -> Result<Arc<A>, InvalidInput> {
        let refused = |reason: String| InvalidInput::Payload { reason };
        let kept = self.of::<A>().ok_or_else(|| {
            refused("it holds the state itself; name the aggregate in Events::snapshots".to_owned())
        })?;
        let taken: Anew = event.payload.parse()?;
        if taken.fold != A::FOLD {
            let known = A::FOLD;
            return Err(refused(format!(
                "it holds the state of fold {}, and this is fold {known}",
                taken.fold
            )));
        }
        (kept.read)(&taken.state).map(Arc::new)
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
        let (Some(version), Some(position), Some(at)) = (loaded.version, loaded.position, loaded.at) else {
            return;
        };
        if count(before) / kept.every == count(loaded.version) / kept.every {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (store, stream) = (Arc::clone(store), stream.clone());
        let (state, write) = (Arc::clone(&loaded.state), kept.write);
        runtime.spawn(async move {
            let taken = write(&state).map(|state| Taken { fold: A::FOLD, version, position, at, state });
            if let Err(error) = put(&*store, &stream, taken).await {
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
async fn put(store: &dyn Store, stream: &Key, taken: Result<Taken, InvalidInput>) -> Result<(), EventsError> {
    let (key, taken) = (stream.beside("snapshot")?, taken?);
    let value = Payload::of(&taken)?;
    loop {
        let found = store.document(&key).await?;
        let known = found.as_ref().and_then(|document| document.value.parse::<Taken>().ok());
        if known.is_some_and(|known| known.fold == taken.fold && known.version >= taken.version) {
            return Ok(());
        }
        let expect = found.map_or(Expect::Absent, |document| Expect::Exact(document.version));
        match store.apply(Batch::new().put(&key, expect, value.clone())).await {
            Err(ApplyError::Refused(refusal)) if matches!(*refusal, Refusal::Document { .. }) => {}
            other => return other.map(|_| ()).map_err(EventsError::from),
        }
    }
}
