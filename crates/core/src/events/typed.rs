//! Typed events of one aggregate: decoding into its enum, the check of event names, and typed subscriptions.
//!
//! Events are upcast before they are decoded, so this file never sees an older shape.

use std::fmt;
use std::marker::PhantomData;

use futures_util::Stream;

use super::Events;
use super::aggregate::Aggregate;
use super::codec::{decode, types_of};
use super::error::EventsError;
use super::schema::UnknownEvents;
use super::subscribe::{StartFrom, Subscription, SubscriptionFilter};
use crate::error::InvalidInput;
use crate::id::{EventType, Position};
use crate::key::{Arg, Key, KeyPrefix};
use crate::payload::Payload;
use crate::store::Event;

/// An event of an aggregate in its current shape, with the id of the aggregate and the metadata of the event.
pub struct TypedEvent<A: Aggregate> {
    /// The id of the aggregate, as passed to [`Events::execute`].
    pub id: Arg,
    /// The event.
    pub event: A::Event,
    /// The same event as the store returned it, upcast: position, version, time, correlation and metadata.
    pub raw: Event,
}

impl<A: Aggregate> fmt::Debug for TypedEvent<A>
where
    A::Event: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, event, raw } = self;
        f.debug_struct("TypedEvent").field("id", id).field("event", event).field("raw", raw).finish()
    }
}

/// Decodes upcast events of an aggregate.
pub(crate) struct EventDecoder<A> {
    unknown: UnknownEvents,
    aggregate: PhantomData<fn() -> A>,
}

impl<A: Aggregate> EventDecoder<A> {
    pub(crate) fn new() -> Self {
        Self { unknown: A::schema().policy(), aggregate: PhantomData }
    }

    /// Decodes the id of the aggregate and the event; `None` for a type that is not in the enum, if the schema skips those.
    ///
    /// # Errors
    /// Returns [`InvalidInput`] when the stream is not one of the aggregate, or the event does not fit the enum.
    pub(crate) fn decode(
        &self,
        stream: &Key,
        event_type: &EventType,
        payload: &Payload,
    ) -> Result<Option<(Arg, A::Event)>, InvalidInput> {
        if self.unknown == UnknownEvents::Skip && !types_of::<A::Event>().contains(&event_type.as_str()) {
            return Ok(None);
        }
        let id = stream.args().pop().filter(|id| A::stream(id.clone()).is_ok_and(|own| own == *stream));
        let Some(id) = id else {
            let reason = format!("it is not the stream of an aggregate of kind {:?}", A::KIND);
            return Err(InvalidInput::name("stream", &stream.to_string(), reason));
        };
        Ok(Some((id, decode(event_type, payload)?)))
    }

    /// Decodes an event; `None` as for [`decode`](Self::decode).
    ///
    /// # Errors
    /// Returns [`EventsError::Undecodable`].
    pub(crate) fn typed(&self, raw: Event) -> Result<Option<TypedEvent<A>>, EventsError> {
        match self.decode(&raw.stream, &raw.event_type, &raw.payload) {
            Ok(decoded) => Ok(decoded.map(|(id, event)| TypedEvent { id, event, raw })),
            Err(error) => Err(EventsError::Undecodable {
                stream: raw.stream,
                version: raw.version,
                event_type: raw.event_type,
                reason: error.to_string(),
            }),
        }
    }
}

/// The names of the events of an aggregate, to check the names that a handler subscribes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventNames {
    /// The kind of the aggregate.
    pub(crate) kind: &'static str,
    /// The variants of its enum. Empty for a hand-written `Deserialize` that does not report them.
    pub(crate) known: &'static [&'static str],
}

impl EventNames {
    pub(crate) fn of<A: Aggregate>() -> Self {
        Self { kind: A::KIND, known: types_of::<A::Event>() }
    }

    /// Returns the first name that is not a variant. Without known variants there is nothing to compare with.
    pub(crate) fn first_unknown<'a>(&self, names: &'a [String]) -> Option<&'a str> {
        let is_unknown = |name: &&str| !self.known.is_empty() && !self.known.contains(name);
        names.iter().map(String::as_str).find(is_unknown)
    }
}

impl Events {
    /// Subscribes to past and new events of all aggregates of one type. Every event is returned once, in the order of the
    /// log, in its current shape.
    ///
    /// # Errors
    /// Returns [`EventsError::Read`] when the store fails, or when the start position is not part of its history.
    pub async fn subscribe_to<A: Aggregate>(
        &self,
        start: StartFrom,
    ) -> Result<TypedSubscription<A>, EventsError> {
        let events = self
            .subscribe(SubscriptionFilter::streams(KeyPrefix::kind(A::KIND)), start)
            .await?
            .upcast::<A>()?;
        Ok(TypedSubscription { events, decoder: EventDecoder::new() })
    }
}

/// A subscription to the events of all aggregates of one type.
#[must_use = "it does nothing unless it is asked for the next event"]
pub struct TypedSubscription<A> {
    events: Subscription,
    decoder: EventDecoder<A>,
}

impl<A: Aggregate> TypedSubscription<A> {
    /// Returns the next event, and waits until there is one.
    ///
    /// # Errors
    /// As [`Subscription::next`]. An event that does not fit the enum is [`EventsError::Undecodable`]; the next call
    /// retries it. Types that are not in the enum are skipped if the schema says [`UnknownEvents::Skip`].
    ///
    /// # Cancel safety
    /// Cancel safe: the next call returns the events that were not returned.
    pub async fn next(&mut self) -> Result<TypedEvent<A>, EventsError> {
        loop {
            let decoder = &self.decoder;
            if let Some(event) = self.events.next_as(|raw| decoder.typed(raw)).await? {
                return Ok(event);
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
    pub async fn now(&mut self) -> Result<Option<TypedEvent<A>>, EventsError> {
        loop {
            let decoder = &self.decoder;
            match self.events.now_as(|raw| decoder.typed(raw)).await? {
                Some(None) => {}
                found => return Ok(found.flatten()),
            }
        }
    }

    /// Returns the position up to which every event was returned or skipped. A later subscription resumes there with
    /// [`StartFrom::After`].
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.events.position()
    }

    /// Converts the subscription to a stream of events. The stream never ends, even after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<TypedEvent<A>, EventsError>> + Send {
        futures_util::stream::unfold(self, async |mut subscription| {
            let next = subscription.next().await;
            Some((next, subscription))
        })
    }
}

impl<A: Aggregate> fmt::Debug for TypedSubscription<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedSubscription").field("events", &self.events).finish_non_exhaustive()
    }
}
