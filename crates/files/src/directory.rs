//! The directory layout, and the only way a file is replaced.
//!
//! A file is written beside its final name, flushed, renamed, and the directory is flushed. A process that dies in
//! between leaves the old file whole, and a `.new` that the next write overwrites. Only a holder of the exclusive lock
//! writes.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidelock_core::store::StoreError;

use crate::error;

pub(crate) const NEW: &str = ".new";

/// A folder of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Folder {
    /// Files of the store as a whole.
    Root,
    /// One file for each document, alive or deleted.
    Documents,
    /// One file for each batch that was applied under an id.
    Operations,
}

/// The intended content of a file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) folder: Folder,
    pub(crate) name: String,
    /// `None` removes the file.
    pub(crate) content: Option<String>,
}

/// The root directory of a store.
#[derive(Clone, Debug)]
pub(crate) struct DirectoryLayout {
    root: PathBuf,
}

impl DirectoryLayout {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn folder(&self, folder: Folder) -> PathBuf {
        match folder {
            Folder::Root => self.root.clone(),
            Folder::Documents => self.root.join("documents"),
            Folder::Operations => self.root.join("operations"),
        }
    }

    pub(crate) fn path(&self, folder: Folder, name: &str) -> PathBuf {
        self.folder(folder).join(name)
    }

    /// Returns the text of a file. `None` when there is none.
    pub(crate) fn read(&self, folder: Folder, name: &str) -> Result<Option<String>, StoreError> {
        let path = self.path(folder, name);
        match fs::read(&path) {
            Ok(bytes) => match String::from_utf8(bytes) {
                Ok(text) => Ok(Some(text)),
                Err(e) => Err(error::corrupt(&path, format!("it is no text: {e}"))),
            },
            // The folder itself is never missing: a missing folder means a removed store, not an absent document.
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.folder(folder).is_dir() => Ok(None),
            Err(e) => Err(error::map("reading", &path, &e)),
        }
    }

    /// Returns the names of the files in a folder, without hidden files and files that do not belong to the store.
    pub(crate) fn names(&self, folder: Folder) -> Result<Vec<String>, StoreError> {
        let path = self.folder(folder);
        let failed = |e: io::Error| error::map("listing", &path, &e);
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(failed)? {
            // A name that is not text does not belong to the store: its names are ASCII.
            let Ok(name) = entry.map_err(failed)?.file_name().into_string() else { continue };
            if !name.starts_with('.') && name.ends_with(crate::file_names::EXTENSION) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Writes a file beside its final name, flushed.
    pub(crate) fn prepare(&self, folder: Folder, content: &str) -> Result<PathBuf, StoreError> {
        let path = self.path(folder, NEW);
        let write = || {
            remove(&path)?;
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(content.as_bytes())?;
            file.sync_all()
        };
        write().map_err(|e| error::map("writing", &path, &e))?;
        Ok(path)
    }

    /// Puts one change in place. The change is visible afterwards, and durable after [`sync`](Self::sync).
    pub(crate) fn put(&self, change: &Change) -> Result<(), StoreError> {
        let path = self.path(change.folder, &change.name);
        let Some(content) = &change.content else {
            return remove(&path).map_err(|e| error::map("removing", &path, &e));
        };
        let new = self.prepare(change.folder, content)?;
        fs::rename(&new, &path).map_err(|e| error::map("writing", &path, &e))
    }

    /// Makes the names in a folder durable.
    pub(crate) fn sync(&self, folder: Folder) -> Result<(), StoreError> {
        let path = self.folder(folder);
        sync_directory(&path).map_err(|e| error::map("flushing", &path, &e))
    }
}

/// Removes a file if it exists.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Creates a directory that only its user can access, unless it exists.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

/// Flushes a directory, that is, the names in it.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
