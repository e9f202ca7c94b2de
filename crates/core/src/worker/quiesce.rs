//! Quiescence: whether any row of an engine is due or leased.

use crate::key::Key;
use crate::store::{Page, SharedStore, StoreError, WorkFilter, WorkRow};

/// The number of rows that are read at a time.
const PAGE: usize = 1_000;

/// Returns whether no row of the filter with a matching key is due or leased. Blocked rows wait for an operator, and do not
/// count.
pub(crate) async fn is_idle(
    store: &SharedStore,
    filter: &WorkFilter,
    matches: impl Fn(&Key) -> bool,
) -> Result<bool, StoreError> {
    let mut page = Page::first(PAGE);
    loop {
        let found = store.works(filter, page).await?;
        let now = found.now;
        let is_busy = |row: &WorkRow| {
            let due = row.lease.is_some() || row.due.is_some_and(|due| due.has_come(now));
            row.blocked.is_none() && due && matches(&row.key)
        };
        match found.next {
            _ if found.rows.iter().any(is_busy) => return Ok(false),
            Some(next) => page = Page::after(&next, PAGE),
            None => return Ok(true),
        }
    }
}
