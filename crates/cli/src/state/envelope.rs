//! A record in its form for programs: its metadata and the stored value.

use serde::Serialize;
use tidelock::prelude::*;
use tidelock::store::StoredDocument;

/// A record. Without a version, the record does not exist.
#[derive(Debug, Serialize)]
pub(super) struct Envelope {
    key: Key,
    version: Option<DocVersion>,
    updated_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    value: Option<Payload>,
}

impl Envelope {
    pub(super) fn of(document: &StoredDocument) -> Self {
        Self {
            key: document.key.clone(),
            version: Some(document.version),
            updated_at: Some(document.updated_at),
            expires_at: document.expires_at,
            value: Some(document.value.clone()),
        }
    }

    pub(super) fn none(key: &Key) -> Self {
        Self { key: key.clone(), version: None, updated_at: None, expires_at: None, value: None }
    }
}
