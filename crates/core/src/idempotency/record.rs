//! Document of a key: the fingerprint of its request, and the stored response.
//!
//! A text body is stored as text, so that `sqlite3` and `psql` show it. Any other body is stored as base64.

use base64ct::{Base64, Encoding as _};
use serde::{Deserialize, Serialize};

use super::error::IdempotencyError;
use super::fingerprint::Fingerprint;
use super::response::StoredResponse;
use crate::error::InvalidInput;
use crate::id::Fence;
use crate::payload::Payload;
use crate::store::StoredDocument;

/// The stored part of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePolicy {
    /// The whole response.
    Whole(StoredResponse),
    /// Only the status: the body was too large, or of unknown length. The request ran, and does not run again.
    StatusOnly {
        /// The status.
        status: u16,
    },
}

/// The document of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The fingerprint of the request.
    pub(super) request: String,
    /// The fence of the reservation that wrote this record. It shows whether a write with a lost reply was applied.
    pub(super) fence: Fence,
    status: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
    body: Body,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Body {
    Text(String),
    Base64(String),
    NotKept,
}

impl Record {
    pub(super) fn new(request: &Fingerprint, fence: Fence, kept: &StorePolicy) -> Self {
        let request = request.hex();
        match kept {
            StorePolicy::Whole(StoredResponse { status, headers, body }) => {
                Self { request, fence, status: *status, headers: headers.clone(), body: Body::of(body) }
            }
            StorePolicy::StatusOnly { status } => {
                Self { request, fence, status: *status, headers: Vec::new(), body: Body::NotKept }
            }
        }
    }

    pub(super) fn read(document: &StoredDocument) -> Result<Self, IdempotencyError> {
        document.value.parse().map_err(|found| damaged(document, &found))
    }

    pub(super) fn kept(self, document: &StoredDocument) -> Result<StorePolicy, IdempotencyError> {
        let Self { status, headers, body, .. } = self;
        let body = match body {
            Body::Text(text) => text.into_bytes(),
            Body::Base64(text) => Base64::decode_vec(&text).map_err(|_| {
                damaged(document, &InvalidInput::Payload { reason: "the body is no base64".to_owned() })
            })?,
            Body::NotKept => return Ok(StorePolicy::StatusOnly { status }),
        };
        Ok(StorePolicy::Whole(StoredResponse { status, headers, body }))
    }

    pub(super) fn payload(&self) -> Result<Payload, InvalidInput> {
        Payload::of(self)
    }
}

fn damaged(document: &StoredDocument, found: &InvalidInput) -> IdempotencyError {
    IdempotencyError::Damaged { key: document.key.clone(), reason: found.to_string() }
}

impl Body {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) if fits(text) => Self::Text(text.to_owned()),
            _ => Self::Base64(Base64::encode_string(bytes)),
        }
    }
}

/// Returns whether a record has room for a text in JSON encoding. The length of base64 is known in advance.
fn fits(text: &str) -> bool {
    let written = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 => 6,
        _ => 1_usize,
    });
    !text.contains('\0') && written.sum::<usize>() <= MAX_TEXT_BYTES
}

/// The maximum length of a text in JSON encoding. The rest of the record also fits into the document.
const MAX_TEXT_BYTES: usize = 3 * 1024 * 1024;
