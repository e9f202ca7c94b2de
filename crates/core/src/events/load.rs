//! Loading of aggregates: the fold from events to state.

use std::sync::Arc;

use super::aggregate::{Aggregate, Ends, Loaded};
use super::as_of::AsOf;
use super::codec::{decode, types_of};
use super::error::EventsError;
use super::schema::{EventSchema, UnknownEvents};
use super::snapshot::{Snapshots, Taken};
use super::{Events, snapshot};
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::{Epoch, Position, StreamVersion};
use crate::key::reserved::BASE;
use crate::key::{Arg, Key};
use crate::process;
use crate::store::{Event, NewEvent, StreamInfo, StreamQuery};

/// The number of events that are read at once.
const PAGE: usize = 1_000;

impl Events {
    /// Loads the current state of an aggregate.
    ///
    /// # Errors
    /// Returns [`EventsError`] when the store fails or an event cannot be decoded.
    pub async fn load<A: Aggregate>(&self, id: impl Into<Arg>) -> Result<Loaded<A>, EventsError> {
        self.load_stream(&A::stream(id)?).await
    }

    /// Brings the cached state up to date.
    ///
    /// The cached state is valid only while the first event of the stream is unchanged. If events were removed since then,
    /// a stored state must replace them, as it must in every other process.
    pub(super) async fn refresh<A: Aggregate>(
        &self,
        stream: &Key,
        slot: &mut Option<Loaded<A>>,
    ) -> Result<Loaded<A>, EventsError> {
        let epoch = self.store.epoch();
        let mut remembered = slot.take().filter(|known| known.epoch == epoch);
        let mut found = self.store.stream(stream).await?;
        loop {
            let Some(ends) = readable(stream, found.as_ref())? else {
                return Ok(slot.insert(nothing(epoch, ends_of(found.as_ref()))).clone());
            };
            let known = remembered.take().filter(|known| known.ends.first == ends.first);
            let known = match known {
                Some(known) => known,
                None => self.start(stream, ends, epoch, |_| true).await?,
            };
            let before = known.version;
            let loaded = if before == ends.head { known } else { self.fold(stream, known, None).await? };
            if loaded.version >= ends.head {
                let loaded = Loaded { ends: Ends { head: loaded.version, ..ends }, ..loaded };
                self.snapshots.write_behind(&self.store, stream, before, &loaded);
                return Ok(slot.insert(loaded).clone());
            }
            // The last events were removed during the read, or no state replaces them.
            let again = self.store.stream(stream).await?;
            if again == found {
                return Err(base_error(stream, ends.head.map_or(StreamVersion(0), next), "is missing"));
            }
            found = again;
        }
    }

    /// Returns the state to fold on: a snapshot that `wanted` accepts, or the state without events.
    pub(super) async fn start<A: Aggregate>(
        &self,
        stream: &Key,
        ends: Ends,
        epoch: Epoch,
        wanted: impl Fn(&Taken) -> bool,
    ) -> Result<Loaded<A>, EventsError> {
        let snapshot = self.snapshots.newest(&*self.store, stream, wanted).await?;
        let founded = ends.first == Some(StreamVersion(0));
        match snapshot {
            Some(snapshot) if founded || self.is_founded::<A>(stream, ends).await? => {
                Ok(Loaded { ends, ..snapshot })
            }
            _ => Ok(nothing(epoch, ends)),
        }
    }

    /// Returns whether a state replaces the removed events of a stream. A snapshot is not sufficient, because it may be
    /// dropped at any time.
    async fn is_founded<A: Aggregate>(&self, stream: &Key, ends: Ends) -> Result<bool, EventsError> {
        let base = self.snapshots.base(&*self.store, stream).await?;
        let base = base.and_then(|document| document.value.parse::<Taken>().ok());
        if base.is_some_and(|base| base.stands_for::<A>(stream, ends.first)) {
            return Ok(true);
        }
        let oldest = self.store.read_stream(StreamQuery::forward(stream, 1)).await?.events;
        Ok(oldest.first().is_some_and(snapshot::begins_anew))
    }

