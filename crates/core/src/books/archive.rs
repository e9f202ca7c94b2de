//! What an archive gets: the events of a stream, page by page.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::id::StreamVersion;
use crate::key::Key;
use crate::store::Event;

/// Some events of a stream, oldest first.
///
/// A page may come again, when the process died before it was noted that the archive has it. It is then the same page: the
/// same name, the same versions, the same events. So write it under its [name](Self::name), and writing it again changes
/// nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct ArchivePage {
    /// The stream.
    pub stream: Key,
    /// The version of the first event.
    pub first: StreamVersion,
    /// The version of the last event.
    pub last: StreamVersion,
    /// The events.
    pub events: Vec<Event>,
}

impl ArchivePage {
    /// The name of the page: the stream, and the versions of its first and last event. No other page ever has it, because
    /// versions go on when a stream begins anew.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} {}-{}", self.stream, self.first, self.last)
    }
}

pub(super) type Failure = Box<dyn Error + Send + Sync>;
type Answer = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// The user's archive.
#[derive(Clone)]
pub(super) struct Archive(Arc<dyn Fn(ArchivePage) -> Answer + Send + Sync>);

impl Archive {
    pub(super) fn new<F, Fut, E>(keep: F) -> Self
    where
        F: Fn(ArchivePage) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure>,
    {
        Self(Arc::new(move |page| {
            let kept = keep(page);
            Box::pin(async move { kept.await.map_err(Into::into) })
        }))
    }

    /// Hands a page over.
    pub(super) async fn keep(&self, page: ArchivePage) -> Result<(), Failure> {
        (self.0)(page).await
    }
}
