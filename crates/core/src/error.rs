//! The error taxonomy: a stable code, whether to try again, and whether anything happened.
//!
//! Each operation has a small enum of its own; all of them implement [`Explain`]. Every code has a page in
//! `crates/core/errors/`, which the book shows and `tidelock explain CODE` prints.

pub mod pages;

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::id::OpId;

/// A stable name for one kind of failure. It never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub(crate) &'static str);

impl Code {
    /// A code of a crate that stands on this one. Its page is among the others, which `cargo xtask tidy` checks.
    #[must_use]
    pub const fn of(text: &'static str) -> Self {
        Self(text)
    }

    /// The code as text, for example `TL0202`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same call will fail again.
    Never,
    /// Look at what changed and try again at once.
    Now,
    /// Try again after about that long, with jitter.
    After(Duration),
}

/// What is known about the effects of a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was applied.
    Applied,
    /// Nothing was applied.
    NotApplied,
    /// The outcome is unknown. With an operation id, [`Store::resolve`](crate::store::Store::resolve) returns it.
    Unknown(Option<OpId>),
}

/// What every error of Tidelock can answer.
pub trait Explain: std::error::Error {
    /// The stable code; `tidelock explain CODE` prints its page.
    fn code(&self) -> Code;
    /// Whether trying again can help.
    fn retry(&self) -> Retry;
    /// What is known about the effects.
    fn outcome(&self) -> Outcome;
}

/// Input that no store will ever accept.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidInput {
    /// A key is malformed.
    #[error("key {text:?} is not valid: {reason}; write it as kind(\"text\", 42) or build it with Key::new")]
    Key {
        /// The text that was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A payload is not JSON, or not JSON of the expected shape.
    #[error("the payload does not fit: {reason}")]
    Payload {
        /// What the parser said.
        reason: String,
    },
    /// A name or a small number is out of its form.
    #[error("{what} {text:?} is not valid: {reason}")]
    Name {
        /// Which kind of name.
        what: &'static str,
        /// The text that was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A filter pattern uses more than literals, `^`, `$`, `.` and `.*`.
    #[error("pattern {pattern:?} cannot be used: {reason}; allowed are literals, ^ $ . and .*")]
    Pattern {
        /// The pattern that was given.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A name that only Tidelock writes.
    #[error(
        "cannot write {name}: the name is reserved; choose a name that does not begin with tidelock. and does not stand beside a stream or document, or use the operation of its engine"
    )]
    Reserved {
        /// The key or the type of an event.
        name: String,
    },
    /// Something exceeds a stated limit.
    #[error("{what} of {subject} is {found}, at most {limit} are allowed; split it or store a reference")]
    Limit {
        /// What was measured.
        what: &'static str,
        /// The key or name it belongs to.
        subject: String,
        /// The measured amount.
        found: usize,
        /// The limit.
        limit: usize,
    },
}

impl InvalidInput {
    pub(crate) fn name(what: &'static str, text: &str, reason: impl Into<String>) -> Self {
        Self::Name { what, text: text.chars().take(80).collect(), reason: reason.into() }
    }
}

impl Explain for InvalidInput {
    fn code(&self) -> Code {
        Code(match self {
            Self::Key { .. } => "TL0101",
            Self::Payload { .. } => "TL0102",
            Self::Name { .. } => "TL0103",
            Self::Pattern { .. } => "TL0104",
            Self::Limit { .. } => "TL0105",
            Self::Reserved { .. } => "TL0106",
        })
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn outcome(&self) -> Outcome {
        Outcome::NotApplied
    }
}
