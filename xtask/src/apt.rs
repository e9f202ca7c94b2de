//! Installation of Debian packages where it needs no confirmation: as root, with `apt-get`.

use std::process::Command;

/// Installs packages, and returns whether that succeeded.
pub(crate) fn install(packages: &[&str]) -> bool {
    let root = output(Command::new("id").arg("-u")).is_some_and(|id| id.trim() == "0");
    if !root {
        return false;
    }
    println!("installing {}", packages.join(" "));
    // The package lists may be outdated or missing. A failed update matters only if the installation below fails.
    let _ = output(Command::new("apt-get").arg("update"));
    let mut install = Command::new("apt-get");
    install.args(["install", "--yes", "--no-install-recommends"]).args(packages);
    output(install.env("DEBIAN_FRONTEND", "noninteractive")).is_some()
}

/// Returns the standard output of a command, if it exists and succeeds.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
