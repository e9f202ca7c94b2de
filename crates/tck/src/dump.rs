//! Everything a reader can see of a store, for cases that say "nothing at all changed".

use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::store::{
    Document, Event, Page, PageOf, StoreError, StoreErrorKind, StreamInfo, WorkFilter, WorkRow,
};

use crate::conn::Conn;

/// Everything a reader can see.
#[derive(Clone, Debug, PartialEq)]
pub struct Dump {
    /// All documents, by key.
    pub documents: Vec<Document>,
    /// All streams, by key.
    pub streams: Vec<StreamInfo>,
    /// All events, by position.
    pub events: Vec<Event>,
    /// All work rows, by key.
    pub work: Vec<WorkRow>,
}

impl Dump {
    /// Reads everything, page by page.
    pub async fn of(conn: &Conn) -> Self {
        let everything = KeyPrefix::all();
        let none = WorkFilter::default();
        let documents = pages(async |page| conn.documents(&everything, page).await).await;
        if matches!(conn.count_work(&none).await, Err(e) if e.kind == StoreErrorKind::Unsupported) {
            return Self { documents, streams: Vec::new(), events: Vec::new(), work: Vec::new() };
        }
        Self {
            documents,
            streams: pages(async |page| conn.streams(&everything, page).await).await,
            events: conn.log().await,
            work: pages(async |page| conn.works(&none, page).await).await,
        }
    }
}

/// Reads a list to its end.
pub(crate) async fn pages<T>(read: impl AsyncFn(Page) -> Result<PageOf<T>, StoreError>) -> Vec<T> {
    paged(500, read).await
}

/// Reads a list to its end in pages of a given size.
pub(crate) async fn paged<T>(
    limit: usize,
    read: impl AsyncFn(Page) -> Result<PageOf<T>, StoreError>,
) -> Vec<T> {
    let mut all = Vec::new();
    let mut after: Option<Key> = None;
    loop {
        let page = read(Page { after: after.clone(), limit }).await.expect("the store answers");
        assert!(page.rows.len() <= limit, "a page of {} rows where {limit} were asked for", page.rows.len());
        all.extend(page.rows);
        match page.next {
            Some(next) => {
                assert!(
                    after.as_ref() < Some(&next),
                    "a page leads back to {next}: a reader would never end"
                );
                after = Some(next);
            }
            None => return all,
        }
    }
}
