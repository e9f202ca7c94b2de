//! `cargo xtask test`: every test, every example's build, every documentation example, the pages in a browser, and one line
//! that sums them up.
//!
//! The tests find a PostgreSQL in `DATABASE_URL`. A private one ends with this program, however that ends.

mod summary;

use std::process::Command;

use anyhow::{Result, bail};

use self::summary::Summary;
use crate::postgres::Database;
use crate::{Missing, browser, checked, run};

/// Runs all tests. `cargo_args` are handed to `cargo test`; naming a package narrows it to that package. `browser` says what it means
/// that there is none to look at the pages with.
pub(crate) fn run(cargo_args: &[String], browser: Missing) -> Result<()> {
    let database = needs_database(cargo_args).then(Database::ready).transpose()?;
    let mut summary = Summary::default();
    let mut passed = true;
    let mut command = cargo(database.as_ref(), &["test", "--no-fail-fast"]);
    passed &= run::stream(command.args(scope(cargo_args)).args(cargo_args), |line| {
        println!("{line}");
        summary.read(line);
    })?;
    if is_whole(cargo_args) || packages(cargo_args).contains(&"tidelock-core") {
        passed &= checked::run(None, |line| {
            println!("{line}");
            summary.read(line);
        })?;
    }
    if passed && is_whole(cargo_args) {
        count_cases(cargo_args, database.as_ref(), &mut summary)?;
        run::step("examples", examples)?;
        run::step("browser", || browser::run(&browser::Options::default().missing(browser)))?;
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

/// Runs every example as a newcomer would.
fn examples() -> Result<()> {
    let mut names: Vec<String> = Vec::new();
    for file in std::fs::read_dir(run::root().join("examples"))? {
        let path = file?.path();
        let is_example = path.extension().is_some_and(|extension| extension == "rs");
        names.extend(path.file_stem().filter(|_| is_example).map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    for name in names {
        let program = run::built(&["--example", &name])?;
        run::capture(Command::new(program).current_dir(run::root()))?;
        println!("example {name}: ok");
    }
    Ok(())
}

/// A cargo command that knows the database, if there is one.
fn cargo(database: Option<&Database>, args: &[&str]) -> Command {
    let mut command = run::cargo(args);
    if let Some(database) = database {
        database.offer(&mut command);
    }
    command
}

/// What `cargo test` covers: the packages that are named, or the whole workspace with its documentation. In one run: cargo would build some
/// dependencies with other features for the documentation alone.
fn scope(cargo_args: &[String]) -> Option<&'static str> {
    (!names_package(cargo_args)).then_some("--workspace")
}

/// The test in which the conformance kit says how many cases it has.
const COUNTING_TEST: &str = "tidelock_tck_summary";

/// Asks the kit how many cases ran on each backend: test programs swallow what a passing test prints.
fn count_cases(cargo_args: &[String], database: Option<&Database>, summary: &mut Summary) -> Result<()> {
    // What the tests were built with, once more: other targets would be built with other features.
    let mut command = cargo(database, &["test", "--workspace"]);
    let (stdout, stderr) = run::capture(command.args(cargo_args).args([COUNTING_TEST, "--", "--nocapture"]))?;
    stdout.lines().chain(stderr.lines()).for_each(|line| summary.read_cases(line));
    Ok(())
}

/// Whether nothing was left out.
fn is_whole(cargo_args: &[String]) -> bool {
    cargo_args.iter().all(|arg| arg == "--locked")
}

fn names_package(cargo_args: &[String]) -> bool {
    !packages(cargo_args).is_empty()
}

/// Packages whose tests need no PostgreSQL, or start their own. All others are offered one.
const WITHOUT_DATABASE: &[&str] = &[
    "tidelock-core",
    "tidelock-files",
    "tidelock-pgserver",
    "tidelock-sealed",
    "tidelock-sqlite",
    "tidelock-tck",
    "xtask",
];

fn needs_database(cargo_args: &[String]) -> bool {
    let packages = packages(cargo_args);
    packages.is_empty() || packages.iter().any(|package| !WITHOUT_DATABASE.contains(package))
}

/// The packages that are named: `-p NAME`, `-pNAME`, `--package NAME` or `--package=NAME`.
fn packages(cargo_args: &[String]) -> Vec<&str> {
    let mut own = cargo_args.iter().map(String::as_str).take_while(|arg| *arg != "--");
    let mut packages = Vec::new();
    while let Some(arg) = own.next() {
        let Some(name) = arg.strip_prefix("--package").or_else(|| arg.strip_prefix("-p")) else { continue };
        let name = name.strip_prefix('=').unwrap_or(name);
        packages.push(if name.is_empty() { own.next().unwrap_or_default() } else { name });
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::{names_package, needs_database};

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_named_package_replaces_the_workspace() {
        let named = |line: &str| names_package(&words(line));
        assert!(named("-p xtask"));
        assert!(named("--locked --package=xtask"));
        assert!(!named("--locked claim"));
        assert!(!named("--locked -- -p"));
    }

    #[test]
    fn a_database_is_started_unless_no_named_package_needs_it() {
        let needed = |line: &str| needs_database(&words(line));
        assert!(needed("") && needed("--locked claim") && needed("-- -p xtask"));
        assert!(!needed("-p xtask") && !needed("-pxtask") && !needed("--package=tidelock-core -p xtask"));
        assert!(needed("-p xtask --package tidelock-postgres"));
        assert!(needed("-p tidelock-new") && needed("-p"));
    }
}
