//! PostgreSQL server for the tests: one that the caller provides, or a private one that ends with this program.
//!
//! Tests read its address from `DATABASE_URL`. The private server also ends if this program is killed.

#[cfg(unix)]
pub(crate) mod install;
pub(crate) mod versions;

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

const VARIABLE: &str = "DATABASE_URL";

/// When a private server flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    EveryCommit,
    Never,
}

/// A database for test programs. A private server ends when this value is dropped.
pub(crate) struct Database {
    url: String,
    /// The programs of the server, if the caller has named a version. Tests that start their own server use them.
    programs: Option<PathBuf>,
    #[cfg(unix)]
    _server: Option<tidelock_pgserver::Server>,
}

impl Database {
    /// Uses the server that `DATABASE_URL` names, or starts a private one, and prints the choice.
    pub(crate) fn ready() -> Result<Self> {
        match std::env::var(VARIABLE) {
            Ok(url) if !url.is_empty() => Ok(Self::named(url)),
            _ => Self::private(None, Flush::Never),
        }
    }

    /// Starts a private server of a major version, and ignores `DATABASE_URL`. Installs the version if it is missing.
    pub(crate) fn of_version(version: u32) -> Result<Self> {
        Self::private(Some(install::programs(version)?), Flush::Never)
    }

    fn named(url: String) -> Self {
        match place(&url) {
            Some(place) => println!("PostgreSQL of {VARIABLE}, at {place}"),
            None => println!("PostgreSQL of {VARIABLE}"),
        }
        Self {
            url,
            programs: None,
            #[cfg(unix)]
            _server: None,
        }
    }

    /// Starts another private server of the same version. It flushes commits, which a store requires unless its options say
    /// otherwise.
    pub(crate) fn that_flushes(&self) -> Result<Self> {
        Self::private(self.programs.clone(), Flush::EveryCommit)
    }

    #[cfg(unix)]
    fn private(programs: Option<PathBuf>, flush: Flush) -> Result<Self> {
        use tidelock_pgserver::{PgServerOptions, Server};
        if programs.is_none() && tidelock_pgserver::find().is_none() {
            println!(
                "PostgreSQL is not installed: trying to install it, which takes a minute and happens once"
            );
        }
        let options = PgServerOptions {
            durable: flush == Flush::EveryCommit,
            programs: programs.clone(),
            ..PgServerOptions::default()
        };
        let server = Server::start(&options)?;
        println!("PostgreSQL {}, private, port {}", server.version(), server.port());
        Ok(Self { url: server.url(), programs, _server: Some(server) })
    }

    #[cfg(not(unix))]
    fn private(_programs: Option<PathBuf>, _flush: Flush) -> Result<Self> {
        anyhow::bail!("on this system no private PostgreSQL can be started: set {VARIABLE} to one that runs")
    }

    /// Returns the URL of the database.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Passes the address of the database to a command, in its environment.
    pub(crate) fn offer<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        #[cfg(unix)]
        if let Some(programs) = &self.programs {
            command.env(tidelock_pgserver::BIN_VARIABLE, programs);
        }
        command.env(VARIABLE, &self.url)
    }
}

/// A stub for other systems, which have no private server of any version.
#[cfg(not(unix))]
pub(crate) mod install {
    pub(crate) const SUPPORTED: [u32; 5] = [14, 15, 16, 17, 18];

    pub(crate) fn programs(version: u32) -> anyhow::Result<std::path::PathBuf> {
        anyhow::bail!("on this system no private PostgreSQL {version} can be started")
    }
}

/// Returns the host, port and database of an address, without user and password. Returns `None` if they cannot be separated safely.
fn place(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    if !scheme.starts_with("postgres") || rest.contains("password") {
        return None;
    }
    let (_, place) = rest.rsplit_once('@').unwrap_or(("", rest));
    place.split('?').next()
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn a_password_is_never_shown() {
        assert_eq!(place("postgres://me:secret@db:5432/app?sslmode=require"), Some("db:5432/app"));
        assert_eq!(place("postgresql://me:s@cr?t@db/app"), Some("db/app"));
        assert_eq!(place("postgres://db/app"), Some("db/app"));
        assert_eq!(place("postgres://db/app?user=me&password=s@cret"), None);
        assert_eq!(place("host=db password=secret"), None);
    }
}
