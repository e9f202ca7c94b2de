//! Identity of the open database file, to detect whether it is still the one at its path.
//!
//! SQLite continues with a file that was removed or replaced. Later writes are lost with the last process that has the
//! file open. Only here: a server manages its files, and the files store opens them again for each call.

use std::path::{Path, PathBuf};

use tidelock_core::store::StoreErrorKind;

use crate::error::Failure;

/// The file that was opened.
#[derive(Clone, Debug)]
pub(crate) struct FileIdentity {
    /// Absolute, so that it stays right when the process changes its working directory.
    path: PathBuf,
    opened: Option<FileId>,
}

impl FileIdentity {
    /// Returns the file that is at the path now, where the store has just opened it.
    pub(crate) fn of(path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let opened = mark(&path).ok();
        Self { path, opened }
    }

    /// Checks that the file at the path is still the one that was opened.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let detail = match mark(&self.path) {
            Ok(found) if self.opened.is_none_or(|opened| opened == found) => return Ok(()),
            Ok(_) => "the file was replaced while the store was open; open the store again".to_owned(),
            Err(e) => {
                format!("the file that the store has open was removed ({e}); stop and put it back")
            }
        };
        let what = format!("looking for the SQLite database {}", self.path.display());
        Err(Failure::new(StoreErrorKind::CannotOpen, &what, detail))
    }

    /// Checks that another connection has this file open, from the path that the connection reports. The error describes
    /// the database that it has open instead.
    pub(crate) fn is_at(&self, path: Option<&str>) -> Result<(), String> {
        let Some(path) = path.filter(|path| !path.is_empty()) else {
            return Err("a database without a file".to_owned());
        };
        match (same(&self.path, self.opened, Path::new(path)), mark(&self.path)) {
            (true, _) => Ok(()),
            (false, Ok(now)) if self.opened.is_some_and(|opened| opened != now) => {
                Err(format!("{path}, which was replaced while the store was open"))
            }
            (false, _) => Err(format!("the file {path}")),
        }
    }
}

/// Returns whether a path leads to the file that was opened.
#[cfg(unix)]
fn same(_opened_at: &Path, opened: Option<FileId>, path: &Path) -> bool {
    opened.is_some() && mark(path).ok() == opened
}

#[cfg(not(unix))]
fn same(opened_at: &Path, _opened: Option<FileId>, path: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(path).is_some() && real(path) == real(opened_at)
}

/// The properties that a file records about itself, to detect a copy: its inode number and its birth time in
/// microseconds. Device numbers are excluded because they change when a machine restarts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Birth {
    pub(crate) inode: Option<i64>,
    pub(crate) born_at: Option<i64>,
}

impl Birth {
    pub(crate) fn of(path: &Path) -> Self {
        let inode = mark(path).ok().and_then(inode);
        let born_at = std::fs::metadata(path).and_then(|found| found.created()).ok();
        let born_at = born_at.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        Self { inode, born_at: born_at.and_then(|at| i64::try_from(at.as_micros()).ok()) }
    }
}

#[cfg(unix)]
fn inode((_, inode): FileId) -> Option<i64> {
    Some(inode.cast_signed())
}

#[cfg(not(unix))]
fn inode((): FileId) -> Option<i64> {
    None
}

/// The identity of a file: its device and its inode number.
#[cfg(unix)]
type FileId = (u64, u64);

#[cfg(unix)]
fn mark(path: &Path) -> std::io::Result<FileId> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).map(|found| (found.dev(), found.ino()))
}

/// On other systems only the existence of a file is known.
#[cfg(not(unix))]
type FileId = ();

#[cfg(not(unix))]
fn mark(path: &Path) -> std::io::Result<FileId> {
    std::fs::metadata(path).map(|_| ())
}
