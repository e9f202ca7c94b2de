//! Installing Debian's packages where that needs no question: as root, with `apt-get`.

use std::process::Command;

/// Whether the packages could be installed.
pub(crate) fn install(packages: &[&str]) -> bool {
    let root = output(Command::new("id").arg("-u")).is_some_and(|id| id.trim() == "0");
    if !root {
        return false;
    }
    println!("installing {}", packages.join(" "));
    // What it knows may be old, or nothing at all; whether that matters is seen by the next line.
    let _ = output(Command::new("apt-get").arg("update"));
    let mut install = Command::new("apt-get");
    install.args(["install", "--yes", "--no-install-recommends"]).args(packages);
    output(install.env("DEBIAN_FRONTEND", "noninteractive")).is_some()
}

/// What a command says, when it is there and ends well.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
