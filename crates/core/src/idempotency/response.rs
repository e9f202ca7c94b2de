//! Stored response to a request: a status, headers and a body.

use serde::Serialize;

use super::error::IdempotencyError;
use crate::error::InvalidInput;
use crate::payload::Payload;

/// The maximum size of a stored body, in bytes. A document has room for it in any encoding.
pub const MAX_BODY_BYTES: usize = 2 * 1024 * 1024;
/// The maximum size of stored headers, names and values together, in bytes.
pub const MAX_HEADERS_BYTES: usize = 64 * 1024;

/// The response to a request and to every repetition of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredResponse {
    /// The status, such as 201.
    pub status: u16,
    /// Header names and values, in order. A name may occur more than once.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl StoredResponse {
    /// Creates a response without headers and body.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body to these bytes.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the body to a text.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.header("content-type", "text/plain; charset=utf-8").body(text.into())
    }

    /// Sets the body to a value, as JSON.
    ///
    /// # Errors
    /// [`InvalidInput::Payload`] when the value cannot be serialised as JSON.
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Result<Self, InvalidInput> {
        let json = Payload::of(value)?;
        Ok(self.header("content-type", "application/json").body(json.as_str()))
    }

    /// Returns the first header of a name, ignoring case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Rejects a response that exceeds the limits of a record.
    pub(super) fn check(&self, key: &str) -> Result<(), IdempotencyError> {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let (what, found, limit) = if self.body.len() > MAX_BODY_BYTES {
            ("body", self.body.len(), MAX_BODY_BYTES)
        } else if headers > MAX_HEADERS_BYTES {
            ("headers", headers, MAX_HEADERS_BYTES)
        } else {
            return Ok(());
        };
        Err(IdempotencyError::AnswerTooLarge { key: key.to_owned(), what, found, limit })
    }
}
