//! Error taxonomy: a stable code, whether a retry can help, and whether the call had effects.
//!
//! Each operation has its own small enum. A [`codes!`](crate::codes) table gives every variant its code, its retry rule
//! and its outcome, and thereby implements [`Explain`].
//! Every code has a page in `crates/core/errors/`, which the book shows and `tidelock explain CODE` prints.

pub mod pages;

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::id::OpId;

/// A stable name for one kind of failure. Its meaning never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub(crate) &'static str);

impl Code {
    /// Returns the code as text, for example `TL0202`.
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

/// Whether a retry can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same call will fail again.
    Never,
    /// Read the present state and retry at once.
    Now,
    /// Retry after about this time, with jitter.
    After(Duration),
}

impl Retry {
    /// Returns a retry after that many seconds.
    #[must_use]
    pub const fn after_secs(seconds: u64) -> Self {
        Self::After(Duration::from_secs(seconds))
    }
}

/// The knowledge about the effects of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was applied.
    Applied,
    /// Nothing was applied.
    NotApplied,
    /// The outcome is unknown. With an operation id, [`Store::resolve`](crate::store::Store::resolve) returns it.
    Unknown(Option<OpId>),
}

/// The code of an error, whether a retry can help, and what is known about the effects.
///
/// A code alone means that a retry does not help and that nothing was applied. A pair adds the retry rule, and a triple the
/// outcome. A reference to another error takes over its explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The stable code.
    pub code: Code,
    /// Whether a retry can help.
    pub retry: Retry,
    /// The knowledge about the effects.
    pub outcome: Outcome,
}

impl From<&'static str> for Explanation {
    fn from(code: &'static str) -> Self {
        (code, Retry::Never).into()
    }
}

impl From<(&'static str, Retry)> for Explanation {
    fn from((code, retry): (&'static str, Retry)) -> Self {
        (code, retry, Outcome::NotApplied).into()
    }
}

impl From<(&'static str, Retry, Outcome)> for Explanation {
    fn from((code, retry, outcome): (&'static str, Retry, Outcome)) -> Self {
        Self { code: Code(code), retry, outcome }
    }
}

impl<E: Explain> From<&E> for Explanation {
    fn from(error: &E) -> Self {
        error.explain()
    }
}

/// The common interface of all errors of Tidelock. [`codes!`](crate::codes) implements it.
pub trait Explain: std::error::Error {
    /// Returns the code, the retry rule and the outcome.
    fn explain(&self) -> Explanation;

    /// Returns the stable code; `tidelock explain CODE` prints its page.
    fn code(&self) -> Code {
        self.explain().code
    }

    /// Returns whether a retry can help.
    fn retry(&self) -> Retry {
        self.explain().retry
    }

    /// Returns what is known about the effects.
    fn outcome(&self) -> Outcome {
        self.explain().outcome
    }
}

impl<E: Explain> Explain for Box<E> {
    fn explain(&self) -> Explanation {
        (**self).explain()
    }
}

/// Implements [`Explain`](crate::error::Explain) by a table with one row for each variant of an error.
///
/// The right side converts into an [`Explanation`](crate::error::Explanation). A row names the fields that its right side uses.
///
/// ```
/// use tidelock_core::codes;
/// use tidelock_core::error::{Explain, InvalidInput, Retry};
///
/// #[derive(Debug, thiserror::Error)]
/// enum TicketError {
///     #[error("cannot sell seat {seat}: it is taken; choose another seat")]
///     Taken { seat: u32 },
///     #[error("cannot sell a ticket: another sale is in flight; try again")]
///     Busy,
///     #[error(transparent)]
///     Input(InvalidInput),
/// }
///
/// codes! {
///     TicketError {
///         Taken => "TK0001",
///         Busy => ("TK0002", Retry::after_secs(1)),
///         Input(error) => error,
///     }
/// }
///
/// assert_eq!(TicketError::Busy.code().as_str(), "TK0002");
/// assert_eq!(TicketError::Taken { seat: 7 }.retry(), Retry::Never);
/// ```
#[macro_export]
macro_rules! codes {
    ($error:ident {
        $($variant:ident $({ $($field:ident),+ })? $(($inner:ident))? => $explanation:expr),+ $(,)?
    }) => {
        impl $crate::error::Explain for $error {
            fn explain(&self) -> $crate::error::Explanation {
                match self {
                    $(Self::$variant { $($($field,)+)? $(0: $inner,)? .. } => $explanation.into(),)+
                }
            }
        }
    };
}

/// Implements `From` for the errors that a variant holds, directly, in a box, or inside another error.
#[doc(hidden)]
#[macro_export]
macro_rules! conversions {
    ($error:ident { $($source:ty => $variant:ident),+ $(,)? }) => {
        $(impl From<$source> for $error {
            fn from(error: $source) -> Self {
                Self::$variant(error.into())
            }
        })+
    };
}

#[doc(hidden)]
pub use {codes, conversions};

/// Input that no store will ever accept.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidInput {
    /// A key is malformed.
    #[error("key {text:?} is not valid: {reason}; write it as kind(\"text\", 42) or build it with Key::new")]
    Key {
        /// The given text.
        text: String,
        /// The cause.
        reason: String,
    },
    /// A payload is not JSON, or not JSON of the expected shape.
    #[error("the payload does not fit: {reason}")]
    Payload {
        /// The message of the parser.
        reason: String,
    },
    /// A name or a small number is malformed.
    #[error("{what} {text:?} is not valid: {reason}")]
    Name {
        /// The kind of name.
        what: &'static str,
        /// The given text.
        text: String,
        /// The cause.
        reason: String,
    },
    /// A filter pattern uses more than literals, `^`, `$`, `.` and `.*`.
    #[error("pattern {pattern:?} cannot be used: {reason}; allowed are literals, ^ $ . and .*")]
    Pattern {
        /// The given pattern.
        pattern: String,
        /// The cause.
        reason: String,
    },
    /// A name that only Tidelock may write.
    #[error(
        "cannot write {name}: the name is reserved; choose a name without the prefix tidelock. that no engine derives from a stream or document, or use the operation of its engine"
    )]
    Reserved {
        /// The key, or the type of an event.
        name: String,
    },
    /// A value exceeds a stated limit.
    #[error("{what} of {subject} is {found}, at most {limit} are allowed; split it or store a reference")]
    Limit {
        /// The measured property.
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

codes! {
    InvalidInput {
        Key => "TL0101",
        Payload => "TL0102",
        Name => "TL0103",
        Pattern => "TL0104",
        Limit => "TL0105",
        Reserved => "TL0106",
    }
}
