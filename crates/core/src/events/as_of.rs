//! Past states of aggregates (time travel).

use super::Events;
use super::aggregate::{Aggregate, Loaded};
use super::error::EventsError;
use super::load::{ends_of, nothing, readable};
use super::snapshot::{SnapshotPosition, Taken};
use crate::clock::Timestamp;
use crate::id::{Position, StreamVersion};
use crate::key::{Arg, Key};
use crate::store::Event;

/// A moment in the history of an aggregate. It includes the event at the moment itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsOf {
    /// The event of this version.
    Version(StreamVersion),
    /// This position of the log.
    Position(Position),
    /// This instant, by the store's clock. It includes all events before the first one that was committed later.
    Time(Timestamp),
}

impl AsOf {
    pub(super) fn includes(self, event: &Event) -> bool {
        self.reaches(event.version, event.position, event.at)
    }

    pub(super) fn includes_snapshot(self, taken: &Taken) -> bool {
        // If the clock moved backward, a later event has an earlier time. The latest time of all events decides.
        let SnapshotPosition { version, position, latest, .. } = taken.place();
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
    /// Loads a past state of an aggregate. A moment before its first event returns the state without events. A moment after
    /// the last event returns the current state.
    ///
    /// # Errors
    /// Returns [`EventsError::Archived`] when the events of that moment were removed, and no state replaces them. Returns
    /// another error when the store fails or an event cannot be decoded.
    pub async fn as_of<A: Aggregate>(
        &self,
        id: impl Into<Arg>,
        moment: AsOf,
    ) -> Result<Loaded<A>, EventsError> {
        self.stream_as_of(&A::stream(id)?, moment).await
    }

    /// Loads a past state of the aggregate of a stream.
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
