//! Archive callback and its pages of events.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::id::StreamVersion;
use crate::key::Key;
use crate::store::Event;

/// A page of consecutive events of a stream, oldest first.
///
/// The archive may receive a page twice if the process dies before it records the page as archived. The second delivery has
/// the same name, versions and events. Store the page under its [name](Self::name), so that storing it again changes
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
    /// Returns the name of the page: the stream and the versions of its first and last event. The name is unique, because
    /// versions continue when a stream restarts.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} {}-{}", self.stream, self.first, self.last)
    }
}

pub(super) type Failure = Box<dyn Error + Send + Sync>;
type PageFuture = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// The user's archive callback.
#[derive(Clone)]
pub(super) struct Archive(Arc<dyn Fn(ArchivePage) -> PageFuture + Send + Sync>);

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

    /// Passes a page to the archive.
    pub(super) async fn keep(&self, page: ArchivePage) -> Result<(), Failure> {
        (self.0)(page).await
    }
}
