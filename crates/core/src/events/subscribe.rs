//! Subscriptions: what happened, then what happens, without a gap and without anything twice.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use futures_util::Stream;

use super::Events;
use super::aggregate::Aggregate;
use super::error::EventsError;
use super::load::next;
use super::upcast::Upcasters;
use crate::id::{Epoch, EventType, Position, StreamVersion};
use crate::key::{Key, KeyPrefix};
use crate::runtime::timer::sleep_until;
use crate::store::{Direction, Event, EventFilter, EventPage, LogQuery, SharedStore, StreamQuery, Watch};

/// How many events are read at once.
const PAGE: usize = 500;
/// How long an event may go unnoticed when the store's hint of it was missed.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the first event.
    Beginning,
    /// After the event at this position: where an earlier subscription ended.
    After(Position),
    /// With what happens from now on.
    Now,
}

/// Which events a subscription is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct What {
    types: Vec<EventType>,
    streams: Option<KeyPrefix>,
    stream: Option<Key>,
    internal: bool,
}

impl What {
    /// All events, except those that Tidelock keeps for itself: their types begin with `tidelock.`.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// The events of one stream.
    #[must_use]
    pub fn stream(stream: &Key) -> Self {
        Self { stream: Some(stream.clone()), ..Self::default() }
    }

    /// The events of the streams in this range.
    #[must_use]
    pub fn streams(range: KeyPrefix) -> Self {
        Self { streams: Some(range), ..Self::default() }
    }

    /// Only events of these types; this may be said several times.
    #[must_use]
    pub fn types(mut self, types: impl IntoIterator<Item = EventType>) -> Self {
        self.types.extend(types);
        self
    }

    /// Also what Tidelock keeps for itself.
    #[must_use]
    pub fn with_internal(mut self) -> Self {
        self.internal = true;
        self
    }

    fn includes(&self, event: &Event) -> bool {
        self.internal || !self.types.is_empty() || !event.event_type.as_str().starts_with("tidelock.")
    }

    fn filter(&self) -> EventFilter {
        EventFilter { types: self.types.clone(), streams: self.streams.clone(), ..EventFilter::default() }
    }
}

impl Events {
    /// What happened, then what happens: every event that is meant, once, in the order of the log.
    ///
    /// # Errors
    /// [`EventsError::Read`] when the store fails, or when the position to start after is not part of its history.
    pub async fn subscribe(&self, what: What, start: Start) -> Result<Subscription, EventsError> {
        let hints = self.store.watch();
        let epoch = self.store.epoch();
        if let Start::After(position) = start {
            check(&self.store, position).await?;
        }
        // The stream before the log: what comes in between is beyond the one, and not yet beyond the other.
        let next = match &what.stream {
            Some(stream) => place(&self.store, stream, start).await?,
            None => StreamVersion(0),
        };
        let after = match start {
            Start::Beginning => None,
            Start::After(position) => Some(position),
            Start::Now => self.head().await?,
        };
        let store = SharedStore::clone(&self.store);
        Ok(Subscription {
            store,
            what,
            upcasters: Upcasters::default(),
            hints,
            after,
            scanned: after,
            next,
            ready: VecDeque::new(),
            epoch,
        })
    }

    /// The position of the last event in the log.
    async fn head(&self) -> Result<Option<Position>, EventsError> {
        let last = LogQuery { direction: Direction::Backward, ..LogQuery::all(1) };
        Ok(self.store.read_log(last).await?.events.first().map(|event| event.position))
    }
}

/// Whether the log can be read after a position.
async fn check(store: &SharedStore, position: Position) -> Result<(), EventsError> {
    store.read_log(LogQuery::after(position, 1)).await?;
    Ok(())
}

/// The version of a stream with which a subscription begins. Positions rise with versions, so that it is found by looking at few
/// events, however long the stream is.
async fn place(store: &SharedStore, stream: &Key, start: Start) -> Result<StreamVersion, EventsError> {
    let after = match start {
        Start::Beginning => return Ok(StreamVersion(0)),
        Start::After(position) => Some(position),
        Start::Now => None,
    };
    let Some(head) = store.stream(stream).await?.and_then(|stream| stream.head) else {
        return Ok(StreamVersion(0));
    };
    let (mut low, mut high) = (StreamVersion(0), next(head));
    let Some(after) = after else { return Ok(high) };
    // The last event first: who comes back has seen most of them.
    let mut middle = head;
    while low < high {
        let one = StreamQuery::forward(stream, 1).from(middle);
        match store.read_stream(one).await?.events.first() {
            Some(event) if event.position <= after => low = next(event.version),
            _ => high = middle,
        }
        middle = StreamVersion(low.0 + high.0.saturating_sub(low.0) / 2);
    }
    Ok(low)
}

/// Events as they happen.
#[must_use = "it does nothing unless it is asked for the next event"]
#[derive(Debug)]
pub struct Subscription {
    store: SharedStore,
    what: What,
    upcasters: Upcasters,
    hints: Watch,
    /// Everything up to here was returned, or is not meant.
    after: Option<Position>,
    /// Everything up to here was read.
    scanned: Option<Position>,
    /// The version to be read next, when this is about one stream.
    next: StreamVersion,
    ready: VecDeque<Event>,
    /// The epoch that everything read ahead belongs to.
    epoch: Epoch,
}

