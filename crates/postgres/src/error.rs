//! The one place where driver errors become store errors, and where it is decided what they mean for a transaction.

use tidelock_core::store::{StoreError, StoreErrorKind};
use tokio_postgres::error::{DbError, Severity, SqlState};

/// What a failure means for the transaction that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A row was not as the writer believed. Nothing was written; look again and decide again.
    Stale,
    /// The server's clock was misjudged. Nothing was written; ask it and decide again.
    Clock,
    /// An event id is taken. Nothing was written; find out whose it is and decide again.
    TakenEventId,
    /// Somebody holds a row that is needed. Nothing was written.
    Locked,
    /// The server took the transaction back to get out of a tangle. Nothing was written; try again.
    Again,
    /// The connection is gone before anything was sent that writes.
    Unsent,
    /// The connection is gone; what was under way may have happened.
    Lost,
    /// Anything else. Nothing was written.
    Failed,
}

/// A failure on its way to the caller.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: StoreError,
    pub(crate) meaning: Meaning,
}

impl Failure {
    pub(crate) fn new(kind: StoreErrorKind, what: &str, detail: impl Into<String>) -> Self {
        Self { error: StoreError::new(kind, what, detail), meaning: Meaning::Failed }
    }

    /// A row is not as it was believed to be, and nothing was written.
    pub(crate) fn stale() -> Self {
        let error = StoreError::new(StoreErrorKind::Busy, "writing a batch", "a row changed in between");
        Self { error, meaning: Meaning::Stale }
    }

    /// The server cannot be reached, and nothing was sent.
    pub(crate) fn unreachable(detail: impl Into<String>) -> Self {
        let error = StoreError::new(StoreErrorKind::Unreachable, "connecting to PostgreSQL", detail);
        Self { error, meaning: Meaning::Unsent }
    }

    /// The same failure, met before anything was sent that writes.
    pub(crate) fn unsent(self) -> Self {
        match self.meaning {
            Meaning::Lost => Self { meaning: Meaning::Unsent, ..self },
            _ => self,
        }
    }

    /// The connection went silent in the middle of something.
    pub(crate) fn silent(after: std::time::Duration) -> Self {
        let detail = format!("no answer for {after:?}");
        Self { error: StoreError::new(StoreErrorKind::Unreachable, WHAT, detail), meaning: Meaning::Lost }
    }
}

const WHAT: &str = "using the PostgreSQL database";

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self { meaning: meaning(&error), error: map(WHAT, &error) }
    }
}

impl From<deadpool_postgres::PoolError> for Failure {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        match error {
            deadpool_postgres::PoolError::Backend(e) => {
                let error = map("connecting to PostgreSQL", &e);
                let kind = if e.is_closed() || e.as_db_error().is_none() {
                    StoreErrorKind::Unreachable
                } else {
                    error.kind
                };
                let failure = Self::new(kind, "connecting to PostgreSQL", error.detail);
                // The server answers, and says no: trying again cannot help.
                let meaning =
                    if kind == StoreErrorKind::CannotOpen { Meaning::Failed } else { Meaning::Unsent };
                Self { meaning, ..failure }
            }
            deadpool_postgres::PoolError::Closed => {
                Self::new(StoreErrorKind::Closed, WHAT, "the store was closed")
            }
            other => Self::unreachable(format!("no connection became free: {other}")),
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// Input that only the backend can judge is refused like any other.
impl From<tidelock_core::error::InvalidInput> for Failure {
    fn from(input: tidelock_core::error::InvalidInput) -> Self {
        Self { error: input.into(), meaning: Meaning::Failed }
    }
}

/// Maps a driver error.
pub(crate) fn map(what: &str, error: &tokio_postgres::Error) -> StoreError {
    StoreError::new(kind(error), what, describe(error))
}

/// The server's words, without values that its own detail may quote from rows.
fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) if is_foreign_session(db) => format!(
            "{} (SQLSTATE {}); a pooler in transaction mode seems to stand between: add pooler=transaction to the address",
            db.message(),
            db.code().code()
        ),
        Some(db) => format!("{} (SQLSTATE {})", db.message(), db.code().code()),
        None => {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(error);
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            text
        }
    }
}

/// A prepared statement is missing, or there already: the session is not the one that prepared it.
fn is_foreign_session(error: &DbError) -> bool {
    let code = error.code().code();
    matches!(code, "26000" | "42P05") || (code == "08P01" && error.message().contains("startup parameter"))
}

fn kind(error: &tokio_postgres::Error) -> StoreErrorKind {
    let Some(db) = error.as_db_error() else {
        return if is_connection(error) { StoreErrorKind::Unreachable } else { StoreErrorKind::Bug };
    };
    let code = db.code();
    if is_foreign_session(db) {
        return StoreErrorKind::CannotOpen;
    }
    match code.code() {
        "53100" | "54023" => return StoreErrorKind::Full,
        "25006" => return StoreErrorKind::ReadOnly,
        "TL002" => return StoreErrorKind::ReadOnly,
        "55P03" | "57014" | "40001" | "40P01" | "53300" | "23505" | "TL001" | "TL003" => {
            return StoreErrorKind::Busy;
        }
        "42501" => return StoreErrorKind::CannotOpen,
        "3F000" | "42P01" | "42883" => return StoreErrorKind::Migration,
        "58030" => return StoreErrorKind::Io,
        _ => {}
    }
    match code.code().get(..2) {
        Some("08" | "57") => StoreErrorKind::Unreachable,
        Some("28" | "3D") => StoreErrorKind::CannotOpen,
        Some("XX") => StoreErrorKind::Corrupt,
        Some("53") => StoreErrorKind::Busy,
        _ => StoreErrorKind::Bug,
    }
}

fn is_connection(error: &tokio_postgres::Error) -> bool {
    error.is_closed() || has_io_source(error)
}

fn has_io_source(error: &tokio_postgres::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if cause.is::<std::io::Error>() {
            return true;
        }
        source = cause.source();
    }
    false
}

/// What a failure means for the transaction that met it.
pub(crate) fn meaning(error: &tokio_postgres::Error) -> Meaning {
    let Some(db) = error.as_db_error() else {
        // Whatever it is, nobody knows what the server did.
        return Meaning::Lost;
    };
    if is_last_word(db) {
        return Meaning::Lost;
    }
    match db.code() {
        &SqlState::T_R_SERIALIZATION_FAILURE
        | &SqlState::T_R_DEADLOCK_DETECTED
        | &SqlState::QUERY_CANCELED => Meaning::Again,
        &SqlState::LOCK_NOT_AVAILABLE => Meaning::Locked,
        &SqlState::UNIQUE_VIOLATION if db.constraint() == Some("events_id") => Meaning::TakenEventId,
        &SqlState::UNIQUE_VIOLATION => Meaning::Stale,
        code if code.code() == "TL001" => Meaning::Stale,
        code if code.code() == "TL003" => Meaning::Clock,
        _ => Meaning::Failed,
    }
}

/// The server ends the connection with this message. It may have committed just before.
fn is_last_word(error: &DbError) -> bool {
    matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
        || error.code().code().starts_with("57P")
}
