//! A private PostgreSQL server that can be restarted in the same place and that ends when its value is dropped.
//!
//! If this process dies, the guard ends the server and removes its directory, at whatever point the process was.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::binaries::{self, Programs};
use crate::data_directory::Home;
use crate::error::Error;
use crate::install::find_or_install;
use crate::os_user::Account;
use crate::postmaster::Postmaster;
use crate::settings::settings;
use crate::watchdog::{self, Guard};
use crate::{PgServerOptions, cluster, port};

/// The name of the superuser and of the database.
pub(crate) const NAME: &str = "tidelock";
/// The number of ports tried at a first start.
const PORTS: usize = 5;
/// The time a new run waits for the resources of a killed one: its port, its memory.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time limit of an orderly shutdown, which writes all changed pages.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// The time limit of an immediate shutdown.
const QUIT_LIMIT: Duration = Duration::from_secs(10);

/// A server with a private data directory.
///
/// Dropping it ends the server at once and removes the directory. Its methods may be called from several threads; those that
/// start and end the server wait for each other.
pub struct Server {
    running: Mutex<Option<Postmaster>>,
    options: PgServerOptions,
    programs: Programs,
    version: String,
    password: String,
    port: u16,
    // Dropped in this order: the guard finds nothing to do when the directory is gone.
    home: Home,
    _guard: Guard,
}

impl Server {
    /// Finds PostgreSQL, creates a data directory, starts the server, and returns when it accepts queries.
    ///
    /// # Errors
    ///
    /// PostgreSQL is not installed and cannot be, the directory cannot be used, or the server does not start. The error
    /// has the last lines of its log.
    pub fn start(options: &PgServerOptions) -> Result<Self, Error> {
        let bin = match &options.programs {
            Some(bin) => bin.clone(),
            None => find_or_install(options.install)?,
        };
        let programs = Programs { bin, account: Account::choose()? };
        let password = cluster::password()?;
        let mut server = Self::prepare(options.clone(), programs, password)?;
        cluster::create(&server.programs, &server.home, &server.password, server.options.durable)?;
        server.begin()?;
        let create = format!("create database {NAME}");
        binaries::run(server.command("psql").args(["-X", "-q", "-d", "postgres", "-c", &create]))?;
        Ok(server)
    }

    /// Prepares a server without data that does not run yet.
    fn prepare(options: PgServerOptions, programs: Programs, password: String) -> Result<Self, Error> {
        let home = Home::make(options.directory.as_deref(), &programs.account)?;
        let guard = Guard::watch(home.path())?;
        let version = programs.version(home.path())?;
        let running = Mutex::new(None);
        Ok(Self { running, options, programs, version, password, port: 0, home, _guard: guard })
    }

    /// Starts the first run, on a free port.
    fn begin(&mut self) -> Result<(), Error> {
        let mut tries = 1;
        loop {
            self.port = port::free()?;
            match self.launch() {
                Err(Error::Start { log, .. }) if tries < PORTS && is_port_taken(&log) => tries += 1,
                outcome => {
                    *self.lock() = Some(outcome?);
                    return Ok(());
                }
            }
        }
    }

    /// Starts a run and waits until it accepts queries. A run that fails to do so is ended.
    fn launch(&self) -> Result<Postmaster, Error> {
        let mut postmaster = self.spawn()?;
        match postmaster.wait_until_ready(&self.home) {
            Ok(()) => Ok(postmaster),
            Err(error) => {
                postmaster.kill(&self.home)?;
                watchdog::forget(self.home.path());
                Err(error)
            }
        }
    }

    fn spawn(&self) -> Result<Postmaster, Error> {
        let settings = settings(&self.options, self.port, self.home.path());
        Postmaster::spawn(&self.home, &self.programs, &settings)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Postmaster>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the address of the database `tidelock`, with the password: `postgres://tidelock:…@127.0.0.1:…/tidelock`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(NAME)
    }

