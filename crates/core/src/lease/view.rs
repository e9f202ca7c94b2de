//! What people and programs can see of leases without touching them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::LeaseError;
use super::row::{Said, Stolen};
use super::{line, names};
use crate::clock::Timestamp;
use crate::id::Owner;
use crate::key::Key;
use crate::store::{LeaseRow, Page, PageOf, SharedStore, WorkFilter, WorkRow};

/// Somebody who waits for a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// Who.
    pub owner: Owner,
    /// Since when, by the store's clock.
    pub since: Timestamp,
}

/// A lease as it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The key that it is on.
    pub key: Key,
    /// Who holds it, with which fence, since when and until when; `None` when nobody does.
    pub holder: Option<LeaseRow>,
    /// When this was seen, by the store's clock.
    pub now: Timestamp,
    /// How often a holder's time ran out before it was done, and somebody else took the lease.
    pub takeovers: u32,
    /// What the holder noted.
    pub note: Option<String>,
    /// The last time that it was stolen, if ever.
    pub stolen: Option<Stolen>,
    /// Who waits, in order.
    pub waiters: Vec<Waiter>,
}

impl View {
    /// How long the holder has held it.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.holder.as_ref().map(|holder| self.now.since(holder.since))
    }

    /// Whether its holder's time had run out when it was seen: the next one who asks gets it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.until.has_come(self.now))
    }
}

/// Looks at the lease on a key. `None` when nobody holds it or waits for it, and it has no history.
///
/// # Errors
/// [`LeaseError::Store`] when the store cannot be asked.
pub async fn view(store: &SharedStore, key: &Key) -> Result<Option<View>, LeaseError> {
    let row = store.work(&names::row_of(key)?).await?;
    let (waiters, now) = line::alive(store, key).await?;
    Ok(match row {
        Some(row) => Some(seen(key.clone(), &row, now, waiters)),
        None if waiters.is_empty() => None,
        None => Some(View {
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

/// The leases that somebody holds or that have a history, in the order of their keys: those after the key that the
/// page names. It looks at the line of each, so ask for few at a time.
///
/// # Errors
/// [`LeaseError::Store`] when the store cannot be asked.
pub async fn list(store: &SharedStore, page: Page) -> Result<PageOf<View>, LeaseError> {
    let after = page.after.as_ref().map_or_else(names::before_leases, names::row_of)?;
    let found = store.works(&WorkFilter::default(), Page::after(&after, page.limit)).await?;
    let mut next = found.next.as_ref().and_then(names::leased_key);
    let mut rows = Vec::new();
    for row in found.rows {
        let Some(key) = names::leased_key(&row.key) else {
            next = None;
            break;
        };
        let (waiters, _) = line::alive(store, &key).await?;
        rows.push(seen(key, &row, found.now, waiters));
    }
    Ok(PageOf { rows, next, now: found.now })
}

fn seen(key: Key, row: &WorkRow, now: Timestamp, waiters: Vec<Waiter>) -> View {
    let said = Said::of(row);
    let note = row.lease.as_ref().and_then(|lease| said.note(lease.fence)).map(str::to_owned);
    let (holder, takeovers, stolen) = (row.lease.clone(), row.takeovers, said.stolen);
    View { key, holder, now, takeovers, note, stolen, waiters }
}
