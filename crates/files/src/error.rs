//! Mapping of file system errors to store errors. No other module does it.

use std::io;
use std::path::Path;

use tidelock_core::store::{StoreError, StoreErrorKind};

/// Maps an error, with the action and the path.
pub(crate) fn map(doing: &str, path: &Path, error: &io::Error) -> StoreError {
    StoreError::new(kind(error), format!("{doing} {}", path.display()), error.to_string())
}

fn kind(error: &io::Error) -> StoreErrorKind {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreErrorKind::Full,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => StoreErrorKind::ReadOnly,
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => StoreErrorKind::CannotOpen,
        _ => StoreErrorKind::Io,
    }
}

/// Returns the error for a file with invalid contents.
pub(crate) fn corrupt(path: &Path, detail: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, format!("reading {}", path.display()), detail)
}

/// The reason why a session could not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The session must write, but holds the lock for reading only.
    NeedsExclusive,
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The error of a failed write, and whether the write may have happened all the same.
#[derive(Debug)]
pub(crate) struct WriteFailure {
    pub(crate) error: StoreError,
    /// Whether the write passed its commit point. The next process then completes it.
    pub(crate) may_have_happened: bool,
}

impl WriteFailure {
    pub(crate) fn before(error: StoreError) -> Self {
        Self { error, may_have_happened: false }
    }

    pub(crate) fn after(error: StoreError) -> Self {
        Self { error, may_have_happened: true }
    }
}

impl From<WriteFailure> for StoreError {
    fn from(failure: WriteFailure) -> Self {
        failure.error
    }
}

impl From<WriteFailure> for Failure {
    fn from(failure: WriteFailure) -> Self {
        Self::Store(failure.error)
    }
}
