//! Errors between a caller and a store.

use std::time::Duration;

use thiserror::Error;

use crate::error::{Code, Explain, Explanation, InvalidInput, Outcome, Retry};
use crate::id::{OpId, Position};
use crate::model::epoch::BadPosition;
use crate::model::refusal::Refusal;

/// The reason why a batch has no receipt.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ApplyError {
    /// A precondition does not hold. Nothing was applied.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// The store failed. [`Explain::outcome`] returns whether the batch was applied.
    #[error("{error}; {}", describe(*.outcome))]
    Store {
        /// The failure.
        error: StoreError,
        /// Whether the batch was applied.
        outcome: Outcome,
    },
}

fn describe(outcome: Outcome) -> String {
    match outcome {
        Outcome::Applied => "the batch was applied".to_owned(),
        Outcome::NotApplied => "nothing was applied".to_owned(),
        Outcome::Unknown(Some(id)) => {
            format!("whether the batch was applied is unknown; resolve operation {id}")
        }
        Outcome::Unknown(None) => {
            "whether the batch was applied is unknown; give batches an op_id".to_owned()
        }
    }
}

impl ApplyError {
    /// Returns the refusal, when the store works and the batch is invalid.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Store { .. } => None,
        }
    }

    /// Creates a failure after which nothing was applied.
    #[must_use]
    pub fn not_applied(error: StoreError) -> Self {
        Self::Store { error, outcome: Outcome::NotApplied }
    }

    /// Creates a failure before the batch was decided. Without an id nothing was applied. Under an id an earlier call
    /// may have applied it.
    #[must_use]
    pub fn not_decided(error: StoreError, op_id: Option<OpId>) -> Self {
        match op_id {
            None => Self::not_applied(error),
            Some(_) => Self::unknown(error, op_id),
        }
    }

    /// Creates a failure after which the outcome is unknown.
    #[must_use]
    pub fn unknown(error: StoreError, op_id: Option<OpId>) -> Self {
        Self::Store { error, outcome: Outcome::Unknown(op_id) }
    }
}

impl From<Refusal> for ApplyError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl From<InvalidInput> for ApplyError {
    fn from(input: InvalidInput) -> Self {
        Refusal::Invalid(input).into()
    }
}

impl Explain for ApplyError {
    fn explain(&self) -> Explanation {
        match self {
            Self::Refused(refusal) => refusal.explain(),
            Self::Store { error, outcome: Outcome::NotApplied } => error.explain(),
            Self::Store { error, outcome } => {
                Explanation { retry: Retry::Never, outcome: *outcome, ..error.explain() }
            }
        }
    }
}

/// The kind of a store failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreErrorKind {
    /// Another process held the database for longer than the store waits.
    Busy,
    /// The device is full, or the size limit of the store is reached.
    Full,
    /// The database cannot be written by this process.
    ReadOnly,
    /// The file is damaged or is not a database.
    Corrupt,
    /// A read or write failed.
    Io,
    /// The store was shut down.
    Closed,
    /// The server cannot be reached, or the connection to it was lost.
    Unreachable,
    /// The store does not support the operation. Another backend does.
    Unsupported,
    /// The caller's transaction sees rows that another one has changed since. It must be repeated as a whole.
    TransactionConflict,
    /// The caller's transaction is on another database than the store.
    ForeignTransaction,
    /// The path does not exist or cannot be opened.
    CannotOpen,
    /// A newer program created the schema.
    SchemaTooNew,
    /// The file is a database of another application.
    ForeignDatabase,
    /// A setting that durability depends on is not in effect.
    SettingNotInForce,
    /// A migration failed.
    Migration,
    /// The server is not PostgreSQL, and lacks features that the store depends on.
    UnsupportedEngine,
    /// The input is invalid.
    Invalid,
    /// The position belongs to a part of the history that was lost.
    PositionLost,
    /// The position lies beyond the end of the log.
    PositionBeyond,
    /// A bug in Tidelock. Please report it.
    Bug,
}

/// A failure of a store. Each backend maps driver errors to it in one file, so that driver types never leak.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what}: {detail}; {advice}")]
pub struct StoreError {
    /// The kind.
    pub kind: StoreErrorKind,
    /// The operation, with its file or key.
    pub what: Box<str>,
    /// The cause.
    pub detail: String,
    /// The next step.
    pub advice: &'static str,
    /// The last position after which a reader with a bad one can continue.
    pub continue_after: Option<Position>,
    code: Code,
}

