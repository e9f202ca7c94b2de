//! Python virtual environments for tools from PyPI.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::{apt, run};

/// Creates a virtual environment with `python`, or with the `python3` on `PATH`. Installs missing Debian packages where that is
/// possible.
pub(crate) fn environment(path: &Path, python: Option<&Path>) -> Result<()> {
    let make = || {
        let found = python.map(Path::to_owned).or_else(|| run::on_path("python3"));
        let python = found.context("python3 is not on the PATH")?;
        run::capture(Command::new(python).args(["-m", "venv"]).arg(path))
    };
    match make() {
        Err(_) if apt::install(&["python3", "python3-venv"]) => make(),
        made => made,
    }
    .context("python3 makes no environment")?;
    Ok(())
}

/// Returns the pip command of an environment, without the check of its own version.
pub(crate) fn pip(environment: &Path, arguments: &[&str]) -> Command {
    let mut pip = Command::new(environment.join("bin").join("pip"));
    pip.args(arguments).args(["--quiet", "--disable-pip-version-check"]);
    pip
}
