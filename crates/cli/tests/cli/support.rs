//! Helpers that run the real binary and check its output and exit code.

use std::process::{Command, Output};

/// Runs `tidelock` with the given arguments and without the caller's settings.
pub(crate) fn tidelock(args: &[&str]) -> Output {
    tidelock_with(args, &[])
}

/// Runs `tidelock` with the given settings and without any others.
pub(crate) fn tidelock_with(args: &[&str], settings: &[(&str, &str)]) -> Output {
    command(args).envs(settings.iter().copied()).output().expect("the binary runs")
}

/// Prepares `tidelock` with the given arguments and without the caller's settings.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidelock"));
    let settings = ["DATABASE_URL", "NO_COLOR"].into_iter().map(Into::into);
    let ours = std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.to_string_lossy().starts_with("TIDELOCK_"));
    settings.chain(ours).for_each(|name: std::ffi::OsString| {
        command.env_remove(name);
    });
    command.args(args);
    command
}

/// Returns standard output.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Returns standard error.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}
