//! PostgreSQL's programs, run as the right account and with nothing taken over from the caller's own settings.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::account::Account;
use crate::error::{Error, tail};

/// Where the programs are, and who runs them.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) bin: PathBuf,
    pub(crate) account: Account,
}

impl Programs {
    pub(crate) fn path(&self, program: &str) -> PathBuf {
        self.bin.join(program)
    }

    /// A command for one of the programs.
    pub(crate) fn command(&self, program: &str, directory: &Path) -> Command {
        let mut command = Command::new(self.path(program));
        self.prepare(&mut command, directory);
        command
    }

    /// Gives a command its account, its directory and an environment without the caller's `PG…` variables. The messages
    /// are in English, because this crate reads some of them.
    pub(crate) fn prepare(&self, command: &mut Command, directory: &Path) {
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("PG")) {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C").env("TZ", "UTC").current_dir(directory);
        self.account.apply(command);
    }

    /// The version of the server, such as `15.14`.
    pub(crate) fn version(&self, directory: &Path) -> Result<String, Error> {
        let said = run(self.command("postgres", directory).arg("--version"))?;
        Ok(parse_version(&said).to_owned())
    }
}

/// Reads `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)`.
fn parse_version(said: &str) -> &str {
    let known = said.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    known.unwrap_or("of an unknown version")
}

/// Runs a command to its end and returns what it wrote to its standard output.
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
    use super::parse_version;

    #[test]
    fn versions_of_packages_and_of_betas_are_read() {
        assert_eq!(parse_version("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n"), "15.14");
        assert_eq!(parse_version("postgres (PostgreSQL) 18beta1\n"), "18beta1");
        assert_eq!(parse_version(""), "of an unknown version");
    }
}
