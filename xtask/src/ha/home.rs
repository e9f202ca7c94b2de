//! Working directory of a cluster, and the shell that cleans up after it.
//!
//! Every process of the cluster has a working directory below this one. The shell finds the processes by it, regardless of
//! their parent and even if they are stopped. The shell waits for the end of a pipe, so it cleans up after a normal exit, a
//! panic, Ctrl-C and SIGKILL of this program.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal};
use tidelock_pgserver::Account;

/// The clean-up script. `$1` is the directory. It kills the processes that work below it, repeatedly until none is left,
/// because a parent may fork during the search.
const CLEAN_UP: &str = r#"
read -r word
n=0
while [ $n -lt 100 ]; do
    found=
    for process in /proc/[0-9]*; do
        case "$(readlink "$process/cwd")" in
            "$1"|"$1"/*|"$1 "*) kill -KILL "${process#/proc/}" && found=yes ;;
        esac
    done
    [ -z "$found" ] && break
    n=$((n + 1))
done
rm -rf "$1"
"#;

/// A directory whose processes and files end with this value, or with this program.
pub(crate) struct Home {
    path: PathBuf,
    account: Account,
    shell: Child,
}

impl Home {
    /// Creates the directory, which only the account of the servers can enter.
    pub(crate) fn make() -> Result<Self> {
        let account = Account::choose()?;
        let path = tempfile::Builder::new().prefix("tidelock-ha-").tempdir()?.keep();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", CLEAN_UP, "tidelock-ha-guard"]).arg(&path).current_dir("/").process_group(0);
        let shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let home = Self { path, account, shell: shell.context("cannot start /bin/sh")? };
        fs::set_permissions(&home.path, fs::Permissions::from_mode(0o700))?;
        home.account.own(&home.path)?;
        Ok(home)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a directory below this one.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        self.account.own(&path)?;
        Ok(path)
    }

    /// Writes a file that only the account of the servers can read. It may hold a password.
    pub(crate) fn write(&self, path: &Path, text: &str) -> Result<()> {
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        std::io::Write::write_all(&mut file, text.as_bytes())?;
        self.account.own(path)?;
        Ok(())
    }

    /// Starts a program in a directory, as the account of the servers, with its output in a log beside the directory.
    pub(crate) fn spawn(&self, command: &mut Command, directory: &Path) -> Result<Child> {
        let log = directory.with_extension("log");
        let log = fs::OpenOptions::new().create(true).append(true).open(log)?;
        command.current_dir(directory).env("HOME", directory).env("LC_ALL", "C").env("TZ", "UTC");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        self.account.apply(command);
        let program = command.get_program().to_owned();
        command.spawn().with_context(|| format!("cannot start {}", program.display()))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // `wait` closes the pipe first, which makes the shell start.
        drop(self.shell.wait());
    }
}

/// Returns the processes that work in exactly this directory.
pub(crate) fn processes(directory: &Path) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(Result::ok).filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        (fs::read_link(entry.path().join("cwd")).ok()? == directory && runs(&entry.path())).then_some(pid)
    });
    pids.collect()
}

/// Returns whether a process is running. A zombie holds no resources and does not count.
fn runs(process: &Path) -> bool {
    let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Sends a signal to every process of a directory. It searches twice, because a parent may fork during the search. SIGKILL is
/// repeated until no process is left, at most 500 times.
pub(crate) fn signal(directory: &Path, signal: Signal) {
    for _ in 0..if signal == Signal::KILL { 500 } else { 2 } {
        let found = processes(directory);
        if found.is_empty() {
            return;
        }
        for pid in found {
            // A process that has ended since the search needs no signal.
            let _ = rustix::process::kill_process(pid, signal);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::{Home, processes};

    #[test]
    fn processes_and_files_end_with_the_home() {
        let home = Home::make().unwrap();
        let directory = home.directory("node").unwrap();
        let mut child = home.spawn(Command::new("/bin/sleep").arg("600"), &directory).unwrap();
        let begun = Instant::now();
        while processes(&directory).is_empty() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(processes(&directory).len(), 1);
        let path = home.path().to_owned();
        drop(home);
        assert!(!path.exists() && !child.wait().unwrap().success());
    }
}
