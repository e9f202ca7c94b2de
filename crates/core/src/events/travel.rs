//! Aggregates as they were.

use super::Events;
use super::aggregate::{Aggregate, Loaded};
use super::error::EventsError;
use super::load::{ends_of, nothing, readable};
use super::snapshot::{Place, Taken};
use crate::clock::Timestamp;
use crate::id::{Position, StreamVersion};
use crate::key::{Arg, Key};
use crate::store::Event;

/// A moment in the life of an aggregate: everything up to it, itself included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsOf {
    /// The event of this version.
    Version(StreamVersion),
    /// This position of the log.
    Position(Position),
    /// This instant, by the store's clock: all events before the first one that was committed later.
    Time(Timestamp),
}

impl AsOf {
    pub(super) fn includes(self, event: &Event) -> bool {
        self.reaches(event.version, event.position, event.at)
    }

    pub(super) fn includes_snapshot(self, taken: &Taken) -> bool {
        // A clock that went back gives a later event an earlier time: what counts is the latest time of all of them.
        let Place { version, position, latest, .. } = taken.place();
        self.reaches(version, position, latest)
    }

    fn reaches(self, version: StreamVersion, position: Position, at: Timestamp) -> bool {
        match self {
            Self::Version(last) => version <= last,
            Self::Position(last) => position <= last,
            Self::Time(last) => at <= last,
        }
    }
}

impl Events {
    /// An aggregate as it was. A moment before its first event gives the state without events, one after the last the present.
    ///
    /// # Errors
    /// [`EventsError::Archived`] when the events of that moment were removed, and nothing stands for them. Otherwise when the
    /// store fails or an event does not read.
    pub async fn as_of<A: Aggregate>(
        &self,
        id: impl Into<Arg>,
        moment: AsOf,
    ) -> Result<Loaded<A>, EventsError> {
        self.stream_as_of(&A::stream(id)?, moment).await
    }

    /// The aggregate of a stream as it was.
    pub(crate) async fn stream_as_of<A: Aggregate>(
        &self,
        stream: &Key,
        moment: AsOf,
    ) -> Result<Loaded<A>, EventsError> {
        let epoch = self.store.epoch();
        let found = self.store.stream(stream).await?;
        let Some(ends) = readable(stream, found.as_ref())? else {
            return Ok(nothing(epoch, ends_of(found.as_ref())));
        };
        let known = self.start(stream, ends, epoch, |taken| moment.includes_snapshot(taken)).await?;
        self.fold(stream, known, Some(moment)).await
    }
}
