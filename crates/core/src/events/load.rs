//! The fold: from events to state.

use std::sync::Arc;

use super::aggregate::{Aggregate, Loaded};
use super::codec::{decode, types_of};
use super::error::EventsError;
use super::schema::{EventSchema, Unknown};
use super::snapshot::Snapshots;
use super::travel::AsOf;
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
        self.load_stream(&A::stream(id)?).await
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
        let loaded = self.fold(stream, known, None).await?;
        self.snapshots.write_behind(&self.store, stream, before, &loaded);
        Ok(place.insert(loaded).clone())
    }

    /// Folds the events after what is known, up to a moment.
    pub(super) async fn fold<A: Aggregate>(
        &self,
        stream: &Key,
        known: Loaded<A>,
        moment: Option<AsOf>,
    ) -> Result<Loaded<A>, EventsError> {
        let (schema, mut loaded) = (A::schema(), known);
        'pages: loop {
            let from = loaded.version.map_or(StreamVersion(0), next);
            let page = self.store.read_stream(StreamQuery::forward(stream, PAGE).from(from)).await?;
            for event in &page.events {
                let wanted = moment.is_none_or(|moment| moment.includes(event));
                if event.version > loaded.version.map_or(StreamVersion(0), next)
                    && let Some(base) = self.bridge(&loaded, event, moment).await?
                {
                    loaded = base;
                    continue 'pages;
                }
                if !wanted {
                    return Ok(loaded);
                }
                loaded.apply(&self.snapshots, &schema, event)?;
            }
            if page.end {
                return Ok(loaded);
            }
        }
    }

    /// Events before this one are gone. What stands for them: nothing more than the event itself, if it holds the state or
    /// if they were removed without a word; or the state that was kept when the books were closed.
    async fn bridge<A: Aggregate>(
        &self,
        known: &Loaded<A>,
        event: &Event,
        moment: Option<AsOf>,
    ) -> Result<Option<Loaded<A>>, EventsError> {
        let wanted = moment.is_none_or(|moment| moment.includes(event));
        if wanted && event.event_type.as_str() == snapshot::BEGUN_ANEW {
            return Ok(None);
        }
        let stream = &event.stream;
        let base = self.snapshots.base(&*self.store, stream).await?;
        let base = base.filter(|base| known.version.is_none_or(|known| base.version > known));
        let unknown = || EventsError::Archived { stream: stream.clone(), first: event.version };
        match base {
            Some(base) if moment.is_none_or(|moment| moment.includes_snapshot(&base)) => {
                self.snapshots.begin_with(stream, &base).map(Some)
            }
            Some(_) => Err(unknown()),
            None if wanted => Ok(None),
            None => Err(unknown()),
        }
    }

    /// The aggregate of a stream as it is now.
    pub(crate) async fn load_stream<A: Aggregate>(&self, stream: &Key) -> Result<Loaded<A>, EventsError> {
        let place = self.cache.place::<A>(stream);
        let mut place = place.lock().await;
        self.refresh(stream, &mut place).await
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
