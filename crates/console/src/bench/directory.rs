//! The temporary directory of a measurement.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::{filesystem, output};

/// A directory that is removed with its content when the measurement ends.
#[derive(Debug)]
pub struct WorkDirectory(TempDir);

impl WorkDirectory {
    /// Creates a directory below `parent`.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn below(parent: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("tidelock-bench-")
            .tempdir_in(parent)
            .with_context(|| format!("cannot create a directory below {}", parent.display()))?;
        Ok(Self(directory))
    }

    /// Returns the directory's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the path of a file in the directory.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Warns when the directory is in memory, where flushes cost nothing. `advice` is the next step.
    pub fn warn_if_in_memory(&self, advice: &str) {
        let kind = filesystem::file_system(self.path());
        if filesystem::is_memory(&kind) {
            let shown = output::escaped(&self.path().display().to_string());
            eprintln!("warning: {shown} is on {kind}, where flushes are free; {advice}");
        }
    }
}
