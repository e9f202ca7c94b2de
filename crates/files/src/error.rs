//! The one place where errors of the file system become store errors.

use std::io;
use std::path::Path;

use tidelock_core::store::{StoreError, StoreErrorKind};

/// Maps an error, with what was being done to which path.
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

/// A file that does not hold what it should.
pub(crate) fn corrupt(path: &Path, detail: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, format!("reading {}", path.display()), detail)
}

/// Why a session could not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It has to write, and holds the lock for reading only.
    NeedsExclusive,
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Why a write failed, and whether it may have happened all the same.
#[derive(Debug)]
pub(crate) struct WriteFailure {
    pub(crate) error: StoreError,
    /// Whether the point was passed from which on the write is carried out by whoever comes next.
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
