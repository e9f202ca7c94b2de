//! Errors of a private server, with the recommended actions.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// An error of starting, stopping or using a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// PostgreSQL is not installed in any of the searched directories.
    #[error(
        "PostgreSQL's programs initdb, postgres, pg_ctl and psql were not found in PATH nor where packages put them. \
         Install them (Debian and Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server; \
         macOS: brew install postgresql), or set DATABASE_URL to a server that runs already"
    )]
    NotFound,
    /// PostgreSQL was missing, and the package manager did not install it.
    #[error(
        "PostgreSQL is not installed, and `{command}` failed ({status}). Install it by hand, or set DATABASE_URL to a \
         server that runs already. The last lines of the output were:\n{output}"
    )]
    Install {
        /// The command that failed.
        command: String,
        /// The exit status.
        status: ExitStatus,
        /// The last lines of its output.
        output: String,
    },
    /// The caller is root, and there is no other account to run the server as.
    #[error(
        "PostgreSQL does not run as root, and /etc/passwd has neither `postgres` nor `nobody`. Add one of them \
         (useradd --system postgres), or run this as another user"
    )]
    NoAccount,
    /// The account that runs the server cannot enter its directory.
    #[error(
        "the user {account} cannot enter {}, and PostgreSQL does not run as root. Choose a directory whose parents \
         every user may enter (chmod o+x, or another PgServerOptions::directory or TMPDIR)",
        directory.display()
    )]
    Unreachable {
        /// The directory.
        directory: PathBuf,
        /// The account.
        account: String,
    },
    /// A system call failed.
    #[error("{what} failed: {source}. Check permissions and free space there, then try again")]
    Io {
        /// The operation and its target.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A program of PostgreSQL failed.
    #[error("`{program}` failed ({status}). Remove the cause that it names and try again:\n{output}")]
    Program {
        /// The name of the program.
        program: String,
        /// The exit status.
        status: ExitStatus,
        /// The last lines of its output.
        output: String,
    },
    /// The server exited during its start.
    #[error("PostgreSQL ended while it was starting ({status}). The last lines of its log say why:\n{log}")]
    Start {
        /// The exit status.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// The server runs but does not accept queries.
    #[error(
        "PostgreSQL was not ready for queries after {} s. Give the machine less to do, or look for the cause in the \
         last lines of the server's log:\n{log}",
        limit.as_secs()
    )]
    NotReady {
        /// The time limit.
        limit: Duration,
        /// The last lines of its log.
        log: String,
    },
    /// Processes of the server did not exit in time.
    #[error(
        "PostgreSQL did not end within {} s. End these processes by hand: {processes:?}. The last lines of its \
         log:\n{log}",
        limit.as_secs()
    )]
    StillRunning {
        /// The time limit.
        limit: Duration,
        /// The ids of the processes.
        processes: Vec<i32>,
        /// The last lines of its log.
        log: String,
    },
}

impl Error {
    /// Returns an adapter for `map_err`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// The number of lines of a log or an output that are shown.
const SHOWN: usize = 30;

/// Returns the last lines of an output, without trailing blank lines.
pub(crate) fn tail(output: &str) -> String {
    let lines: Vec<&str> = output.trim_end().lines().collect();
    let skipped = lines.len().saturating_sub(SHOWN);
    lines.into_iter().skip(skipped).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Error, SHOWN, tail};

    #[test]
    fn the_end_of_a_long_output_is_shown() {
        let long: String = (0..100).map(|i| format!("line {i}\n")).collect();
        assert_eq!(tail(&long).lines().count(), SHOWN);
        assert!(tail(&long).ends_with("line 99"));
        assert_eq!(tail("one\n\n"), "one");
    }

    #[test]
    fn a_missing_installation_names_every_way_out() {
        let message = Error::NotFound.to_string();
        for way in ["apt-get install postgresql", "dnf install", "brew install", "DATABASE_URL"] {
            assert!(message.contains(way), "{way} is not in: {message}");
        }
    }
}
