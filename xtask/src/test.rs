//! `cargo xtask test`: runs every test, every documentation example, the model checkers, every example, the template, and the pages
//! in a browser. All steps run, and one summary names every failure.
//!
//! The tests read the address of a PostgreSQL server from `DATABASE_URL`. A private server ends with this program, even if that is killed.

mod examples;
mod summary;
mod template;

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use self::summary::Summary;
use crate::postgres::Database;
use crate::repeat::RepeatOptions;
use crate::steps::{Failures, Steps};
use crate::{Missing, browser, checked, run};

/// The options of the command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// The number of runs, and the load during them.
    repeat: RepeatOptions,
    /// Arguments of `cargo test`; naming a package narrows it to that package.
    cargo_args: Vec<String>,
    /// The major version of PostgreSQL. Without it, the default server is used.
    postgres: Option<u32>,
    /// The reaction to a missing browser.
    browser: Missing,
}

impl Options {
    /// Reads `--repeat N`, `--load`, `--postgres N`, and the arguments for cargo behind `--`. A version of PostgreSQL alone means
    /// the tests of that backend.
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let (mut options, mut args) = (Self::default(), args.iter());
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--" => options.cargo_args = args.by_ref().cloned().collect(),
                "--postgres" => options.postgres = Some(version(args.next())?),
                arg if options.repeat.parse(arg, &mut args)? => {}
                other => bail!("`test` has no option {other:?}; arguments for cargo come after `--`"),
            }
        }
        if options.postgres.is_some() && options.cargo_args.is_empty() {
            options.cargo_args = vec!["--package=tidelock-postgres".to_owned()];
        }
        Ok(options)
    }

    /// Returns the options of `cargo xtask ci`: one run of everything, in which a missing tool is a failure.
    pub(crate) fn ci() -> Self {
        Self { cargo_args: vec!["--locked".to_owned()], browser: Missing::Fails, ..Self::default() }
    }
}

fn version(text: Option<&String>) -> Result<u32> {
    let text = text.context("--postgres needs a number")?;
    text.parse().with_context(|| format!("--postgres needs a number, found {text:?}"))
}

/// Runs all tests for the requested number of times, and fails when one did.
pub(crate) fn run(options: &Options) -> Result<()> {
    options.repeat.run(|| {
        let mut steps = Steps::default();
        add(&mut steps, options);
        steps.report("test");
        Ok(steps.failures())
    })
}

/// Runs the steps of one round.
pub(crate) fn add(steps: &mut Steps, options: &Options) {
    let cargo_args = &options.cargo_args;
    let whole = is_whole(cargo_args);
    let mut database = None;
    if needs_database(cargo_args) {
        steps.run("postgres", || {
            database = Some(match options.postgres {
                Some(version) => Database::of_version(version)?,
                None => Database::ready()?,
            });
            Ok(())
        });
    }
    if options.postgres.is_some() && database.is_none() {
        // Without the database, the tests would start a server of the default version.
        return;
    }
    steps.run_noted("tests", || tests(cargo_args, database.as_ref()));
    if whole || packages(cargo_args).contains(&"tidelock-core") {
        steps.run_noted("checkers", checkers);
    }
    if whole {
        steps.run_many("examples", || examples::run(database.as_ref()));
        steps.run("template", template::check);
        steps.run_many("browser", || {
            browser::run_cases(&browser::Options::default().missing(options.browser))
        });
    }
}

/// Runs `cargo test`. Returns the failures by name, and the counts.
fn tests(cargo_args: &[String], database: Option<&Database>) -> Result<(Failures, String)> {
    let mut summary = Summary::default();
    let mut command = cargo(database, &["test", "--no-fail-fast"]);
    let passed = run::stream(command.args(scope(cargo_args)).args(cargo_args), |line| summary.read(line))?;
    Ok(summary.outcome(passed))
}

/// Runs the model checkers.
fn checkers() -> Result<(Failures, String)> {
    let mut summary = Summary::default();
    let passed = checked::run(None, |line| summary.read(line))?;
    Ok(summary.outcome(passed))
}

/// Returns a cargo command with the address of the database, if there is one.
fn cargo(database: Option<&Database>, args: &[&str]) -> Command {
    let mut command = run::cargo(args);
    if let Some(database) = database {
        database.offer(&mut command);
    }
    command
}

/// Returns the scope of `cargo test`: the named packages, or the whole workspace with its documentation tests. Both run in one command,
/// because cargo would build some dependencies with other features for the documentation alone.
fn scope(cargo_args: &[String]) -> Option<&'static str> {
    (!names_package(cargo_args)).then_some("--workspace")
}

/// Returns whether the arguments leave out no test.
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

/// Returns the named packages: `-p NAME`, `-pNAME`, `--package NAME` or `--package=NAME`.
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
    use super::{Options, names_package, needs_database};

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn options_come_before_the_arguments_for_cargo() {
        let parse = |line: &str| Options::parse(&words(line)).map_err(|error| error.to_string());
        assert_eq!(parse(""), Ok(Options::default()));
        let found = parse("--repeat 2 --load -- -p xtask --load");
        assert_eq!(found.map(|found| found.cargo_args), Ok(words("-p xtask --load")));
        assert!(parse("-p xtask").is_err_and(|error| error.contains("after `--`")));
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
