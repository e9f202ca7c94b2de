//! Subscriptions to past and new events, without gaps or duplicates.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::Stream;

use super::Events;
use super::aggregate::Aggregate;
use super::error::EventsError;
use super::load::next;
use super::upcast::Upcasters;
use crate::id::{Epoch, EventType, Position, StreamVersion};
use crate::key::{Key, KeyPrefix};
use crate::process;
use crate::runtime::timer::sleep_until;
use crate::store::{Direction, Event, EventFilter, EventPage, LogQuery, SharedStore, StreamQuery, Watch};

/// The number of events that are read at once.
const PAGE: usize = 500;
/// The polling interval, which bounds the delay of an event when the store's hint was missed.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// The start position of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartFrom {
    /// The first event.
    Beginning,
    /// After the event at this position, such as the last position of an earlier subscription.
    After(Position),
    /// After the current end of the log.
    Now,
}

/// The event filter of a subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionFilter {
    types: Vec<EventType>,
    streams: Option<KeyPrefix>,
    stream: Option<Key>,
    internal: bool,
}

impl SubscriptionFilter {
    /// Selects all events except Tidelock's own, whose types start with `tidelock.`.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Selects the events of one stream.
    #[must_use]
    pub fn stream(stream: &Key) -> Self {
        Self { stream: Some(stream.clone()), ..Self::default() }
    }

    /// Selects the events of the streams in this range.
    #[must_use]
    pub fn streams(range: KeyPrefix) -> Self {
        Self { streams: Some(range), ..Self::default() }
    }

    /// Restricts the filter to these types; further calls add types.
    #[must_use]
    pub fn types(mut self, types: impl IntoIterator<Item = EventType>) -> Self {
        self.types.extend(types);
        self
    }

