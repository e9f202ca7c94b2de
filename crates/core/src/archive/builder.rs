//! Builder for closing the books of a stream.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use super::callback::{Archive, ArchivePage, Failure};
use super::checkpoint::{ArchiveMode, Removal};
use super::error::ArchiveError;
use super::executor::{self, Anew, Keep, Tombstone, Window};
use crate::clock::Timestamp;
use crate::events::{Aggregate, Events};
use crate::id::StreamVersion;
use crate::key::Key;
use crate::lease::DEFAULT_TTL;
use crate::store::limits::PAGE_ROWS;

/// The default number of events per archive page.
const PAGE: usize = 500;

/// An archiver that closes the books of streams.
#[derive(Clone, Debug)]
pub struct Archiver {
    events: Events,
    ttl: Duration,
}

impl Archiver {
    /// Creates an archiver for the streams of these aggregates. States are encoded as [`Events::snapshots`] defines.
    #[must_use]
    pub fn new(events: Events) -> Self {
        Self { events, ttl: DEFAULT_TTL }
    }

    /// Sets the lease time of a closing. Another process can resume the closing of a dead process after this time. The
    /// default is 30 seconds.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Closes the books of a stream. The next call chooses the archive for its events.
    pub fn close(&self, stream: &Key) -> ArchiveBuilder {
        ArchiveBuilder { books: self.clone(), stream: stream.clone() }
    }
}

/// A stream to close, before its archive is chosen.
#[must_use = "nothing is closed until an archive and a mode are chosen"]
#[derive(Clone, Debug)]
pub struct ArchiveBuilder {
    books: Archiver,
    stream: Key,
}

impl ArchiveBuilder {
    /// Passes events to this function before they are removed, oldest first and page by page. Each page is delivered at
    /// least once, see [`ArchivePage`]. If the function fails, the closing stops. The next closing of the stream resumes
    /// with that page.
    pub fn archive<F, Fut, E>(self, keep: F) -> ArchiveRequest
    where
        F: Fn(ArchivePage) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure>,
    {
        self.with(Some(Archive::new(keep)))
    }

    /// Removes events without archiving them.
    pub fn discard(self) -> ArchiveRequest {
        self.with(None)
    }

    fn with(self, archive: Option<Archive>) -> ArchiveRequest {
        let Self { books: Archiver { events, ttl }, stream } = self;
        ArchiveRequest { events, ttl, stream, archive, page: PAGE, regardless: BTreeSet::new() }
    }
}

/// A stream to close, with its archive. Nothing happens before one of [`tombstone`](Self::tombstone),
/// [`restart`](Self::restart), [`restart_with`](Self::restart_with), [`keep_last`](Self::keep_last) and
/// [`before`](Self::before) is awaited.
///
/// # Errors
/// All five return the same errors.
/// - [`ArchiveError::Pending`] when a reaction still has to handle events that would be removed. Nothing was changed.
/// - [`ArchiveError::Lease`] when another process or task closes this stream.
/// - [`ArchiveError::UnderWay`] when the stream is being closed in another way.
/// - [`ArchiveError::Removal`] when the earlier closing archives events and this one discards them, or the reverse.
/// - [`ArchiveError::Archive`] when the archive fails.
/// - Otherwise the error of the store.
///
/// # Cancel safety
/// If the future is dropped, the closing may have started. The next call resumes it.
///
/// # Crash safety
/// With an archive, events are removed only after the archive has accepted them. After a crash, the next call on this
/// stream resumes the closing in any process, once the lease has expired.
#[must_use = "nothing is closed until a mode is chosen"]
#[derive(Clone)]
pub struct ArchiveRequest {
    pub(super) events: Events,
    pub(super) ttl: Duration,
    pub(super) stream: Key,
    pub(super) archive: Option<Archive>,
    pub(super) page: usize,
    pub(super) regardless: BTreeSet<String>,
}

