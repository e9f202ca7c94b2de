//! A record as programs get it: everything around its value, and the value as it is kept.

use serde::Serialize;
use tidelock::prelude::*;
use tidelock::store::Document;

/// A record. Without a version, there is none.
#[derive(Debug, Serialize)]
pub(super) struct Envelope<'a> {
    key: &'a Key,
    version: Option<DocVersion>,
    updated_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    value: Option<&'a Payload>,
}

impl<'a> Envelope<'a> {
    pub(super) fn of(document: &'a Document) -> Self {
        Self {
            key: &document.key,
            version: Some(document.version),
            updated_at: Some(document.updated_at),
            expires_at: document.expires_at,
            value: Some(&document.value),
        }
    }

    pub(super) fn none(key: &'a Key) -> Self {
        Self { key, version: None, updated_at: None, expires_at: None, value: None }
    }
}
