//! The machine and the server that a report was measured on.

use std::path::Path;

use serde::Serialize;

use crate::filesystem;
use crate::server_url::without_password;

/// The measured machine.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The number of cores that this process may use.
    pub cores: usize,
    /// The operating system.
    pub os: &'static str,
    /// The processor architecture.
    pub arch: &'static str,
    /// The file system of the measured files.
    pub file_system: String,
    /// The version of the linked SQLite.
    pub sqlite_version: &'static str,
    /// The version of Tidelock.
    pub tidelock_version: &'static str,
    /// Whether this program was built without optimisation.
    pub debug_build: bool,
    /// The measured server, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
}

/// The version and the settings of a PostgreSQL server.
#[derive(Clone, Debug, Serialize)]
pub struct Server {
    /// The version.
    pub version: String,
    /// Whether this run started the server.
    pub private: bool,
    /// The setting `fsync`.
    pub fsync: String,
    /// The setting `synchronous_commit`.
    pub synchronous_commit: String,
    /// The setting `full_page_writes`.
    pub full_page_writes: String,
    /// The setting `shared_buffers`.
    pub shared_buffers: String,
    /// The setting `max_connections`.
    pub max_connections: String,
}

impl Server {
    /// Returns whether a flushed commit survives a power cut.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.fsync == "on" && self.full_page_writes == "on"
    }
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { version, fsync, synchronous_commit, .. } = self;
        let whose = if self.private { "private" } else { "given by URL" };
        write!(f, "PostgreSQL {version}, {whose}, fsync {fsync}, synchronous_commit {synchronous_commit}")
    }
}

impl Machine {
    /// Describes this machine and the file system of `directory`.
    #[must_use]
    pub fn here(directory: &Path) -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
            file_system: filesystem::file_system(directory),
            sqlite_version: rusqlite::version(),
            tidelock_version: env!("CARGO_PKG_VERSION"),
            debug_build: cfg!(debug_assertions),
            server: None,
        }
    }

    /// Describes this machine and a server. `data` is the server's data directory if it is on this machine.
    #[must_use]
    pub fn with_server(server: Server, data: Option<&Path>) -> Self {
        let unknown = || "unknown file system".to_owned();
        let file_system = data.map_or_else(unknown, filesystem::file_system);
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

/// Returns the command line of this process, without passwords and without the program's directory.
#[must_use]
pub fn command_line() -> String {
    let mut arguments = std::env::args();
    let program = arguments.next().unwrap_or_default();
    let program = Path::new(&program).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let given = arguments.map(|argument| without_password(&argument));
    program.into_iter().chain(given).collect::<Vec<_>>().join(" ")
}
