//! The files of a measurement on SQLite.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tidelock_console::bench::directory::WorkDirectory;
use tidelock_console::filesystem;
use tidelock_console::usage::UsageError;

/// A temporary directory, and the store's file in it or at the path of `--path`.
#[derive(Debug)]
pub(crate) struct WorkFiles {
    directory: WorkDirectory,
    store: PathBuf,
}

impl WorkFiles {
    /// Creates a directory below `path`, or below the temporary directory. A `path` that does not exist becomes the store's
    /// file and is kept. Warns when the file system is in memory.
    pub(crate) fn create(path: Option<&Path>) -> Result<Self> {
        let (parent, file) = match path {
            None => (std::env::temp_dir(), None),
            Some(path) if path.is_dir() => (path.to_owned(), None),
            Some(path) if path.exists() => {
                let shown = path.display();
                let reason =
                    format!("cannot measure on {shown}: the file exists; pass a directory or a new file");
                return Err(UsageError(reason).into());
            }
            Some(path) => (filesystem::directory_of(path).to_owned(), Some(path.to_owned())),
        };
        let directory = WorkDirectory::below(&parent)?;
        directory.warn_if_in_memory("pass a directory on a disk with --path");
        let store = file.unwrap_or_else(|| directory.file("store.db"));
        Ok(Self { directory, store })
    }

    /// The directory.
    pub(crate) fn directory(&self) -> &WorkDirectory {
        &self.directory
    }

    /// The file of the store on which commits are measured.
    pub(crate) fn store(&self) -> &Path {
        &self.store
    }
}