    /// Includes Tidelock's own events.
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
    /// Subscribes to past and new events. Every matching event is returned once, in the order of the log.
    ///
    /// # Errors
    /// Returns [`EventsError::Read`] when the store fails, or when the start position is not part of its history.
    pub async fn subscribe(
        &self,
        what: SubscriptionFilter,
        start: StartFrom,
    ) -> Result<Subscription, EventsError> {
        let hints = self.store.watch();
        let epoch = self.store.epoch();
        if let StartFrom::After(position) = start {
            check(&self.store, position).await?;
        }
        // The stream is read before the log. An event committed in between is then after the stream position, but not after
        // the log position.
        let next = match &what.stream {
            Some(stream) => place(&self.store, stream, start).await?,
            None => StreamVersion(0),
        };
        let after = match start {
            StartFrom::Beginning => None,
            StartFrom::After(position) => Some(position),
            StartFrom::Now => self.head().await?,
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

    /// Returns the position of the last event in the log.
    async fn head(&self) -> Result<Option<Position>, EventsError> {
        let last = LogQuery { direction: Direction::Backward, ..LogQuery::all(1) };
        Ok(self.store.read_log(last).await?.events.first().map(|event| event.position))
    }
}

/// Checks that the log can be read after a position.
async fn check(store: &SharedStore, position: Position) -> Result<(), EventsError> {
    store.read_log(LogQuery::after(position, 1)).await?;
    Ok(())
}

/// Returns the first version of a stream for a subscription. Positions grow with versions, so a binary search reads few
/// events in a stream of any length.
async fn place(store: &SharedStore, stream: &Key, start: StartFrom) -> Result<StreamVersion, EventsError> {
    let after = match start {
        StartFrom::Beginning => return Ok(StreamVersion(0)),
        StartFrom::After(position) => Some(position),
        StartFrom::Now => None,
    };
    let Some(head) = store.stream(stream).await?.and_then(|stream| stream.head) else {
        return Ok(StreamVersion(0));
    };
    let (mut low, mut high) = (StreamVersion(0), next(head));
    let Some(after) = after else { return Ok(high) };
    // Starts with the last event, because a returning subscriber has seen most of them.
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

/// A subscription to events.
#[must_use = "it does nothing unless it is asked for the next event"]
#[derive(Debug)]
pub struct Subscription {
    store: SharedStore,
    what: SubscriptionFilter,
    upcasters: Upcasters,
    hints: Watch,
    /// Every event up to this position was returned or does not match.
    after: Option<Position>,
    /// Every event up to this position was read.
    scanned: Option<Position>,
    /// The next version to read, for a subscription to one stream.
    next: StreamVersion,
    ready: VecDeque<Event>,
    /// The epoch of all events that were read ahead.
    epoch: Epoch,
}

impl Subscription {
    /// Converts events of this aggregate to their current shape, as [`Aggregate::schema`] defines it. It can be called for
    /// several aggregates. Renamed types are selected by their current name. Call it before reading the first event.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](crate::error::InvalidInput) when a name in the schema is invalid.
    pub fn upcast<A: Aggregate>(mut self) -> Result<Self, EventsError> {
        self.upcasters = self.upcasters.with::<A>();
        self.what.types = self.upcasters.stored_names(std::mem::take(&mut self.what.types))?;
        Ok(self)
    }

    /// Returns the next event, and waits until there is one.
    ///
    /// # Errors
    /// Returns [`EventsError::Read`] when the store fails; the next call resumes where this one stopped. If the store's
    /// history was cut below the returned events, every call fails with
    /// [`PositionLost`](crate::store::StoreErrorKind::PositionLost): subscribe again.
    ///
    /// Returns [`EventsError::Undecodable`] when an event cannot be converted to its [current shape](Self::upcast); the
    /// next call retries it.
    ///
    /// Returns [`EventsError::Gap`] once, when events of the subscribed stream were archived before they were read; the
    /// next call resumes after them.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call returns the events that were not returned.
    pub async fn next(&mut self) -> Result<Event, EventsError> {
        self.next_as(Ok).await
    }

    /// Returns the next event like [`next`](Self::next), converted by a function. An event that the function refuses was
    /// not returned.
    pub(super) async fn next_as<T>(
        &mut self,
        convert: impl Fn(Event) -> Result<T, EventsError>,
    ) -> Result<T, EventsError> {
        loop {
            if let Some(event) = self.now_as(&convert).await? {
                return Ok(event);
            }
            tokio::select! {
                biased;
                _ = self.hints.changed() => {}
                () = sleep_until(process::now() + LOOK_AFTER) => {}
            }
        }
    }

    /// Returns the next event without waiting; `None` when all events committed before this call were returned.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    ///
    /// # Cancel safety
    /// As [`next`](Self::next).
    pub async fn now(&mut self) -> Result<Option<Event>, EventsError> {
        self.now_as(Ok).await
    }

    /// Returns the next event like [`now`](Self::now), converted by a function. An event that the function refuses was not
    /// returned.
    pub(super) async fn now_as<T>(
        &mut self,
        convert: impl Fn(Event) -> Result<T, EventsError>,
    ) -> Result<Option<T>, EventsError> {
        let mut caught_up = false;
        loop {
            let epoch = self.store.epoch();
            if self.epoch != epoch {
                self.return_to_what_was_returned().await?;
                (self.epoch, caught_up) = (epoch, false);
            }
            if let Some(event) = self.ready.front() {
                let position = event.position;
                let event = convert(self.present(event)?)?;
                self.after = Some(position);
                self.ready.pop_front();
                return Ok(Some(event));
            }
            self.after = self.after.max(self.scanned);
            // The end that an earlier call has reached does not cover later commits.
            if caught_up {
                return Ok(None);
            }
            caught_up = self.read().await?;
        }
    }

    /// Returns the position up to which every event was returned or does not match. A later subscription resumes there with
    /// [`StartFrom::After`].
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.after
    }

    /// Converts the subscription to a stream of events. The stream never ends, even after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Event, EventsError>> + Send {
        futures_util::stream::unfold(self, async |mut subscription| {
            let next = subscription.next().await;
            Some((next, subscription))
        })
    }

    /// Discards events that were read ahead, because the store's history was cut. Versions are reused after a cut;
    /// positions are not.
    async fn return_to_what_was_returned(&mut self) -> Result<(), EventsError> {
        self.ready.clear();
        self.scanned = self.after;
        if let Some(stream) = &self.what.stream {
            self.next = match self.after {
                Some(after) => {
                    check(&self.store, after).await?;
                    place(&self.store, stream, StartFrom::After(after)).await?
                }
                None => StreamVersion(0),
            };
        }
        Ok(())
    }

    /// Returns an event in its current shape.
    fn present(&self, event: &Event) -> Result<Event, EventsError> {
        self.upcasters.upcast(event.clone()).map_err(|error| EventsError::Undecodable {
            stream: event.stream.clone(),
            version: event.version,
            event_type: event.event_type.clone(),
            reason: error.to_string(),
        })
    }

    /// Reads ahead. Returns whether the end was reached.
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

    /// Reads the next page of the subscribed stream; `None` when it has no more events.
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
