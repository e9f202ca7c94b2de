//! Opening a directory: simple mistakes are checked first, then the marker, under the lock.
//!
//! A process that dies here leaves a directory with which the next one continues. Opening flushes the names that the dead
//! process may have left only in memory, so that no write depends on a name that a power cut removes.

use std::path::{Path, PathBuf};

use tidelock_core::clock::Timestamp;
use tidelock_core::store::{StoreError, StoreErrorKind};

use crate::directory::{self, DirectoryLayout, Folder};
use crate::lock::{self, Mode};
use crate::session::{MARKER, Marker, SCHEMA};
use crate::{FilesOptions, error, journal};

const WHAT: &str = "opening the directory";

/// Opens the directory, creates missing parts, and completes the batch of a dead process.
pub(crate) fn directory(path: &Path, options: &FilesOptions) -> Result<DirectoryLayout, StoreError> {
    check_path(path, options.create)?;
    if !path.exists() {
        create(path)?;
    }
    check_writable(path)?;
    let disk = DirectoryLayout::new(path.to_owned());
    if !disk.path(Folder::Root, MARKER).exists() {
        check_own(&disk)?;
        if !options.create {
            return Err(cannot(path, "it holds no store, and FilesOptions::create is off"));
        }
    }
    let held = lock::take(path, Mode::Exclusive, options.busy_timeout)?;
    let marker = match Marker::read(&disk)? {
        Some(marker) => {
            // The process that created the store may have died before it flushed what it had put in place.
            disk.sync(Folder::Root)?;
            marker
        }
        None => initialise(&disk, options.clock.now())?,
    };
    sync_parent(path)?;
    if marker.schema > SCHEMA {
        let detail = format!("its layout is version {}, and this program knows {SCHEMA}", marker.schema);
        return Err(StoreError::new(StoreErrorKind::SchemaTooNew, what(path), detail));
    }
    journal::recover(&disk)?;
    drop(held);
    Ok(disk)
}

fn check_path(path: &Path, create: bool) -> Result<(), StoreError> {
    if path.exists() {
        return if path.is_dir() { Ok(()) } else { Err(cannot(path, "it is a file, not a directory")) };
    }
    let parent = parent(path);
    if !parent.is_dir() {
        return Err(cannot(path, format!("the directory {} does not exist", parent.display())));
    }
    if !create {
        return Err(cannot(path, "it does not exist, and FilesOptions::create is off"));
    }
    check_writable(&parent).map_err(|e| StoreError::new(e.kind, what(path), e.detail))
}

fn create(path: &Path) -> Result<(), StoreError> {
    directory::create_directory(path).map_err(|e| error::map(WHAT, path, &e))
}

/// Makes the name of the directory durable. A store in a directory that this user may not list was created by another
/// user, who flushes the name.
fn sync_parent(path: &Path) -> Result<(), StoreError> {
    match directory::sync_directory(&parent(path)) {
        Err(e) if e.kind() != std::io::ErrorKind::PermissionDenied => Err(error::map(WHAT, path, &e)),
        _ => Ok(()),
    }
}

/// Rejects a directory that is marked as read-only. The superuser could write to it all the same.
pub(crate) fn check_writable(path: &Path) -> Result<(), StoreError> {
    let found = std::fs::metadata(path).map_err(|e| error::map(WHAT, path, &e))?;
    if found.permissions().readonly() {
        let detail = "the directory may not be written by this user";
        return Err(StoreError::new(StoreErrorKind::ReadOnly, what(path), detail));
    }
    Ok(())
}

/// Checks a directory without a marker: the store uses it only if it holds no foreign files.
fn check_own(disk: &DirectoryLayout) -> Result<(), StoreError> {
    let path = disk.root();
    let failed = |e: std::io::Error| error::map(WHAT, path, &e);
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let own = [lock::LOCK, lock::DOOR, directory::NEW, "documents", "operations", MARKER];
        if !own.iter().any(|own| name == *own) {
            let detail = format!("it has no {MARKER} and holds other things: {}", name.to_string_lossy());
            return Err(StoreError::new(StoreErrorKind::ForeignDatabase, what(path), detail));
        }
    }
    Ok(())
}

fn initialise(disk: &DirectoryLayout, now: Timestamp) -> Result<Marker, StoreError> {
    for folder in [Folder::Documents, Folder::Operations] {
        let path = disk.folder(folder);
        directory::create_directory(&path).map_err(|e| error::map(WHAT, &path, &e))?;
    }
    let marker =
        Marker { schema: SCHEMA, document_floor: 0, epoch: u64::try_from(now.as_micros()).unwrap_or(0) };
    journal::commit(disk, &[marker.change()])?;
    Ok(marker)
}

fn parent(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    parent.map_or_else(|| PathBuf::from("."), Path::to_owned)
}

fn what(path: &Path) -> String {
    format!("{WHAT} {}", path.display())
}

fn cannot(path: &Path, detail: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::CannotOpen, what(path), detail)
}
