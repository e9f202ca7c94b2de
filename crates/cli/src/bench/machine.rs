//! Facts about the machine, without which numbers mean nothing.

use std::path::Path;

use serde::Serialize;

use crate::server_url::without_password;
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
    /// The server that was measured, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<Server>,
}

/// A PostgreSQL server, as it describes itself.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Server {
    /// Its version.
    pub(crate) version: String,
    /// Whether it was started for this run and ended with it.
    pub(crate) private: bool,
    /// Whether it flushes at all.
    pub(crate) fsync: String,
    /// Whether a commit waits for the flush.
    pub(crate) synchronous_commit: String,
    /// Whether a page that was cut short by a power cut can be repaired.
    pub(crate) full_page_writes: String,
    /// The memory for pages.
    pub(crate) shared_buffers: String,
    /// How many clients it takes.
    pub(crate) max_connections: String,
}

impl Server {
    /// Whether a commit that waits for its flush survives a power cut.
    pub(crate) fn is_durable(&self) -> bool {
        self.fsync == "on" && self.full_page_writes == "on"
    }
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { version, fsync, synchronous_commit, .. } = self;
        let whose = if self.private { "private" } else { "named by address" };
        write!(f, "PostgreSQL {version}, {whose}, fsync {fsync}, synchronous_commit {synchronous_commit}")
    }
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
            server: None,
        }
    }

    /// The same, with a server that was measured. Of a server elsewhere nobody knows the file system.
    pub(crate) fn with_server(server: Server, data: Option<&Path>) -> Self {
        let unknown = || "unknown file system".to_owned();
        let file_system = data.map_or_else(unknown, target::file_system);
        Self { file_system, server: Some(server), ..Self::here(Path::new(".")) }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cores, os, arch, file_system, sqlite_version, .. } = self;
        write!(f, "{cores} cores · {os} {arch} · {file_system} · ")?;
        match &self.server {
            Some(server) => server.fmt(f),
            None => write!(f, "SQLite {sqlite_version}"),
        }
    }
}

/// The command line that this run can be repeated with, but for a password.
pub(crate) fn command_line() -> String {
    let given = std::env::args().skip(1).map(|argument| without_password(&argument));
    std::iter::once("tidelock".to_owned()).chain(given).collect::<Vec<_>>().join(" ")
}
