//! PostgreSQL's programs, run as the right account and isolated from the caller's settings.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, tail};
use crate::os_user::Account;

/// The directory of the programs, and the account that runs them.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) bin: PathBuf,
    pub(crate) account: Account,
}

impl Programs {
    pub(crate) fn path(&self, program: &str) -> PathBuf {
        self.bin.join(program)
    }

    /// Returns a command for one of the programs.
    pub(crate) fn command(&self, program: &str, directory: &Path) -> Command {
        let mut command = Command::new(self.path(program));
        self.prepare(&mut command, directory);
        command
    }

    /// Sets the account, the directory and an environment without the caller's `PG…` variables. The messages are in
    /// English, because this crate parses some of them.
    pub(crate) fn prepare(&self, command: &mut Command, directory: &Path) {
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("PG")) {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C").env("TZ", "UTC").current_dir(directory);
        if let Some(library) = library_path(&self.bin) {
            command.env("LD_LIBRARY_PATH", library);
        }
        self.account.apply(command);
    }

    /// Returns the version of the server, such as `15.14`.
    pub(crate) fn version(&self, directory: &Path) -> Result<String, Error> {
        let said = run(self.command("postgres", directory).arg("--version"))?;
        Ok(parse_version(&said).to_owned())
    }
}

/// Returns the directory to put into `LD_LIBRARY_PATH` for the programs in `bin`: `../lib` of a package that brings its own
/// `libpq`. Packages of a distribution have theirs where the linker looks, and get `None`.
#[must_use]
pub fn library_path(bin: &Path) -> Option<PathBuf> {
    let library = bin.parent()?.join("lib");
    ["libpq.so.5", "libpq.5.dylib"].iter().any(|name| library.join(name).exists()).then_some(library)
}

/// Parses `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)`.
fn parse_version(said: &str) -> &str {
    let known = said.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    known.unwrap_or("of an unknown version")
}

/// Runs a command to completion and returns its standard output.
pub(crate) fn run(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(Error::io(format!("starting {program}")))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let said = format!("{stdout}{}", String::from_utf8_lossy(&output.stderr));
    Err(Error::Program { program, status: output.status, output: tail(&said) })
}

#[cfg(test)]
mod tests {
    use super::{library_path, parse_version};

    #[test]
    fn a_package_with_its_own_library_is_run_with_it() {
        let base = tempfile::tempdir().unwrap();
        let (bin, library) = (base.path().join("bin"), base.path().join("lib"));
        std::fs::create_dir_all(&library).unwrap();
        assert_eq!(library_path(&bin), None);
        std::fs::write(library.join("libpq.so.5"), "").unwrap();
        assert_eq!(library_path(&bin), Some(library));
    }

    #[test]
    fn versions_of_packages_and_of_betas_are_read() {
        assert_eq!(parse_version("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n"), "15.14");
        assert_eq!(parse_version("postgres (PostgreSQL) 18beta1\n"), "18beta1");
        assert_eq!(parse_version(""), "of an unknown version");
    }
}