    /// Returns the address of another database of this server, which need not exist.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        let database = escape(database);
        format!("postgres://{NAME}:{}@127.0.0.1:{}/{database}", self.password, self.port)
    }

    /// Returns the port, which stays the same over [`run`](Self::run).
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the version of PostgreSQL, such as `15.14`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the data directory. It belongs to the account that runs the server.
    #[must_use]
    pub fn data_directory(&self) -> &Path {
        &self.home.data
    }

    /// Returns the path of one of PostgreSQL's programs, such as `pg_dump`.
    #[must_use]
    pub fn bin(&self, program: &str) -> PathBuf {
        self.programs.path(program)
    }

    /// Returns a client program such as `psql`, `pg_dump` or `pg_basebackup`, with an environment that points to this server.
    ///
    /// It runs as the server's account and in the server's directory, so that it can write files there but not
    /// necessarily where the caller can.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.programs.command(program, self.home.path());
        command.env("PGHOST", "127.0.0.1").env("PGPORT", self.port.to_string());
        command.env("PGUSER", NAME).env("PGPASSWORD", &self.password);
        command
    }

    /// Kills all processes of the server with SIGKILL, and returns when they are gone. The data stays for
    /// [`run`](Self::run). A server that does not run is left alone.
    ///
    /// # Errors
    ///
    /// A process is still there after 10 s.
    pub fn kill(&self) -> Result<(), Error> {
        self.end(|postmaster| postmaster.kill(&self.home))
    }

    /// Suspends all processes of the server with SIGSTOP, like a paused machine. Connections stay open and the system accepts
    /// new ones, but none gets a response until [`thaw`](Self::thaw). A server that does not run is left alone.
    pub fn freeze(&self) {
        if let Some(postmaster) = self.lock().as_mut()
            && postmaster.is_running()
        {
            postmaster.freeze();
        }
    }

    /// Resumes a frozen server.
    pub fn thaw(&self) {
        if let Some(postmaster) = self.lock().as_mut()
            && postmaster.is_running()
        {
            postmaster.thaw();
        }
    }

    /// Shuts the server down: it disconnects clients and saves everything. Returns when the server has ended. The data stays
    /// for [`run`](Self::run). A server that does not run is left alone.
    ///
    /// # Errors
    ///
    /// The server still runs after 60 s.
    pub fn stop(&self) -> Result<(), Error> {
        self.end(|postmaster| postmaster.shut_down(&self.home, Signal::INT, STOP_LIMIT))
    }

    /// Ends the run, if there is one. If that fails, the run stays recorded.
    fn end(&self, how: impl FnOnce(&mut Postmaster) -> Result<(), Error>) -> Result<(), Error> {
        let mut running = self.lock();
        if let Some(postmaster) = running.as_mut() {
            how(postmaster)?;
        }
        *running = None;
        watchdog::forget(self.home.path());
        Ok(())
    }

    /// Restarts the server with the same data and on the same port. Returns when it accepts queries, after any crash
    /// recovery. A server that runs is left alone.
    ///
    /// # Errors
    ///
    /// The server does not start, or another program has taken its port.
    pub fn run(&self) -> Result<(), Error> {
        let mut running = self.lock();
        if running.as_mut().is_some_and(Postmaster::is_running) {
            return Ok(());
        }
        let start = Instant::now();
        loop {
            match self.launch() {
                Err(Error::Start { log, .. }) if is_passing(&log) && start.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                outcome => {
                    *running = Some(outcome?);
                    return Ok(());
                }
            }
        }
    }

    /// Returns whether the server runs. It does not after [`kill`](Self::kill), [`stop`](Self::stop), or an unexpected exit.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.lock().as_mut().is_some_and(Postmaster::is_running)
    }

    /// Starts a streaming replica of this server, and returns when the replica can be read. It has a separate directory and
    /// port, and the same options and password. Commits on this server do not wait for it.
    ///
    /// # Errors
    ///
    /// This server does not run, or the copy cannot be made or started.
    pub fn standby(&self) -> Result<Self, Error> {
        let mut standby = Self::prepare(self.options.clone(), self.programs.clone(), self.password.clone())?;
        let mut copy = self.command("pg_basebackup");
        copy.args(["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]);
        binaries::run(copy.arg("--pgdata").arg(&standby.home.data))?;
        standby.begin()?;
        Ok(standby)
    }

    /// Promotes a standby to an independent server, and returns when it accepts writes.
    ///
    /// # Errors
    ///
    /// The server does not run, or is not a standby.
    pub fn promote(&self) -> Result<(), Error> {
        let mut promote = self.programs.command("pg_ctl", self.home.path());
        promote.args(["promote", "--wait", "--timeout=60", "--pgdata"]).arg(&self.home.data);
        binaries::run(&mut promote)?;
        Ok(())
    }

    /// Releases the shared memory of a run that was killed. Only a new run on the same data knows its name.
    fn release_memory(&self) -> Result<(), Error> {
        if !self.home.data.join("postmaster.pid").exists() {
            return Ok(());
        }
        let mut postmaster = self.spawn()?;
        let started = postmaster.wait_until_starting(&self.home);
        let ended = postmaster.shut_down(&self.home, Signal::QUIT, QUIT_LIMIT);
        ended.or_else(|_| postmaster.kill(&self.home))?;
        started
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.thaw();
        // Errors cannot be reported here; the guard tries again.
        let quit = |postmaster: &mut Postmaster| postmaster.shut_down(&self.home, Signal::QUIT, QUIT_LIMIT);
        if self.end(quit).is_err() {
            let _ = self.kill();
        }
        let _ = self.release_memory();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Server");
        shown.field("version", &self.version).field("port", &self.port).field("data", &self.home.data);
        shown.finish_non_exhaustive()
    }
}

fn is_port_taken(log: &str) -> bool {
    log.contains("Address already in use") || log.contains("could not create any TCP/IP sockets")
}

/// Returns whether a start failed because an earlier run has not released its resources yet.
fn is_passing(log: &str) -> bool {
    let memory = log.contains("pre-existing shared memory block");
    memory || (log.contains("lock file") && log.contains("already exists")) || is_port_taken(log)
}

/// Escapes a name as part of an address.
fn escape(name: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let escaped = name
        .bytes()
        .map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use super::{Server, escape, is_passing, is_port_taken};

    #[test]
    fn a_server_can_be_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<Server>();
    }

    #[test]
    fn names_of_databases_are_escaped() {
        assert_eq!(escape("tck_17"), "tck_17");
        assert_eq!(escape("a b/ü"), "a%20b%2F%C3%BC");
    }

    #[test]
    fn transient_causes_are_distinguished_from_permanent_ones() {
        let memory = "FATAL:  pre-existing shared memory block (key 1, ID 2) is still in use";
        assert!(is_passing(memory) && !is_port_taken(memory));
        assert!(is_passing("FATAL:  lock file \"postmaster.pid\" already exists"));
        let port = "LOG:  could not bind IPv4 address \"127.0.0.1\": Address already in use";
        assert!(is_passing(port) && is_port_taken(port));
        assert!(!is_passing("FATAL:  could not map anonymous shared memory: Cannot allocate memory"));
    }
}
