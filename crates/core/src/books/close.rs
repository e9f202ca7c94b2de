//! How the books of a stream are closed, as callers write it.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use super::archive::{Archive, ArchivePage, Failure};
use super::error::BooksError;
use super::progress::{Removal, Way};
use super::run::{self, Anew, Keep, Tombstone, Window};
use crate::clock::Timestamp;
use crate::events::{Aggregate, Events};
use crate::id::StreamVersion;
use crate::key::Key;
use crate::lease::DEFAULT_TTL;
use crate::store::limits::PAGE_ROWS;

/// How many events the archive gets at once, unless it is said.
const PAGE: usize = 500;

/// Closes the books of streams.
#[derive(Clone, Debug)]
pub struct Books {
    events: Events,
    ttl: Duration,
}

impl Books {
    /// The books of the streams of these aggregates. States are kept as [`Events::snapshots`] says.
    #[must_use]
    pub fn new(events: Events) -> Self {
        Self { events, ttl: DEFAULT_TTL }
    }

    /// How long others wait for a process that died while it closed a stream: 30 seconds.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Closes the books of a stream. First of all it says where the events go.
    pub fn close(&self, stream: &Key) -> Close {
        Close { books: self.clone(), stream: stream.clone() }
    }
}

/// A stream that is to be closed.
#[must_use = "nothing happens before it is said where the events go and what becomes of the stream"]
#[derive(Clone, Debug)]
pub struct Close {
    books: Books,
    stream: Key,
}

impl Close {
    /// Events are handed to this function before they are removed, oldest first, page by page. A page comes at least once:
    /// see [`ArchivePage`]. When it fails, the closing stops, and goes on with that page when the stream is closed again.
    pub fn archive<F, Fut, E>(self, keep: F) -> Closing
    where
        F: Fn(ArchivePage) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure>,
    {
        self.with(Some(Archive::new(keep)))
    }

    /// Events are removed, and nobody has them any more.
    pub fn discard(self) -> Closing {
        self.with(None)
    }

    fn with(self, archive: Option<Archive>) -> Closing {
        let Self { books: Books { events, ttl }, stream } = self;
        Closing { events, ttl, stream, archive, page: PAGE, regardless: BTreeSet::new() }
    }
}

/// A stream that is to be closed, and where its events go. Nothing happens before one of [`tombstone`](Self::tombstone),
/// [`restart`](Self::restart), [`restart_with`](Self::restart_with), [`keep_last`](Self::keep_last) and
/// [`before`](Self::before) is awaited.
///
/// # Errors
/// All five give the same ones. [`BooksError::Pending`] when a reaction has something to do about events that are to go;
/// nothing was changed then. [`BooksError::Lease`] when somebody else closes this stream. [`BooksError::UnderWay`] when it
/// is being closed in another way. [`BooksError::Removal`] when a closing without an archive was begun and this one has one, or the
/// other way round. [`BooksError::Archive`] when the archive fails. Otherwise what the store says.
///
/// # Cancel safety
/// Dropped anywhere, the closing may have begun, and the next call goes on where it stopped.
///
/// # Crash safety
/// Nothing is removed that the archive has not taken. A process that dies is followed by the next call on this stream, in
/// any process, as soon as its lease has ended.
#[must_use = "nothing happens before it is said what becomes of the stream"]
#[derive(Clone)]
pub struct Closing {
    pub(super) events: Events,
    pub(super) ttl: Duration,
    pub(super) stream: Key,
    pub(super) archive: Option<Archive>,
    pub(super) page: usize,
    pub(super) regardless: BTreeSet<String>,
}

impl Closing {
    /// What becomes of the events.
    pub(super) fn removal(&self) -> Removal {
        if self.archive.is_some() { Removal::Archive } else { Removal::Discard }
    }

    /// How many events the archive gets at once: 500. Choose fewer for large events: a page is in memory as a whole. A closing
    /// that goes on keeps the size that it began with.
    pub fn page(mut self, events: usize) -> Self {
        self.page = events.clamp(1, PAGE_ROWS);
        self
    }

    /// These reactions are not waited for: nobody runs them any more.
    pub fn regardless_of<N: Into<String>>(mut self, reactions: impl IntoIterator<Item = N>) -> Self {
        self.regardless.extend(reactions.into_iter().map(Into::into));
        self
    }

    /// Closes the stream for ever. All its events go, and what was kept beside it. Later appends are refused
    /// ([`EventsError::Closed`](crate::events::EventsError::Closed)), and who loads it finds nothing.
    ///
    /// # Errors
    /// See [`Closing`].
    pub async fn tombstone(self) -> Result<Closed, BooksError> {
        run::close(self, Way::Tombstone, &Tombstone).await
    }

    /// Lets the stream begin anew with its state: it is appended as one event, in the version of which commands go on, and
    /// all events before it go. Commands are not held up meanwhile.
    ///
    /// A stream that has begun anew already, and has got no event since, stays as it is.
    ///
    /// # Errors
    /// See [`Closing`]; and [`EventsError::NotKept`](crate::events::EventsError::NotKept) when nobody said how the state is
    /// kept.
    pub async fn restart<A: Aggregate>(self) -> Result<Closed, BooksError> {
        run::close(self, Way::Restart, &Anew::<A>::of_its_own()).await
    }

    /// Lets the stream begin anew with another state, made of the one that it has: the balance without the bookings, say.
    /// The function may run several times, when others append meanwhile.
    ///
    /// # Errors
    /// As [`restart`](Self::restart).
    pub async fn restart_with<A: Aggregate>(
        self,
        opening: impl Fn(&A) -> A + Send + Sync + 'static,
    ) -> Result<Closed, BooksError> {
        run::close(self, Way::Restart, &Anew::with(opening)).await
    }

    /// Keeps the last so many events, at least one. The older ones go, and the state that they led to is kept beside the
    /// stream and stands for them. Commands are not held up meanwhile.
    ///
    /// # Errors
    /// As [`restart`](Self::restart).
    pub async fn keep_last<A: Aggregate>(self, events: u64) -> Result<Closed, BooksError> {
        run::close(self, Way::Window, &Window::<A>::of(Keep::Last(events.max(1)))).await
    }

    /// Removes events that are older than an instant, as [`keep_last`](Self::keep_last) does. The last event always stays.
    ///
    /// # Errors
    /// As [`restart`](Self::restart).
    pub async fn before<A: Aggregate>(self, instant: Timestamp) -> Result<Closed, BooksError> {
        run::close(self, Way::Window, &Window::<A>::of(Keep::Since(instant))).await
    }
}

impl fmt::Debug for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stream, page, regardless, .. } = self;
        f.debug_struct("Closing")
            .field("stream", stream)
            .field("page", page)
            .field("regardless", regardless)
            .finish_non_exhaustive()
    }
}

/// What a closing did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The stream.
    pub stream: Key,
    /// What became of it.
    pub way: Way,
    /// No event is left below this version; `None` when there was nothing to remove.
    pub below: Option<StreamVersion>,
    /// Events that this call handed to the archive.
    pub archived: u64,
    /// Events that this call removed.
    pub removed: u64,
    /// Whether it went on with what another call had begun.
    pub resumed: bool,
}