impl ArchiveRequest {
    /// Returns how the closing removes events.
    pub(super) fn removal(&self) -> Removal {
        if self.archive.is_some() { Removal::Archive } else { Removal::Discard }
    }

    /// Sets the number of events per archive page. The default is 500. Choose fewer for large events, because a page is
    /// held in memory. A resumed closing keeps its original page size.
    pub fn page(mut self, events: usize) -> Self {
        self.page = events.clamp(1, PAGE_ROWS);
        self
    }

    /// Ignores the pending work of these reactions, for reactions that no process runs.
    pub fn regardless_of<N: Into<String>>(mut self, reactions: impl IntoIterator<Item = N>) -> Self {
        self.regardless.extend(reactions.into_iter().map(Into::into));
        self
    }

    /// Closes the stream permanently. Removes all its events, snapshots and bases. Later appends fail with
    /// [`EventsError::Closed`](crate::events::EventsError::Closed), and loads find nothing.
    ///
    /// # Errors
    /// See [`ArchiveRequest`].
    pub async fn tombstone(self) -> Result<ArchiveReport, ArchiveError> {
        executor::close(self, ArchiveMode::Tombstone, &Tombstone).await
    }

    /// Restarts the stream from its state. The state is appended as one event, and all events before it are removed.
    /// Commands continue from the version of that event, and are not blocked during the closing.
    ///
    /// A stream that has already restarted and has no event since then is left unchanged.
    ///
    /// # Errors
    /// See [`ArchiveRequest`]. Also returns [`EventsError::NotKept`](crate::events::EventsError::NotKept) when no encoding of the
    /// state is configured.
    pub async fn restart<A: Aggregate>(self) -> Result<ArchiveReport, ArchiveError> {
        executor::close(self, ArchiveMode::Restart, &Anew::<A>::of_its_own()).await
    }

    /// Restarts the stream from a state that is derived from its current one, such as the balance without the bookings. The
    /// function may run several times when other callers append concurrently.
    ///
    /// # Errors
    /// As [`restart`](Self::restart).
    pub async fn restart_with<A: Aggregate>(
        self,
        opening: impl Fn(&A) -> A + Send + Sync + 'static,
    ) -> Result<ArchiveReport, ArchiveError> {
        executor::close(self, ArchiveMode::Restart, &Anew::with(opening)).await
    }

    /// Keeps the last `events` events, at least one, and removes the older ones. The state after the removed events is kept
    /// beside the stream and replaces them. Commands are not blocked during the closing.
    ///
    /// # Errors
    /// As [`restart`](Self::restart).
    pub async fn keep_last<A: Aggregate>(self, events: u64) -> Result<ArchiveReport, ArchiveError> {
        executor::close(self, ArchiveMode::Window, &Window::<A>::of(Keep::Last(events.max(1)))).await
    }

    /// Removes events older than an instant, as [`keep_last`](Self::keep_last) does. The last event is always kept.
    ///
    /// # Errors
    /// As [`restart`](Self::restart).
    pub async fn before<A: Aggregate>(self, instant: Timestamp) -> Result<ArchiveReport, ArchiveError> {
        executor::close(self, ArchiveMode::Window, &Window::<A>::of(Keep::Since(instant))).await
    }
}

impl fmt::Debug for ArchiveRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stream, page, regardless, .. } = self;
        f.debug_struct("Closing")
            .field("stream", stream)
            .field("page", page)
            .field("regardless", regardless)
            .finish_non_exhaustive()
    }
}

/// The report of a closing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveReport {
    /// The stream.
    pub stream: Key,
    /// The way in which the stream was closed.
    pub way: ArchiveMode,
    /// The version below which no event is left; `None` when there was nothing to remove.
    pub below: Option<StreamVersion>,
    /// The number of events that this call passed to the archive.
    pub archived: u64,
    /// The number of events that this call removed.
    pub removed: u64,
    /// Whether this call resumed a closing that another call had started.
    pub resumed: bool,
}
