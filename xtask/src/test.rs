//! `cargo xtask test`: every test, every example's build, every documentation example, and one line that sums them up.

mod summary;

use anyhow::{Result, bail};

use self::summary::Summary;
use crate::run;

/// Runs all tests. `cargo_args` are handed to `cargo test`; naming a package narrows it to that package.
pub(crate) fn run(cargo_args: &[String]) -> Result<()> {
    let mut summary = Summary::default();
    let mut passed = true;
    for scope in scopes(cargo_args) {
        let mut command = run::cargo(&["test", "--no-fail-fast"]);
        passed &= run::stream(command.args(*scope).args(cargo_args), |line| {
            println!("{line}");
            summary.read(line);
        })?;
    }
    if passed && is_whole(cargo_args) {
        count_cases(cargo_args, &mut summary)?;
    }
    println!();
    if let Some(cases) = summary.conformance() {
        println!("{cases}");
    }
    println!("{summary}");
    if !passed || summary.failed > 0 {
        bail!("some tests failed or did not build");
    }
    Ok(())
}

/// What the runs of `cargo test` cover: the whole workspace and then its documentation, or the packages that are named.
fn scopes(cargo_args: &[String]) -> &'static [&'static [&'static str]] {
    if names_package(cargo_args) {
        return &[&[]];
    }
    &[&["--workspace", "--all-targets"], &["--workspace", "--doc"]]
}

/// The test in which the conformance kit says how many cases it has.
const COUNTING_TEST: &str = "tidelock_tck_summary";

/// Asks the kit how many cases ran on each backend: test programs swallow what a passing test prints.
fn count_cases(cargo_args: &[String], summary: &mut Summary) -> Result<()> {
    let mut command = run::cargo(&["test", "--workspace", "--tests"]);
    let (stdout, stderr) = run::capture(command.args(cargo_args).args([COUNTING_TEST, "--", "--nocapture"]))?;
    stdout.lines().chain(stderr.lines()).for_each(|line| summary.read_cases(line));
    Ok(())
}

/// Whether nothing was left out.
fn is_whole(cargo_args: &[String]) -> bool {
    cargo_args.iter().all(|arg| arg == "--locked")
}

fn names_package(cargo_args: &[String]) -> bool {
    let own = cargo_args.iter().take_while(|arg| *arg != "--");
    own.into_iter().any(|arg| arg.starts_with("-p") || arg.starts_with("--package"))
}

#[cfg(test)]
mod tests {
    use super::names_package;

    #[test]
    fn a_named_package_replaces_the_workspace() {
        let named =
            |line: &str| names_package(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert!(named("-p xtask"));
        assert!(named("--locked --package=xtask"));
        assert!(!named("--locked claim"));
        assert!(!named("--locked -- -p"));
    }
}
