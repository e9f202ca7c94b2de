//! The fold: from events to state.

use std::sync::Arc;

use super::aggregate::{Aggregate, Loaded};
use super::codec::{decode, types_of};
use super::error::EventsError;
use super::schema::{EventSchema, Unknown};
use super::snapshot::{Snapshots, Taken};
use super::travel::AsOf;
use super::{Events, snapshot};
use crate::error::InvalidInput;
use crate::id::{Epoch, StreamVersion};
use crate::key::reserved::BASE;
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
        let epoch = self.store.epoch();
        let known = match place.take().filter(|known| known.epoch == epoch) {
            Some(known) => known,
            None => {
                let newest = self.snapshots.newest(&*self.store, stream, |_| true).await?;
                newest.unwrap_or_else(|| nothing(epoch))
            }
        };
        let before = known.version;
        let loaded = self.fold(stream, known, None).await?;
        self.snapshots.write_behind(&self.store, stream, before, &loaded);
        Ok(place.insert(loaded).clone())
    }

    /// Folds the events after what is known, up to a moment.
    ///
    /// Events below the first one may have been removed. A state must then stand for them: the document of the base, or a later
    /// event that holds the state. Without one the fold fails: the events that are left are never folded alone.
    pub(super) async fn fold<A: Aggregate>(
        &self,
        stream: &Key,
        known: Loaded<A>,
        moment: Option<AsOf>,
    ) -> Result<Loaded<A>, EventsError> {
        let (schema, mut loaded) = (A::schema(), known);
        let mut from = loaded.version.map_or(StreamVersion(0), next);
        // Why no state stands for the removed events; set while no later event holds one.
        let (mut unfounded, mut based) = (None, false);
        'pages: loop {
            let page = self.store.read_stream(StreamQuery::forward(stream, PAGE).from(from)).await?;
            if based && page.events.is_empty() {
                return Err(base_error(stream, from, "has no event after it"));
            }
            for event in &page.events {
                let wanted = moment.is_none_or(|moment| moment.includes(event));
                let anew = wanted && snapshot::begins_anew(event);
                if event.version > from && !anew && unfounded.is_none() {
                    match self.bridge(&loaded, event, moment).await? {
                        Ok(base) => {
                            loaded = base;
                            (from, based) = (loaded.version.map_or(from, next), true);
                            continue 'pages;
                        }
                        Err(reason) => unfounded = Some(base_error(stream, event.version, reason)),
                    }
                }
                if !wanted {
                    break 'pages;
                }
                if anew {
                    unfounded = None;
                }
                if unfounded.is_none() {
                    loaded.apply(&self.snapshots, &schema, event)?;
                }
                (from, based) = (next(event.version), false);
            }
            if page.end {
                break;
            }
        }
        unfounded.map_or(Ok(loaded), Err)
    }

    /// The state that stands for the events before this one, which were removed; or why none does.
    async fn bridge<A: Aggregate>(
        &self,
        known: &Loaded<A>,
        event: &Event,
        moment: Option<AsOf>,
    ) -> Result<Result<Loaded<A>, &'static str>, EventsError> {
        let stream = &event.stream;
        let base = match self.snapshots.base(&*self.store, stream).await? {
            None => Err("is missing"),
            Some(document) => match document.value.parse::<Taken>() {
                Ok(base) => base.check(stream, known.version, event).map(|()| base),
                Err(_) => Err("was changed by hand: it does not read"),
            },
        };
        match base {
            Ok(base) if moment.is_none_or(|moment| moment.includes_snapshot(&base)) => {
                self.snapshots.begin_with(stream, &base, known.epoch).map(Ok)
            }
            Err(reason) if moment.is_none_or(|moment| moment.includes(event)) => Ok(Err(reason)),
            _ => Err(EventsError::Archived { stream: stream.clone(), first: event.version }),
        }
    }

    /// The aggregate of a stream as it is now.
    pub(crate) async fn load_stream<A: Aggregate>(&self, stream: &Key) -> Result<Loaded<A>, EventsError> {
        let place = self.cache.place::<A>(stream);
        let mut place = place.lock().await;
        let loaded = self.refresh(stream, &mut place).await?;
        self.check_new(stream, &loaded).await?;
        Ok(loaded)
    }

    /// Tells a stream that is new, or closed for good, from one whose events were all removed with nothing left in their place.
    pub(super) async fn check_new<A>(&self, stream: &Key, loaded: &Loaded<A>) -> Result<(), EventsError> {
        if loaded.version.is_some() {
            return Ok(());
        }
        let found = self.store.stream(stream).await?.filter(|found| found.closed_at.is_none());
        match found.and_then(|found| Some((found.head?, found.first))) {
            Some((head, None)) => Err(base_error(stream, next(head), "is missing")),
            _ => Ok(()),
        }
    }
}

/// The events below `first` were removed, and what should stand for them does not.
pub(super) fn base_error(stream: &Key, first: StreamVersion, reason: &'static str) -> EventsError {
    match stream.beside(BASE) {
        Ok(base) => EventsError::Base { stream: stream.clone(), base, first, reason },
        Err(error) => error.into(),
    }
}

/// An aggregate without events.
pub(super) fn nothing<A: Aggregate>(epoch: Epoch) -> Loaded<A> {
    Loaded { state: Arc::default(), version: None, position: None, at: None, epoch }
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
        if snapshot::begins_anew(event) {
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
