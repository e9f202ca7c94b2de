//! Mapping of driver errors to store errors. No other module does it.

use rusqlite::ErrorCode;
use tidelock_core::store::{StoreError, StoreErrorKind};

/// A store error, and whether it concerns only one batch of a group.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: StoreError,
    /// Whether the failure concerns one statement of one batch, so that the other batches of the group may continue.
    pub(crate) local: bool,
}

impl Failure {
    pub(crate) fn new(kind: StoreErrorKind, what: &str, detail: impl Into<String>) -> Self {
        Self { error: StoreError::new(kind, what, detail), local: false }
    }

    /// A row with invalid contents. Only the batch or claim that needs it fails.
    pub(crate) fn unreadable(what: &str, detail: impl Into<String>) -> Self {
        Self { error: StoreError::new(StoreErrorKind::Corrupt, what, detail), local: true }
    }

    /// Returns whether a row has invalid contents.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.local && self.error.kind == StoreErrorKind::Corrupt
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        let local = is_local(&error);
        Self { error: map("using the SQLite database", &error), local }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// Maps a driver error.
pub(crate) fn map(what: &str, error: &rusqlite::Error) -> StoreError {
    StoreError::new(kind(error), what, describe(error))
}

fn describe(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => {
            let text = message.clone().unwrap_or_else(|| code.to_string());
            format!("{text} (SQLite code {})", code.extended_code)
        }
        other => other.to_string(),
    }
}

fn kind(error: &rusqlite::Error) -> StoreErrorKind {
    match error.sqlite_error_code() {
        _ if is_outdated(error) => StoreErrorKind::TransactionConflict,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreErrorKind::Busy,
        Some(ErrorCode::DiskFull) => StoreErrorKind::Full,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StoreErrorKind::ReadOnly,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreErrorKind::Corrupt,
        Some(ErrorCode::CannotOpen) => StoreErrorKind::CannotOpen,
        Some(ErrorCode::SystemIoFailure) => StoreErrorKind::Io,
        None if is_unreadable(error) => StoreErrorKind::Corrupt,
        _ => StoreErrorKind::Bug,
    }
}

/// Returns whether the caller's transaction began by reading, and another one has committed since. It can only be repeated.
fn is_outdated(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|code| code.extended_code == rusqlite::ffi::SQLITE_BUSY_SNAPSHOT)
}

/// Returns whether an error concerns one batch. A uniqueness violation, an oversized value or an unreadable row does;
/// everything else concerns the database.
fn is_local(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig))
        || is_unreadable(error)
}

/// Returns whether a column has invalid contents.
pub(crate) fn is_unreadable(error: &rusqlite::Error) -> bool {
    use rusqlite::Error as E;
    matches!(
        error,
        E::FromSqlConversionFailure(..)
            | E::IntegralValueOutOfRange(..)
            | E::InvalidColumnType(..)
            | E::Utf8Error(..)
    )
}

/// Returns whether another connection held the database.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Returns whether a failed COMMIT may have reached the device all the same: the log was written, the flush failed.
pub(crate) fn commit_may_have_happened(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
}
