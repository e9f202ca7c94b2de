//! Complete visible content of a store, for cases that check that nothing changed.

use std::fmt::Write as _;

use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::store::{
    Event, Page, PageOf, StoreError, StoreErrorKind, StoredDocument, StreamInfo, WorkFilter, WorkRow,
};

use crate::conn::Conn;

/// The complete visible content of a store.
#[derive(Clone, Debug, PartialEq)]
pub struct Dump {
    /// All documents, by key.
    pub documents: Vec<StoredDocument>,
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

/// Returns the work rows in the end state of a scenario: the name of each, and whether it is blocked or leased. The row of a
/// lease that was taken over stays, because it has a history.
pub(crate) async fn rows(conn: &Conn) -> Vec<String> {
    let now = conn.now().await.expect("the store answers");
    let rows = pages(async |page| conn.works(&WorkFilter::default(), page).await).await;
    let state = |row: &WorkRow| match row {
        WorkRow { blocked: Some(blocked), .. } => format!("blocked: {}", blocked.reason),
        WorkRow { lease: Some(lease), .. } if lease.until > now => "leased".to_owned(),
        WorkRow { lifetime, .. } => format!("{lifetime:?}").to_lowercase(),
    };
    // The place of a waiter that died stays until the next waiter removes it.
    let idle_lease = |row: &&WorkRow| match row.key.kind().as_str() {
        "tidelock.lease-wait" => true,
        "tidelock.lease" => state(row) == "standing",
        _ => false,
    };
    rows.iter().filter(|row| !idle_lease(row)).map(|row| format!("{}, {}", row.key, state(row))).collect()
}

/// Maximum number of rows of each kind in a report.
const REPORTED: usize = 100;
/// Maximum number of entries of each journal in a report.
const ENTRIES: usize = 12;

/// Formats work rows, runs and the ends of their journals for a report.
pub(crate) async fn standing(conn: &Conn) -> String {
    let mut text = match conn.now().await {
        Ok(now) => format!("the store's clock: {now}\n"),
        Err(error) => format!("the store's clock: {error}\n"),
    };
    let work = pages(async |page| conn.works(&WorkFilter::default(), page).await).await;
    let _ = writeln!(text, "{} work rows:", work.len());
    for row in work.iter().take(REPORTED) {
        let WorkRow { key, queue, due, woken, attempts, takeovers, last_error, blocked, lease, .. } = row;
        let _ = writeln!(
            text,
            "  {key} in {queue}: due {due:?}, woken {woken:?}, attempts {attempts}, takeovers {takeovers}, \
             lease {lease:?}, blocked {blocked:?}, last error {last_error:?}"
        );
    }
    let runs = pages(async |page| conn.documents(&KeyPrefix::kind("tidelock.run"), page).await).await;
    let _ = writeln!(text, "{} runs:", runs.len());
    for run in runs.iter().take(REPORTED) {
        let _ = writeln!(text, "  {} at {}: {}", run.key, run.version, short(run.value.as_str()));
    }
    let journals = pages(async |page| conn.streams(&KeyPrefix::kind("tidelock.journal"), page).await).await;
    for journal in journals.iter().take(REPORTED) {
        let events = conn.history(&journal.key).await;
        let _ = writeln!(text, "{}: {} entries, the last are", journal.key, events.len());
        for event in events.iter().skip(events.len().saturating_sub(ENTRIES)) {
            let (version, name) = (event.version, event.event_type.as_str());
            let _ = writeln!(text, "  {version} {name} at {}: {}", event.at, short(event.payload.as_str()));
        }
    }
    text
}

fn short(text: &str) -> &str {
    text.get(..text.floor_char_boundary(200)).unwrap_or(text)
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