impl Subscription {
    /// The same, with events of this aggregate in their present shape, as [`Aggregate::schema`] says; this may be said for
    /// several aggregates. Types that were renamed are meant by their present name. Say it before the first event is asked
    /// for.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::error::InvalidInput) when a name in the schema cannot be one.
    pub fn upcast<A: Aggregate>(mut self) -> Result<Self, EventsError> {
        self.upcasters = self.upcasters.with::<A>();
        self.what.types = self.upcasters.stored_names(std::mem::take(&mut self.what.types))?;
        Ok(self)
    }

    /// The next event; waits until there is one.
    ///
    /// # Errors
    /// [`EventsError::Read`] when the store fails; the next call goes on where this one stopped. When the history of the
    /// store was cut below what was returned, every call fails with
    /// [`PositionLost`](crate::store::StoreErrorKind::PositionLost): subscribe again. [`EventsError::Undecodable`] when an
    /// event cannot be brought to its [present shape](Self::upcast); the next call tries it again.
    /// [`EventsError::Gap`] once, when events of the one stream that this is about were archived before they were read; the
    /// next call goes on behind them.
    ///
    /// # Cancel safety
    /// Cancel-safe: what was not returned comes with the next call.
    pub async fn next(&mut self) -> Result<Event, EventsError> {
        loop {
            if let Some(event) = self.now().await? {
                return Ok(event);
            }
            tokio::select! {
                _ = self.hints.changed() => {}
                () = sleep_until(Instant::now() + LOOK_AFTER) => {}
            }
        }
    }

    /// The next event that is there already; `None` when everything that was committed before this call has been seen.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    ///
    /// # Cancel safety
    /// As [`next`](Self::next).
    pub async fn now(&mut self) -> Result<Option<Event>, EventsError> {
        let mut caught_up = false;
        loop {
            let epoch = self.store.epoch();
            if self.epoch != epoch {
                self.return_to_what_was_returned().await?;
                (self.epoch, caught_up) = (epoch, false);
            }
            if let Some(event) = self.ready.front() {
                let event = self.present(event)?;
                self.after = Some(event.position);
                self.ready.pop_front();
                return Ok(Some(event));
            }
            self.after = self.after.max(self.scanned);
            // What an earlier call has read says nothing about what was committed since.
            if caught_up {
                return Ok(None);
            }
            caught_up = self.read().await?;
        }
    }

    /// Everything up to here was returned, or is not meant: where a later subscription goes on, with [`Start::After`].
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.after
    }

    /// The same as a stream of events. It ends never; an error does not end it.
    pub fn into_stream(self) -> impl Stream<Item = Result<Event, EventsError>> + Send {
        futures_util::stream::unfold(self, async |mut subscription| {
            let next = subscription.next().await;
            Some((next, subscription))
        })
    }

    /// The history was cut: what was read ahead may be lost. Versions after a cut come again; positions do not.
    async fn return_to_what_was_returned(&mut self) -> Result<(), EventsError> {
        self.ready.clear();
        self.scanned = self.after;
        if let Some(stream) = &self.what.stream {
            self.next = match self.after {
                Some(after) => {
                    check(&self.store, after).await?;
                    place(&self.store, stream, Start::After(after)).await?
                }
                None => StreamVersion(0),
            };
        }
        Ok(())
    }

    /// An event in its present shape.
    fn present(&self, event: &Event) -> Result<Event, EventsError> {
        self.upcasters.upcast(event.clone()).map_err(|error| EventsError::Undecodable {
            stream: event.stream.clone(),
            version: event.version,
            event_type: event.event_type.clone(),
            reason: error.to_string(),
        })
    }

    /// Reads ahead. Whether that is all there is.
    async fn read(&mut self) -> Result<bool, EventsError> {
        let filter = self.what.filter();
        let page = match self.what.stream.clone() {
            Some(stream) => match self.read_stream(stream).await? {
                Some(page) => page,
                None => return Ok(true),
            },
            None => {
                let query = LogQuery { after: self.scanned, filter: filter.clone(), ..LogQuery::all(PAGE) };
                self.store.read_log(query).await?
            }
        };
        let (what, after) = (&self.what, self.after);
        let meant =
            |event: &Event| what.includes(event) && filter.matches(event) && Some(event.position) > after;
        self.ready.extend(page.events.into_iter().filter(meant));
        self.scanned = self.scanned.max(page.scanned_to);
        Ok(page.end)
    }

    /// The next page of the one stream that this is about; `None` when it has no more events.
    async fn read_stream(&mut self, stream: Key) -> Result<Option<EventPage>, EventsError> {
        let head = self.store.stream(&stream).await?.and_then(|found| found.head);
        let Some(head) = head.filter(|head| *head >= self.next) else { return Ok(None) };
        let page = self.store.read_stream(StreamQuery::forward(&stream, PAGE).from(self.next)).await?;
        let first = page.events.first().map_or_else(|| head.next(), |first| first.version);
        if first > self.next {
            // The events in between were archived.
            let (from, to) = (self.next, StreamVersion(first.0.saturating_sub(1)));
            self.next = first;
            return Err(EventsError::Gap { stream, from, to });
        }
        self.next = page.events.last().map_or(self.next, |last| next(last.version));
        Ok(Some(page))
    }
}
