//! One run of the server, from the start of its first process to the end of its last.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::binaries::Programs;
use crate::data_directory::Home;
use crate::error::Error;
use crate::{processes, watchdog};

/// The time limit of a start, including crash recovery.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The poll interval while a server starts or ends.
const POLL: Duration = Duration::from_millis(10);

/// The parent of all processes of a running server.
#[derive(Debug)]
pub(crate) struct Postmaster {
    child: Child,
    id: i32,
    /// The length of the log before this run.
    log_start: u64,
}

impl Postmaster {
    /// Starts the process and does not wait for it.
    pub(crate) fn spawn(
        home: &Home,
        programs: &Programs,
        settings: &[(String, String)],
    ) -> Result<Self, Error> {
        let log = home.open_log()?;
        let failed = || format!("using the log {}", home.log.display());
        let log_start = log.metadata().map_err(Error::io(failed()))?.len();
        let also = log.try_clone().map_err(Error::io(failed()))?;
        let mut command = watchdog::noted(home.path(), &programs.path("postgres"));
        command.arg("-D").arg(&home.data).stdin(Stdio::null()).stdout(log).stderr(also);
        for (name, value) in settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        programs.prepare(&mut command, home.path());
        let child = command.spawn().map_err(Error::io("starting postgres"))?;
        let id = i32::try_from(child.id()).unwrap_or_default();
        Ok(Self { child, id, log_start })
    }

    /// Waits until the server accepts queries.
    pub(crate) fn wait_until_ready(&mut self, home: &Home) -> Result<(), Error> {
        self.wait_for(home, |status| status.trim_end() == "ready")
    }

    /// Waits until the server has its shared memory, which is long before it accepts queries.
    pub(crate) fn wait_until_starting(&mut self, home: &Home) -> Result<(), Error> {
        self.wait_for(home, |_| true)
    }

    /// Waits until this run, not an earlier one, reports a matching status.
    fn wait_for(&mut self, home: &Home, is_right: impl Fn(&str) -> bool) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            if status(&home.data, self.id).is_some_and(|status| is_right(&status)) {
                return Ok(());
            }
            let ended = self.child.try_wait().map_err(Error::io("waiting for postgres"))?;
            if let Some(status) = ended {
                return Err(Error::Start { status, log: home.log_since(self.log_start) });
            }
            if start.elapsed() > START_LIMIT {
                return Err(Error::NotReady { limit: START_LIMIT, log: home.log_since(self.log_start) });
            }
            std::thread::sleep(POLL);
        }
    }

    /// Suspends every process of the server.
    pub(crate) fn freeze(&self) {
        processes::halt_family(self.id);
    }

    /// Resumes every process of the server.
    pub(crate) fn thaw(&self) {
        processes::resume_family(self.id);
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_none())
    }

    /// Shuts down: SIGINT saves everything first, SIGQUIT exits at once. If the server does not end in time, the caller
    /// must still call [`Self::kill`].
    pub(crate) fn shut_down(&mut self, home: &Home, how: Signal, limit: Duration) -> Result<(), Error> {
        // An ended process has released its id, and another process may have it.
        if self.is_running() {
            processes::signal(self.id, how);
        }
        let start = Instant::now();
        while self.is_running() {
            if start.elapsed() > limit {
                let log = home.log_since(self.log_start);
                return Err(Error::StillRunning { limit, processes: vec![self.id], log });
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Kills every process of the server, and returns when all of them have exited.
    pub(crate) fn kill(&mut self, home: &Home) -> Result<(), Error> {
        if !self.is_running() {
            return Ok(());
        }
        let family = processes::kill_family(self.id);
        let left = processes::wait_until_gone(&family);
        if left.is_empty() {
            self.child.wait().map_err(Error::io("waiting for postgres"))?;
            return Ok(());
        }
        Err(Error::StillRunning {
            limit: processes::LIMIT,
            processes: left,
            log: home.log_since(self.log_start),
        })
    }
}

/// Returns the status in the server's lock file: the last line, if the first one names this process.
fn status(data: &Path, id: i32) -> Option<String> {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let mut lines = text.lines();
    let holder: i32 = lines.next()?.trim().parse().ok()?;
    let status = lines.nth(6)?;
    (holder == id).then(|| status.to_owned())
}

#[cfg(test)]
mod tests {
    use super::status;

    #[test]
    fn the_status_of_an_earlier_run_does_not_count() {
        let data = tempfile::tempdir().unwrap();
        let says = |text: &str| {
            std::fs::write(data.path().join("postmaster.pid"), text).unwrap();
            status(data.path(), 17)
        };
        let lines = "/data\n1700000000\n15000\n\n127.0.0.1\n  1048577  32769\n";
        assert_eq!(says(&format!("17\n{lines}ready   \n")).as_deref(), Some("ready   "));
        assert_eq!(says(&format!("16\n{lines}ready   \n")), None);
        assert_eq!(says(&format!("17\n{lines}")), None);
        assert_eq!(says(""), None);
    }
}
