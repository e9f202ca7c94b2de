//! The answer to a request, as it is kept: a status, headers and a body.

use serde::Serialize;

use super::error::EdgeError;
use crate::error::InvalidInput;
use crate::payload::Payload;

/// The largest body of an answer that is kept, in bytes. A document has room for it in any form.
pub const MAX_BODY_BYTES: usize = 2 * 1024 * 1024;
/// The largest headers of an answer that are kept, names and values together, in bytes.
pub const MAX_HEADERS_BYTES: usize = 64 * 1024;

/// What a request is answered with, and every repetition of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status, such as 201.
    pub status: u16,
    /// Names and values, in order. A name may come more than once.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// An answer without headers and body.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// The same with a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same with these bytes as its body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// The same with a text as its body.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.header("content-type", "text/plain; charset=utf-8").body(text.into())
    }

    /// The same with a value as its body, as JSON.
    ///
    /// # Errors
    /// [`InvalidInput::Payload`] when the value cannot be written as JSON.
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Result<Self, InvalidInput> {
        let json = Payload::of(value)?;
        Ok(self.header("content-type", "application/json").body(json.as_str()))
    }

    /// The first header of a name, whatever its case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Refuses what a record has no room for.
    pub(super) fn check(&self, key: &str) -> Result<(), EdgeError> {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let (what, found, limit) = if self.body.len() > MAX_BODY_BYTES {
            ("body", self.body.len(), MAX_BODY_BYTES)
        } else if headers > MAX_HEADERS_BYTES {
            ("headers", headers, MAX_HEADERS_BYTES)
        } else {
            return Ok(());
        };
        Err(EdgeError::AnswerTooLarge { key: key.to_owned(), what, found, limit })
    }
}
