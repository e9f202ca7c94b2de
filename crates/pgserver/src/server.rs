//! The public type: a server that can be started again in the same place, and that ends with its value.
//!
//! If this process dies, the guard ends the server and removes its directory, whatever was going on here.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::account::Account;
use crate::error::Error;
use crate::guard::{self, Guard};
use crate::home::Home;
use crate::install::find_or_install;
use crate::postmaster::Postmaster;
use crate::programs::{self, Programs};
use crate::settings::settings;
use crate::{Options, cluster, port};

/// The name of the superuser and of the database.
pub(crate) const NAME: &str = "tidelock";
/// How many ports are tried at a first start.
const PORTS: usize = 5;
/// How long a new run waits for what a killed one has left behind: its port, its memory.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an orderly shutdown may take. It writes all changed pages.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// How long an immediate shutdown may take.
const QUIT_LIMIT: Duration = Duration::from_secs(10);

/// One server with a data directory of its own.
///
/// Dropping it ends the server at once and removes the directory. Its methods may be called from several threads; those
/// that start and end the server wait for each other.
pub struct Server {
    running: Mutex<Option<Postmaster>>,
    options: Options,
    programs: Programs,
    version: String,
    password: String,
    port: u16,
    // Dropped in this order: the guard finds nothing to do when the directory is gone.
    home: Home,
    _guard: Guard,
}

impl Server {
    /// Finds PostgreSQL, makes a data directory, starts the server, and returns when it takes queries.
    ///
    /// # Errors
    ///
    /// PostgreSQL is not installed and cannot be, the directory cannot be used, or the server does not start. The error
    /// has the last lines of its log.
    pub fn start(options: &Options) -> Result<Self, Error> {
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
        programs::run(server.command("psql").args(["-X", "-q", "-d", "postgres", "-c", &create]))?;
        Ok(server)
    }

    /// A server without data that does not run yet.
    fn prepare(options: Options, programs: Programs, password: String) -> Result<Self, Error> {
        let home = Home::make(options.directory.as_deref(), &programs.account)?;
        let guard = Guard::watch(home.path())?;
        let version = programs.version(home.path())?;
        let running = Mutex::new(None);
        Ok(Self { running, options, programs, version, password, port: 0, home, _guard: guard })
    }

    /// The first run, on a port that is free.
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

    /// Starts a run and waits until it takes queries. A run that does not get there is ended.
    fn launch(&self) -> Result<Postmaster, Error> {
        let mut postmaster = self.spawn()?;
        match postmaster.wait_until_ready(&self.home) {
            Ok(()) => Ok(postmaster),
            Err(error) => {
                postmaster.kill(&self.home)?;
                guard::forget(self.home.path());
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

    /// The address of the database `tidelock`, with the password: `postgres://tidelock:…@127.0.0.1:…/tidelock`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(NAME)
    }

    /// The address of another database of this server, which need not exist.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        let database = escape(database);
        format!("postgres://{NAME}:{}@127.0.0.1:{}/{database}", self.password, self.port)
    }

    /// The port, which stays the same over [`run`](Self::run).
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The version of PostgreSQL, such as `15.14`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Where the data is. It belongs to the account that runs the server.
    #[must_use]
    pub fn data_directory(&self) -> &Path {
        &self.home.data
    }

    /// The path of one of PostgreSQL's programs, such as `pg_dump`.
    #[must_use]
    pub fn bin(&self, program: &str) -> PathBuf {
        self.programs.path(program)
    }

    /// A client program such as `psql`, `pg_dump` or `pg_basebackup`, told by its environment how to reach this server.
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

    /// Halts all processes of the server with SIGSTOP, as a paused machine does: connections stay open, new ones are accepted
    /// by the system, and none gets an answer until [`thaw`](Self::thaw). A server that does not run is left alone.
    pub fn freeze(&self) {
        if let Some(postmaster) = self.lock().as_mut()
            && postmaster.is_running()
        {
            postmaster.freeze();
        }
    }

    /// Lets a frozen server continue.
    pub fn thaw(&self) {
        if let Some(postmaster) = self.lock().as_mut()
            && postmaster.is_running()
        {
            postmaster.thaw();
        }
    }

    /// Shuts the server down: clients are disconnected, everything is saved. It returns when the server has ended. The
    /// data stays for [`run`](Self::run). A server that does not run is left alone.
    ///
    /// # Errors
    ///
    /// The server still runs after 60 s.
    pub fn stop(&self) -> Result<(), Error> {
        self.end(|postmaster| postmaster.shut_down(&self.home, Signal::INT, STOP_LIMIT))
    }

    /// Ends the run, if there is one. If that fails, it is still there.
    fn end(&self, how: impl FnOnce(&mut Postmaster) -> Result<(), Error>) -> Result<(), Error> {
        let mut running = self.lock();
        if let Some(postmaster) = running.as_mut() {
            how(postmaster)?;
        }
        *running = None;
        guard::forget(self.home.path());
        Ok(())
    }

    /// Starts the server again with the same data and on the same port, and returns when it takes queries, with the
    /// recovery after a crash behind it. A server that runs is left alone.
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

    /// Whether the server runs: not after [`kill`](Self::kill) and [`stop`](Self::stop), nor when it ended by itself.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.lock().as_mut().is_some_and(Postmaster::is_running)
    }

    /// Starts a copy of this server that follows it, and returns when the copy can be read. It has a directory and a
    /// port of its own, and the same options and password. Commits here do not wait for it.
    ///
    /// # Errors
    ///
    /// This server does not run, or the copy cannot be made or started.
    pub fn standby(&self) -> Result<Self, Error> {
        let mut standby = Self::prepare(self.options.clone(), self.programs.clone(), self.password.clone())?;
        let mut copy = self.command("pg_basebackup");
        copy.args(["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]);
        programs::run(copy.arg("--pgdata").arg(&standby.home.data))?;
        standby.begin()?;
        Ok(standby)
    }

    /// Makes a standby a server of its own, and returns when it takes writes.
    ///
    /// # Errors
    ///
    /// The server does not run, or is not a standby.
    pub fn promote(&self) -> Result<(), Error> {
        let mut promote = self.programs.command("pg_ctl", self.home.path());
        promote.args(["promote", "--wait", "--timeout=60", "--pgdata"]).arg(&self.home.data);
        programs::run(&mut promote)?;
        Ok(())
    }

    /// Gives back the shared memory of a run that was killed: only a new run on the same data knows its name.
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
        // What fails here has nobody to be told to; the guard tries again.
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

/// Whether a start failed because of what an earlier run has not given back yet.
fn is_passing(log: &str) -> bool {
    let memory = log.contains("pre-existing shared memory block");
    memory || (log.contains("lock file") && log.contains("already exists")) || is_port_taken(log)
}

/// A name as part of an address.
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
    fn passing_causes_are_told_from_lasting_ones() {
        let memory = "FATAL:  pre-existing shared memory block (key 1, ID 2) is still in use";
        assert!(is_passing(memory) && !is_port_taken(memory));
        assert!(is_passing("FATAL:  lock file \"postmaster.pid\" already exists"));
        let port = "LOG:  could not bind IPv4 address \"127.0.0.1\": Address already in use";
        assert!(is_passing(port) && is_port_taken(port));
        assert!(!is_passing("FATAL:  could not map anonymous shared memory: Cannot allocate memory"));
    }
}
