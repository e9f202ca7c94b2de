//! Installation of PostgreSQL where it needs no confirmation: as root, with `apt-get`.
//!
//! The package would also create and start a cluster. A file that is removed afterwards disables that. If the
//! package creates a cluster regardless, it is never used.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::discovery::{BIN_VARIABLE, find};
use crate::error::{Error, tail};

/// Returns the directory of the programs. If they are missing and `install` is set, they are installed.
pub(crate) fn find_or_install(install: bool) -> Result<PathBuf, Error> {
    if let Some(found) = find() {
        return Ok(found);
    }
    let apt = Path::new("/usr/bin/apt-get");
    // A named directory is used or fails. Another version instead of it would go unnoticed.
    let named = std::env::var_os(BIN_VARIABLE).is_some_and(|named| !named.is_empty());
    if named || !install || !apt.is_file() || !rustix::process::geteuid().is_root() {
        return Err(Error::NotFound);
    }
    let wish = NoCluster::wish(Path::new("/etc/postgresql-common/createcluster.d"));
    // The package lists may be missing, as in a fresh container, or outdated.
    if apt_get(apt, INSTALL).is_err() {
        apt_get(apt, UPDATE)?;
        apt_get(apt, INSTALL)?;
    }
    drop(wish);
    find().ok_or(Error::NotFound)
}

const INSTALL: &[&str] = &["install", "-y", "--no-install-recommends", "postgresql"];
const UPDATE: &[&str] = &["update"];

fn apt_get(apt: &Path, arguments: &[&str]) -> Result<(), Error> {
    let mut command = Command::new(apt);
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    let output = command.output().map_err(Error::io(format!("starting {}", apt.display())))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(Error::Install {
        command: format!("{} {}", apt.display(), arguments.join(" ")),
        status: output.status,
        output: tail(&String::from_utf8_lossy(&said)),
    })
}

/// A guard that keeps Debian's package from creating a cluster while it lives.
struct NoCluster {
    file: PathBuf,
}

impl NoCluster {
    fn wish(directory: &Path) -> Self {
        let file = directory.join("tidelock.conf");
        // If the file cannot be written, the only cost is an unused cluster.
        let _ =
            fs::create_dir_all(directory).and_then(|()| fs::write(&file, "create_main_cluster = false\n"));
        Self { file }
    }
}

impl Drop for NoCluster {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{INSTALL, NoCluster, apt_get};
    use crate::Error;

    #[test]
    fn a_failed_installation_shows_command_and_output() {
        let failed = apt_get(Path::new("/bin/ls"), &["/there/is/no/such/file"]);
        let message = failed.unwrap_err().to_string();
        assert!(message.contains("/bin/ls /there/is/no/such/file"), "{message}");
        assert!(message.contains("No such file"), "{message}");
        assert!(apt_get(Path::new("/bin/echo"), INSTALL).is_ok());
        assert!(matches!(apt_get(Path::new("/no/apt-get"), INSTALL), Err(Error::Io { .. })));
    }

    #[test]
    fn the_wish_for_no_cluster_is_taken_back() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("createcluster.d");
        let wish = NoCluster::wish(&directory);
        let text = std::fs::read_to_string(directory.join("tidelock.conf")).unwrap();
        assert_eq!(text, "create_main_cluster = false\n");
        drop(wish);
        assert!(!directory.join("tidelock.conf").exists());
    }
}
