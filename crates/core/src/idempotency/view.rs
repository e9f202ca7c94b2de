//! Listing and deletion of idempotency keys.

use serde::{Deserialize, Serialize};

use super::client::Idempotency;
use super::error::IdempotencyError;
use super::keys;
use super::record::{Record, StorePolicy};
use crate::clock::Timestamp;
use crate::key::Key;
use crate::store::{Batch, Expect, Get, Page, PageOf, StoredDocument, WorkFilter, WorkRow};

/// An idempotency key and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdempotencyKeyView {
    /// The scope of the key. Empty when the program uses no scopes.
    pub scope: String,
    /// The key.
    pub key: String,
    /// The fingerprint of the request.
    pub request: String,
    /// The state of the key.
    pub state: IdempotencyKeyState,
}

/// The state of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdempotencyKeyState {
    /// The request has a stored response.
    Stored {
        /// The status of the response.
        status: u16,
        /// The size of the body in bytes. `None` when it was not stored.
        body_bytes: Option<usize>,
        /// The time of the commit.
        at: Timestamp,
        /// The expiry of the response.
        expires_at: Option<Timestamp>,
    },
    /// The request is in flight.
    InFlight {
        /// The process that runs it.
        by: String,
        /// The start of the request.
        since: Timestamp,
        /// The expiry of the lease, unless it is renewed.
        until: Timestamp,
    },
}

impl Idempotency {
    /// Lists keys in the order of their scopes and names, of one scope or of all. `after` is the last key of the
    /// previous page.
    ///
    /// # Errors
    /// [`IdempotencyError::Store`] when the store fails, [`IdempotencyError::Damaged`] when a record cannot be decoded.
    pub async fn list(
        &self,
        scope: Option<&str>,
        page: Page,
    ) -> Result<PageOf<IdempotencyKeyView>, IdempotencyError> {
        let (prefix, limit) = (scope.map_or_else(keys::all, keys::all_of), page.rows()?);
        let filter = WorkFilter { queue: Some(keys::queue()?), ..WorkFilter::default() };
        let from = match &page.after {
            Some(after) => Some(after.clone()),
            // Keys of the scope sort after the scope prefix itself.
            None => Key::from_canonical(prefix.from()).ok(),
        };
        let rows = self.store.works(&filter, Page { after: from, limit }).await?;
        let documents = self.store.documents(&prefix, page).await?;
        let (more, now) = (rows.next.is_some() || documents.next.is_some(), documents.now);
        let mut all: Vec<(Key, IdempotencyKeyView)> = Vec::new();
        for document in documents.rows {
            all.extend(stored(&document)?.map(|view| (document.key, view)));
        }
        for row in rows.rows.into_iter().filter(|row| prefix.contains(&row.key)) {
            all.extend(in_flight(&row).map(|view| (row.key, view)));
        }
        // A stable order. When a key has both a record and a row, the record comes first and counts.
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all.dedup_by(|(a, _), (b, _)| a == b);
        let cut = all.len() > limit;
        all.truncate(limit);
        let next = if more || cut { all.last().map(|(key, _)| key.clone()) } else { None };
        Ok(PageOf { rows: all.into_iter().map(|(_, view)| view).collect(), next, now })
    }

    /// Returns one key, with the stored response of its request.
    ///
    /// # Errors
    /// [`IdempotencyError::Unknown`] when there is no such key, [`IdempotencyError::Damaged`] when its record cannot be decoded.
    pub async fn show(
        &self,
        scope: &str,
        key: &str,
    ) -> Result<(IdempotencyKeyView, Option<StorePolicy>), IdempotencyError> {
        let name = keys::record(scope, key)?;
        let mut found = self.store.read(&[Get::Document(name.clone()), Get::Work(name)]).await?;
        if let Some(document) = found.take_document(0)
            && let Some(view) = stored(&document)?
        {
            return Ok((view, Some(Record::read(&document)?.kept(&document)?)));
        }
        match found.take_work(1).and_then(|row| in_flight(&row)) {
            Some(view) => Ok((view, None)),
            None => Err(IdempotencyError::Unknown { scope: scope.to_owned(), key: key.to_owned() }),
        }
    }

    /// Deletes the response of a key, so that its request can run again.
    ///
    /// # Errors
    /// [`IdempotencyError::InFlight`] when the request is in flight, [`IdempotencyError::Unknown`] when there is nothing to delete.
    ///
    /// # Cancel safety
    /// If the future is dropped, the response may or may not be deleted. Call it again to find out.
    pub async fn forget(&self, scope: &str, key: &str) -> Result<(), IdempotencyError> {
        let name = keys::record(scope, key)?;
        let mut found = self.store.read(&[Get::Document(name.clone()), Get::Work(name.clone())]).await?;
        if let Some(document) = found.take_document(0) {
            self.store.apply(Batch::new().delete(&name, Expect::Exact(document.version))).await?;
            return Ok(());
        }
        match found.take_work(1).and_then(|row| in_flight(&row)).map(|view| view.state) {
            Some(IdempotencyKeyState::InFlight { by, since, until }) => {
                Err(IdempotencyError::InFlight { key: key.to_owned(), by, since, until })
            }
            _ => Err(IdempotencyError::Unknown { scope: scope.to_owned(), key: key.to_owned() }),
        }
    }

    /// Returns the key after which a page continues.
    ///
    /// # Errors
    /// [`IdempotencyError::BadKey`] when the key is invalid.
    pub fn page_key(scope: &str, key: &str) -> Result<Key, IdempotencyError> {
        keys::record(scope, key)
    }
}

fn stored(document: &StoredDocument) -> Result<Option<IdempotencyKeyView>, IdempotencyError> {
    let Some((scope, key)) = keys::of(&document.key) else { return Ok(None) };
    let record = Record::read(document)?;
    let request = record.request.clone();
    let (status, body_bytes) = match record.kept(document)? {
        StorePolicy::Whole(answer) => (answer.status, Some(answer.body.len())),
        StorePolicy::StatusOnly { status } => (status, None),
    };
    let (at, expires_at) = (document.updated_at, document.expires_at);
    Ok(Some(IdempotencyKeyView {
        scope,
        key,
        request,
        state: IdempotencyKeyState::Stored { status, body_bytes, at, expires_at },
    }))
}

fn in_flight(row: &WorkRow) -> Option<IdempotencyKeyView> {
    let (scope, key) = keys::of(&row.key)?;
    let lease = row.lease.as_ref()?;
    let (by, request) = keys::parts(&lease.owner);
    let state = IdempotencyKeyState::InFlight { by: by.to_owned(), since: lease.since, until: lease.until };
    Some(IdempotencyKeyView { scope, key, request: request.unwrap_or_default().to_owned(), state })
}
