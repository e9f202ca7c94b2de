//! The document of a key: which request it was, and what it was answered.
//!
//! A body that is text stands in it as text, so that `sqlite3` and `psql` show it; another one as base64.

use base64ct::{Base64, Encoding as _};
use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::error::EdgeError;
use super::fingerprint::Fingerprint;
use crate::error::InvalidInput;
use crate::id::Fence;
use crate::payload::Payload;
use crate::store::Document;

/// How much of an answer was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All of it.
    Whole(Answer),
    /// That there was one: its body was too large, or of no known end. The request ran, and does not run again.
    StatusOnly {
        /// Its status.
        status: u16,
    },
}

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The fingerprint of the request.
    pub(super) request: String,
    /// The fence of the reservation that wrote this: whether a write whose answer was lost came to pass.
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
    pub(super) fn new(request: &Fingerprint, fence: Fence, kept: &Kept) -> Self {
        let request = request.hex();
        match kept {
            Kept::Whole(Answer { status, headers, body }) => {
                Self { request, fence, status: *status, headers: headers.clone(), body: Body::of(body) }
            }
            Kept::StatusOnly { status } => {
                Self { request, fence, status: *status, headers: Vec::new(), body: Body::NotKept }
            }
        }
    }

    pub(super) fn read(document: &Document) -> Result<Self, EdgeError> {
        document.value.parse().map_err(|found| damaged(document, &found))
    }

    pub(super) fn kept(self, document: &Document) -> Result<Kept, EdgeError> {
        let Self { status, headers, body, .. } = self;
        let body = match body {
            Body::Text(text) => text.into_bytes(),
            Body::Base64(text) => Base64::decode_vec(&text).map_err(|_| {
                damaged(document, &InvalidInput::Payload { reason: "the body is no base64".to_owned() })
            })?,
            Body::NotKept => return Ok(Kept::StatusOnly { status }),
        };
        Ok(Kept::Whole(Answer { status, headers, body }))
    }

    pub(super) fn payload(&self) -> Result<Payload, InvalidInput> {
        Payload::of(self)
    }
}

fn damaged(document: &Document, found: &InvalidInput) -> EdgeError {
    EdgeError::Damaged { key: document.key.clone(), reason: found.to_string() }
}

impl Body {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) if fits(text) => Self::Text(text.to_owned()),
            _ => Self::Base64(Base64::encode_string(bytes)),
        }
    }
}

/// Whether a record has room for a text as JSON writes it. Base64 has a length that is known.
fn fits(text: &str) -> bool {
    let written = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 => 6,
        _ => 1_usize,
    });
    !text.contains('\0') && written.sum::<usize>() <= MAX_TEXT_BYTES
}

/// The longest text in a record, as JSON writes it. The rest of the record fits beside it into a document.
const MAX_TEXT_BYTES: usize = 3 * 1024 * 1024;
