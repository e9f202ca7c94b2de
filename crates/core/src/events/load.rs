//! The fold: from events to state.

use std::sync::Arc;

use super::aggregate::{Aggregate, Loaded};
use super::codec::{decode, types_of};
use super::error::EventsError;
use super::schema::{EventSchema, Unknown};
use super::snapshot::Snapshots;
use super::{Events, snapshot};
use crate::error::InvalidInput;
use crate::id::StreamVersion;
use crate::key::{Arg, Key};
use crate::store::{Event, StreamQuery};

/// How many events are read at once.
const PAGE: usize = 1_000;

impl Events {
    /// An aggregate as it is now.
    ///
    /// # Errors
    /// [`EventsError`] when the store fails or an event does not read.
    pub async fn load<A: Aggregate>(&self, id: impl Into<Arg>) -> Result<Loaded<A>, EventsError> {
        let stream = A::stream(id)?;
        let place = self.cache.place::<A>(&stream);
        let mut place = place.lock().await;
        self.refresh(&stream, &mut place).await
    }

    /// Brings what is known up to date.
    pub(super) async fn refresh<A: Aggregate>(
        &self,
        stream: &Key,
        place: &mut Option<Loaded<A>>,
    ) -> Result<Loaded<A>, EventsError> {
        let known = match place.take() {
            Some(known) => known,
            None => self.snapshots.newest(&*self.store, stream, |_| true).await?.unwrap_or_else(nothing),
        };
        let before = known.version;
        let loaded = self.fold(stream, known, |_| true).await?;
        self.snapshots.write_behind(&self.store, stream, before, &loaded);
        Ok(place.insert(loaded).clone())
    }

    /// Folds the events after what is known, as long as they are wanted.
    pub(super) async fn fold<A: Aggregate>(
        &self,
        stream: &Key,
        known: Loaded<A>,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Loaded<A>, EventsError> {
        let (schema, mut loaded) = (A::schema(), known);
        loop {
            let from = loaded.version.map_or(StreamVersion(0), next);
            let page = self.store.read_stream(StreamQuery::forward(stream, PAGE).from(from)).await?;
            for event in &page.events {
                if !wanted(event) {
                    return Ok(loaded);
                }
                loaded.apply(&self.snapshots, &schema, event)?;
            }
            if page.end {
                return Ok(loaded);
            }
        }
    }
}

/// An aggregate without events.
pub(super) fn nothing<A: Aggregate>() -> Loaded<A> {
    Loaded { state: Arc::default(), version: None, position: None, at: None }
}

pub(super) fn next(version: StreamVersion) -> StreamVersion {
    StreamVersion(version.0.saturating_add(1))
}

impl<A: Aggregate> Loaded<A> {
    /// Folds one event more.
    fn apply(
        &mut self,
        snapshots: &Snapshots,
        schema: &EventSchema,
        event: &Event,
    ) -> Result<(), EventsError> {
        let undecodable = |error: InvalidInput| EventsError::Undecodable {
            stream: event.stream.clone(),
            version: event.version,
            event_type: event.event_type.clone(),
            reason: error.to_string(),
        };
        if event.event_type.as_str() == snapshot::BEGUN_ANEW {
            self.state = snapshots.begun_anew(event).map_err(undecodable)?;
        } else {
            let (event_type, payload) = schema.upcast(event).map_err(undecodable)?;
            let is_unknown = || !types_of::<A::Event>().contains(&event_type.as_str());
            match decode::<A::Event>(&event_type, &payload) {
                Ok(event) => Arc::make_mut(&mut self.state).apply(&event),
                Err(_) if schema.policy() == Unknown::Skip && is_unknown() => {}
                Err(error) => return Err(undecodable(error)),
            }
        }
        self.version = Some(event.version);
        self.position = Some(event.position);
        self.at = Some(event.at);
        Ok(())
    }
}
