//! A private PostgreSQL server that a test or a benchmark finds, starts, kills, restarts and removes.
//!
//! Each [`Server`] has a private data directory, listens on 127.0.0.1 only, and requires a password that no other program has. Nothing that
//! is already installed or running on the machine is touched. PostgreSQL does not run as root: when the caller is root, the server and its
//! client programs run as `postgres`, or else as `nobody`.
//!
//! ```no_run
//! use tidelock_pgserver::{PgServerOptions, Server};
//!
//! # fn main() -> Result<(), tidelock_pgserver::Error> {
//! let server = Server::start(&PgServerOptions { durable: false, ..PgServerOptions::default() })?;
//! println!("PostgreSQL {} answers at {}", server.version(), server.url());
//!
//! // What was committed before a crash is there after it.
//! server.kill()?;
//! server.run()?;
//!
//! // A copy that follows this server until it takes over.
//! let standby = server.standby()?;
//! server.kill()?;
//! standby.promote()?;
//! # Ok(())
//! # }
//! ```
//!
//! # How a server ends
//!
//! - Dropping a [`Server`] ends it and removes its directory.
//! - If the process dies in any other way, by SIGKILL for example, a small shell that waits for the end of a pipe does
//!   the same. It is started before the server and ends with it.
//! - If that shell is also killed, no process is left to clean up, and the server keeps running.
//!
//! # Where the programs come from
//!
//! [`PgServerOptions::programs`] names their directory. Without it, [`find`] checks the variable `TIDELOCK_POSTGRES_BIN`, then `PATH`, then the
//! directories used by the packages of Debian, Ubuntu, Fedora and Homebrew. If they are missing, the caller is root, and `apt-get` exists,
//! [`Server::start`] installs the package `postgresql`, without its cluster. Setting [`PgServerOptions::install`] to `false` prevents that.
//!
//! A package that brings its own `libpq` beside its programs is run with that library: `libpqwalreceiver` of another
//! version than `libpq` leaves a standby that never streams.
//!
//! Unix only: elsewhere the crate is empty.

#![cfg(unix)]

mod binaries;
mod cluster;
mod data_directory;
mod discovery;
mod error;
mod install;
mod os_user;
mod port;
mod postmaster;
mod processes;
mod random;
mod server;
mod settings;
mod watchdog;

use std::path::PathBuf;

pub use binaries::library_path;
pub use discovery::{BIN_VARIABLE, find};
pub use error::Error;
pub use os_user::Account;
pub use server::Server;

/// The options of a server.
#[derive(Clone, Debug)]
pub struct PgServerOptions {
    /// Whether a commit is on the device when it is acknowledged. Without it a commit still survives the death of every
    /// process of the server, but not of the machine. Default: yes.
    pub durable: bool,
    /// Whether PostgreSQL is installed when it is missing and that needs no confirmation. Default: yes.
    pub install: bool,
    /// The maximum number of concurrent clients. Default: 300.
    pub max_connections: u32,
    /// Further settings, such as `("log_statement", "all")`. A setting named here overrides the one of this crate.
    pub settings: Vec<(String, String)>,
    /// The parent of the server's directory. Default: the system's directory for temporary files.
    pub directory: Option<PathBuf>,
    /// The directory of PostgreSQL's programs. The account that runs the server must be able to read it. Default: [`find`].
    pub programs: Option<PathBuf>,
}

impl Default for PgServerOptions {
    fn default() -> Self {
        Self {
            durable: true,
            install: true,
            max_connections: 300,
            settings: Vec::new(),
            directory: None,
            programs: None,
        }
    }
}
