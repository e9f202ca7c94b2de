//! Facts about the machine, without which numbers mean nothing.

use std::path::Path;

use serde::Serialize;

use crate::target;

/// The machine that was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// Cores that this process may use.
    pub(crate) cores: usize,
    /// Operating system.
    pub(crate) os: &'static str,
    /// Processor family.
    pub(crate) arch: &'static str,
    /// The file system under the measured files.
    pub(crate) file_system: String,
    /// SQLite, as linked into this program.
    pub(crate) sqlite_version: &'static str,
    /// Tidelock.
    pub(crate) tidelock_version: &'static str,
    /// Whether this program was built without optimisation, so that its numbers say little.
    pub(crate) debug_build: bool,
}

impl Machine {
    /// Looks around.
    pub(crate) fn here(directory: &Path) -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
            file_system: target::file_system(directory),
            sqlite_version: rusqlite::version(),
            tidelock_version: env!("CARGO_PKG_VERSION"),
            debug_build: cfg!(debug_assertions),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cores, os, arch, file_system, sqlite_version, .. } = self;
        write!(f, "{cores} cores · {os} {arch} · {file_system} · SQLite {sqlite_version}")
    }
}

/// The command line that this run can be repeated with.
pub(crate) fn command_line() -> String {
    let given = std::env::args().skip(1);
    std::iter::once("tidelock".to_owned()).chain(given).collect::<Vec<_>>().join(" ")
}
