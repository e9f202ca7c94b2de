//! Aggregates as they were.

use super::Events;
use super::aggregate::{Aggregate, Loaded};
use super::error::EventsError;
use super::load::nothing;
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
    /// This instant, by the store's clock.
    Time(Timestamp),
}

impl AsOf {
    pub(super) fn includes(self, event: &Event) -> bool {
        self.reaches(event.version, event.position, event.at)
    }

    pub(super) fn includes_snapshot(self, taken: &Taken) -> bool {
        let Place { version, position, at } = taken.place();
        self.reaches(version, position, at)
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
        let snapshot = self.snapshots.newest(&*self.store, stream, |taken| moment.includes_snapshot(taken));
        let known = snapshot.await?.unwrap_or_else(|| nothing(epoch));
        self.fold(stream, known, Some(moment)).await
    }
}
