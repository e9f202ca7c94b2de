//! Read-only views of leases, for humans and programs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::LeaseError;
use super::row::{Said, Stolen};
use super::{keys, wait_queue};
use crate::clock::Timestamp;
use crate::id::Owner;
use crate::key::Key;
use crate::store::{LeaseRow, Page, PageOf, SharedStore, WorkFilter, WorkRow};

/// A waiter for a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseWaiter {
    /// The owner of the request.
    pub owner: Owner,
    /// The time when it started to wait, by the store's clock.
    pub since: Timestamp,
}

/// The state of a lease in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseView {
    /// The leased key.
    pub key: Key,
    /// The holder with its fencing token, the time of the grant and the expiry; `None` when there is none.
    pub holder: Option<LeaseRow>,
    /// The time of this view, by the store's clock.
    pub now: Timestamp,
    /// Number of takeovers: a lease expired before its holder was done, and another holder acquired it.
    pub takeovers: u32,
    /// The holder's note.
    pub note: Option<String>,
    /// The last theft, if there was one.
    pub stolen: Option<Stolen>,
    /// The waiters, in order.
    pub waiters: Vec<LeaseWaiter>,
}

impl LeaseView {
    /// Returns how long the holder has held it.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.holder.as_ref().map(|holder| self.now.since(holder.since))
    }

    /// Returns whether the lease had expired at the time of this view. The next request then acquires it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.until.has_come(self.now))
    }
}

/// Returns the state of the lease on a key. Returns `None` when it has no holder, no waiters and no history.
///
/// # Errors
/// [`LeaseError::Store`] when the store fails.
pub async fn view(store: &SharedStore, key: &Key) -> Result<Option<LeaseView>, LeaseError> {
    let row = store.work(&keys::row_of(key)?).await?;
    let (waiters, now) = wait_queue::alive(store, key).await?;
    Ok(match row {
        Some(row) => Some(seen(key.clone(), &row, now, waiters)),
        None if waiters.is_empty() => None,
        None => Some(LeaseView {
            key: key.clone(),
            holder: None,
            now,
            takeovers: 0,
            note: None,
            stolen: None,
            waiters,
        }),
    })
}

/// Lists the leases that have a holder or a history, in the order of their keys, starting after the page's key. It
/// reads the wait queue of each lease, so request small pages.
///
/// # Errors
/// [`LeaseError::Store`] when the store fails.
pub async fn list(store: &SharedStore, page: Page) -> Result<PageOf<LeaseView>, LeaseError> {
    let after = page.after.as_ref().map_or_else(keys::before_leases, keys::row_of)?;
    let found = store.works(&WorkFilter::default(), Page::after(&after, page.limit)).await?;
    let mut next = found.next.as_ref().and_then(keys::leased_key);
    let mut rows = Vec::new();
    for row in found.rows {
        let Some(key) = keys::leased_key(&row.key) else {
            next = None;
            break;
        };
        let (waiters, _) = wait_queue::alive(store, &key).await?;
        rows.push(seen(key, &row, found.now, waiters));
    }
    Ok(PageOf { rows, next, now: found.now })
}

fn seen(key: Key, row: &WorkRow, now: Timestamp, waiters: Vec<LeaseWaiter>) -> LeaseView {
    let said = Said::of(row);
    let note = row.lease.as_ref().and_then(|lease| said.note(lease.fence)).map(str::to_owned);
    let (holder, takeovers, stolen) = (row.lease.clone(), row.takeovers, said.stolen);
    LeaseView { key, holder, now, takeovers, note, stolen, waiters }
}