    /// Folds the events after the known state, up to a moment.
    ///
    /// Events below the first one may have been removed. A state must then replace them: the base document, or a later
    /// event that holds the state. Without one the fold fails, because the remaining events are never folded alone.
    pub(super) async fn fold<A: Aggregate>(
        &self,
        stream: &Key,
        known: Loaded<A>,
        moment: Option<AsOf>,
    ) -> Result<Loaded<A>, EventsError> {
        let (schema, mut loaded) = (A::schema(), known);
        let mut from = loaded.version.map_or(StreamVersion(0), next);
        // The reason why no state replaces the removed events, until a later event holds one.
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

    /// Returns the state that replaces the removed events before this one, or the reason why there is none.
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
                Ok(base) => base.check::<A>(stream, known.version, event).map(|()| base),
                Err(_) => Err("was changed by hand: it does not read"),
            },
        };
        match base {
            Ok(base) if moment.is_none_or(|moment| moment.includes_snapshot(&base)) => {
                let base = self.snapshots.begin_with(stream, &base, known.epoch)?;
                Ok(Ok(Loaded { ends: known.ends, ..base }))
            }
            Err(reason) if moment.is_none_or(|moment| moment.includes(event)) => Ok(Err(reason)),
            _ => Err(EventsError::Archived { stream: stream.clone(), first: event.version }),
        }
    }

    /// Loads the current state of the aggregate of a stream.
    pub(crate) async fn load_stream<A: Aggregate>(&self, stream: &Key) -> Result<Loaded<A>, EventsError> {
        let mut turn = self.turn(stream, process::now() + self.options.limit).await?;
        self.refresh(stream, &mut turn.loaded).await
    }
}

/// Returns the ends of a stream that has a state; `None` when it is new, or was closed permanently and emptied.
///
/// # Errors
/// Returns [`EventsError::Base`] when all its events were removed and no state replaces them.
pub(super) fn readable(stream: &Key, found: Option<&StreamInfo>) -> Result<Option<Ends>, EventsError> {
    let ends = ends_of(found);
    match (ends.first, ends.head) {
        (None, Some(head)) if found.is_none_or(|found| found.closed_at.is_none()) => {
            Err(base_error(stream, next(head), "is missing"))
        }
        (None, _) => Ok(None),
        (Some(_), _) => Ok(Some(ends)),
    }
}

pub(super) fn ends_of(found: Option<&StreamInfo>) -> Ends {
    found.map_or_else(Ends::default, |found| Ends { first: found.first, head: found.head })
}

/// Creates the error for removed events below `first` that no valid base replaces.
pub(super) fn base_error(stream: &Key, first: StreamVersion, reason: &'static str) -> EventsError {
    match stream.beside(BASE) {
        Ok(base) => EventsError::Base { stream: stream.clone(), base, first, reason },
        Err(error) => error.into(),
    }
}

/// Returns an aggregate without events.
pub(super) fn nothing<A: Aggregate>(epoch: Epoch, ends: Ends) -> Loaded<A> {
    Loaded { state: Arc::default(), version: None, position: None, at: None, epoch, latest: None, ends }
}

pub(super) fn next(version: StreamVersion) -> StreamVersion {
    StreamVersion(version.0.saturating_add(1))
}

impl<A: Aggregate> Loaded<A> {
    /// Folds an event that is not appended yet.
    pub(super) fn apply_new(
        &mut self,
        snapshots: &Snapshots,
        stream: &Key,
        new: &NewEvent,
    ) -> Result<(), EventsError> {
        let NewEvent { id, event_type, payload, meta, correlation } = new.clone();
        let event = Event {
            position: self.position.unwrap_or(Position(0)),
            stream: stream.clone(),
            version: self.version.map_or(StreamVersion(0), next),
            id,
            event_type,
            at: self.at.unwrap_or(Timestamp::EPOCH),
            payload,
            meta,
            correlation,
        };
        self.apply(snapshots, &A::schema(), &event)
    }

    /// Folds one event.
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
                Err(_) if schema.policy() == UnknownEvents::Skip && is_unknown() => {}
                Err(error) => return Err(undecodable(error)),
            }
        }
        self.version = Some(event.version);
        self.position = Some(event.position);
        self.at = Some(event.at);
        self.latest = self.latest.max(Some(event.at));
        Ok(())
    }
}