impl StoreError {
    /// Creates a failure of the given kind.
    #[must_use]
    pub fn new(kind: StoreErrorKind, what: impl Into<String>, detail: impl Into<String>) -> Self {
        let (code, advice) = kind.page();
        let (what, detail) = (what.into().into_boxed_str(), detail.into());
        Self { kind, what, detail, advice, continue_after: None, code: Code(code) }
    }

    /// Creates the failure of a reader that cannot continue after its position.
    #[must_use]
    pub fn position(after: Position, bad: BadPosition) -> Self {
        let what = format!("cannot read the log after position {after}");
        let (kind, detail, last) = match bad {
            BadPosition::Lost(cut) => {
                let detail = format!(
                    "epoch {} lost the events after position {} and continues at {}",
                    cut.epoch, cut.cut_after, cut.resumes_at
                );
                (StoreErrorKind::PositionLost, detail, cut.cut_after)
            }
            BadPosition::Beyond(highest) => {
                let detail = format!("the log ends at position {highest}");
                (StoreErrorKind::PositionBeyond, detail, highest)
            }
        };
        Self { continue_after: Some(last), ..Self::new(kind, what, detail) }
    }
}

impl StoreErrorKind {
    /// Returns the code and the advice, in one table so that none is forgotten.
    const fn page(self) -> (&'static str, &'static str) {
        match self {
            Self::Busy => ("TL0301", "try again, or find the process that holds the database"),
            Self::Full => ("TL0302", "free space or raise the limit, then try again; nothing was lost"),
            Self::ReadOnly => ("TL0303", "make the file and its directory writable for this user"),
            Self::Corrupt => ("TL0304", "stop writing, keep the file, restore a backup"),
            Self::Io => ("TL0305", "check the device and the system log"),
            Self::Closed => ("TL0306", "open the store again"),
            Self::Unreachable => ("TL0308", "check that the server runs; the store reconnects automatically"),
            Self::Unsupported => ("TL0309", "use the memory, SQLite or PostgreSQL store for it"),
            Self::PositionLost => (
                "TL0310",
                "correct the effects of the lost events, then continue after the cut or start over",
            ),
            Self::PositionBeyond => (
                "TL0311",
                "if the store was restored from a backup, run `tidelock restored`; then continue after the end or start over",
            ),
            Self::TransactionConflict => {
                ("TL0312", "roll the transaction back and repeat it from its beginning")
            }
            Self::ForeignTransaction => ("TL0313", "begin the transaction on the database of the store"),
            Self::Bug => ("TL0307", "please report this with the message"),
            Self::CannotOpen => ("TL0401", "check the path or the address, and the permissions"),
            Self::SchemaTooNew => ("TL0402", "upgrade this program; the database was left alone"),
            Self::ForeignDatabase => ("TL0403", "choose another file; this one was left alone"),
            Self::SettingNotInForce => {
                ("TL0404", "check the file system or the server; the store was not opened")
            }
            Self::Migration => ("TL0405", "the database was left as it was; see the detail"),
            Self::UnsupportedEngine => ("TL0406", "use PostgreSQL 14 or later; the store was not opened"),
            Self::Invalid => ("TL0105", "correct the call"),
        }
    }
}

impl Explain for StoreError {
    fn explain(&self) -> Explanation {
        let retry = match self.kind {
            StoreErrorKind::TransactionConflict => Retry::After(Duration::from_millis(10)),
            StoreErrorKind::Busy => Retry::After(Duration::from_millis(100)),
            StoreErrorKind::Unreachable => Retry::After(Duration::from_millis(500)),
            StoreErrorKind::Full => Retry::after_secs(5),
            _ => Retry::Never,
        };
        Explanation { code: self.code, retry, outcome: Outcome::NotApplied }
    }
}

impl From<InvalidInput> for StoreError {
    fn from(input: InvalidInput) -> Self {
        let code = input.code();
        let advice = "correct the call";
        Self {
            kind: StoreErrorKind::Invalid,
            what: "invalid input".into(),
            detail: input.to_string(),
            advice,
            continue_after: None,
            code,
        }
    }
}
