//! The lock of a directory: exclusive for writers, shared for readers, across processes.
//!
//! The lock is the system's (`flock`), so it ends with the process that held it, however that ended. A second file is
//! the door: a waiter for the lock holds it, so that a stream of readers cannot starve a writer. It is held only while
//! waiting, never while the lock holder works.

use std::fs::File;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use tidelock_core::store::{StoreError, StoreErrorKind};

use crate::error;

pub(crate) const LOCK: &str = ".lock";
pub(crate) const DOOR: &str = ".door";

const WHAT: &str = "locking";
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// The mode of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Together with other readers.
    Shared,
    /// Alone.
    Exclusive,
}

/// A guard that releases the lock when dropped.
#[derive(Debug)]
pub(crate) struct FileLockGuard {
    _file: File,
    pub(crate) mode: Mode,
}

/// Acquires the lock, and waits for other holders until `patience` is used up.
pub(crate) fn take(root: &Path, mode: Mode, patience: Duration) -> Result<FileLockGuard, StoreError> {
    let deadline = Instant::now().checked_add(patience);
    let door = open(&root.join(DOOR))?;
    wait(&door, &root.join(DOOR), FlockOperation::NonBlockingLockExclusive, deadline)?;
    let path = root.join(LOCK);
    let operation = match mode {
        Mode::Shared => FlockOperation::NonBlockingLockShared,
        Mode::Exclusive => FlockOperation::NonBlockingLockExclusive,
    };
    loop {
        let file = open(&path)?;
        wait(&file, &path, operation, deadline)?;
        // A lock on a file that was removed in the meantime excludes no other process.
        if is_still(&file, &path) {
            return Ok(FileLockGuard { _file: file, mode });
        }
    }
}

fn open(path: &Path) -> Result<File, StoreError> {
    let opened = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    opened.map_err(|e| error::map(WHAT, path, &e))
}

fn wait(
    file: &File,
    path: &Path,
    operation: FlockOperation,
    deadline: Option<Instant>,
) -> Result<(), StoreError> {
    let mut pause = FIRST_PAUSE;
    loop {
        match rustix::fs::flock(file, operation) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(error::map(WHAT, path, &e.into())),
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let what = format!("{WHAT} {}", path.display());
            return Err(StoreError::new(StoreErrorKind::Busy, what, "another process holds it"));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn is_still(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(held), Ok(there)) => held.ino() == there.ino() && held.dev() == there.dev(),
        _ => false,
    }
}
