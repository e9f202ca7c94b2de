//! The project's own commands: `cargo xtask test | ci | tidy | docs | api-check | browser | sim | soak | planted | ha`.
//!
//! Each command is one module and can be read alone. None of them changes a source file.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this program talks to people")]

mod api_check;
mod apt;
mod book;
mod browser;
mod checked;
mod ci;
mod docs;
#[cfg(target_os = "linux")]
mod ha;
mod planted;
mod postgres;
mod python;
mod repeat;
mod run;
mod sim;
mod soak;
mod steps;
mod test;
mod tidy;

use std::process::ExitCode;

use anyhow::{Result, bail};

const HELP: &str = "\
The project's own commands.

Usage: cargo xtask <COMMAND>

Commands:
  test [-- ARGS]      Run every test, documentation example, model checker, example and the pages; ARGS go to `cargo test`
      --repeat N      Run everything N times, and list the checks that failed in some of the runs
      --load          Keep every core busy during the tests
      --postgres N    Run the tests of the PostgreSQL backend, or ARGS, on that major version (14 to 18)
  ci                  What must pass before a change goes in: fmt, clippy, tidy, test (also on PostgreSQL 14 and 18), docs, api-check; nothing is skipped
  tidy                Check the rules of the house that the compiler does not know
  docs                Build the API documentation, the book, and llms.txt; warnings are errors
  book-preprocess     Change the book for mdBook, which starts this itself
  api-check           Let schemathesis look for answers of the server that are not as described; needs python3
      --require       Fail when it cannot be installed, instead of skipping it
  browser [OPTIONS]   Look at the inspector in a real Chromium alone; skipped with a line where there is none
      --require       What is missing is a failure
      --only TEXT     Only cases whose name has this in it
      --repeat N      Run the cases N times, and list those that failed in some of the runs
      --load          Keep every core busy during the tests
      --screens DIR   Make pictures of the pages for the book, and run no test
  sim [OPTIONS]       Simulate services under random faults; target/sim.json has the result
      --seeds N       How many seeds (default: 10000)
      --first N       The first seed (default: 0)
      --seed N        Only this seed, with its trace
      --minutes N     Start no further seed after this time
  soak [OPTIONS]      Run the long variants of the tests
      --minutes N     How long each soak test runs (default: 10)
      --seeds N       How many random seeds the differential runner gets (default: 8)
  planted [OPTIONS]   Plant faults one at a time in a copy of the sources, and report which tests find each
      --only TEXT     Only faults whose name contains this
      --layers NAMES  Only these layers: unit,kit,sim (default: all)
  ha [OPTIONS]        Inject faults into a Patroni cluster under load, and compare a ledger with the store; Linux only
      --minutes N     How long, in all (default: 30)
      --mode MODE     sync, async or both (default: both)
      --only FAULT    Only this fault, such as kill-postgres or network-reset
      --seed N        The order of the faults and the choices of the clients
      --postgres N    On that major version of PostgreSQL
      --patroni-defaults
                      Patroni's own times instead of the shortest that it accepts
      --require       Fail when something cannot be installed, instead of skipping it
  help                Print this text

Tests use the PostgreSQL that DATABASE_URL names. Without it a private server is started, and ended afterwards.

Examples:
  cargo xtask test -- --package tidelock-sqlite
  cargo xtask test --repeat 10 --load
  cargo xtask soak --minutes 60

Exit status: 0 when everything passed, 1 when something failed, 2 when the command line is wrong.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let command = match Command::parse(&args) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("error: {error}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The reaction of a check to a missing tool that cannot be installed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Missing {
    /// The check is skipped with a message.
    #[default]
    Skips,
    /// The check fails.
    Fails,
}

impl Missing {
    /// Prints the reason and succeeds, or fails with the reason.
    fn because(self, reason: &str) -> Result<()> {
        match self {
            Self::Fails => bail!("{reason}"),
            Self::Skips => {
                println!("skipped: {reason}");
                Ok(())
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Command {
    Help,
    Test(test::Options),
    Ci,
    Tidy,
    Docs,
    BookPreprocess(Vec<String>),
    ApiCheck(Missing),
    Browser(browser::Options),
    Sim(sim::Options),
    Soak(soak::Options),
    Planted(planted::Options),
    #[cfg(target_os = "linux")]
    Ha(ha::Options),
}

impl Command {
    fn parse(args: &[String]) -> Result<Self> {
        let Some((name, rest)) = args.split_first() else {
            return Ok(Self::Help);
        };
        if rest.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--help" || arg == "-h") {
            return Ok(Self::Help);
        }
        let command = match name.as_str() {
            "help" | "--help" | "-h" => return Ok(Self::Help),
            "test" => return Ok(Self::Test(test::Options::parse(rest)?)),
            "browser" => return Ok(Self::Browser(browser::Options::parse(rest)?)),
            "sim" => return Ok(Self::Sim(sim::Options::parse(rest)?)),
            "soak" => return Ok(Self::Soak(soak::Options::parse(rest)?)),
            "planted" => return Ok(Self::Planted(planted::Options::parse(rest)?)),
            "book-preprocess" => return Ok(Self::BookPreprocess(rest.to_vec())),
            #[cfg(target_os = "linux")]
            "ha" => return Ok(Self::Ha(ha::Options::parse(rest)?)),
            "ci" => Self::Ci,
            "tidy" => Self::Tidy,
            "docs" => Self::Docs,
            "api-check" if rest.first().is_some_and(|arg| arg == "--require") && rest.len() == 1 => {
                return Ok(Self::ApiCheck(Missing::Fails));
            }
            "api-check" => Self::ApiCheck(Missing::Skips),
            other => bail!("there is no command {other:?}"),
        };
        match rest.first() {
            Some(extra) => bail!("`{name}` takes no argument, found {extra:?}"),
            None => Ok(command),
        }
    }

    fn run(self) -> Result<()> {
        match self {
            Self::Help => {
                println!("{HELP}");
                Ok(())
            }
            Self::Test(options) => test::run(&options),
            Self::Ci => ci::run(),
            Self::Tidy => tidy::run(),
            Self::Docs => docs::run(),
            Self::BookPreprocess(args) => book::preprocess(&args),
            Self::ApiCheck(missing) => api_check::run(missing),
            Self::Browser(options) => browser::run(&options),
            Self::Sim(options) => sim::run(&options),
            Self::Soak(options) => soak::run(&options),
            Self::Planted(options) => planted::run(&options),
            #[cfg(target_os = "linux")]
            Self::Ha(options) => ha::run(&options),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, Missing, soak};

    fn parse(line: &str) -> Result<Command, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Command::parse(&args).map_err(|e| e.to_string())
    }

    #[test]
    fn commands_are_recognised() {
        assert_eq!(parse(""), Ok(Command::Help));
        assert_eq!(parse("ci --help"), Ok(Command::Help));
        assert_eq!(parse("ci"), Ok(Command::Ci));
        assert_eq!(parse("tidy"), Ok(Command::Tidy));
        assert_eq!(parse("api-check"), Ok(Command::ApiCheck(Missing::Skips)));
        assert_eq!(parse("api-check --require"), Ok(Command::ApiCheck(Missing::Fails)));
        assert!(matches!(parse("test --repeat 10 --load -- -p xtask"), Ok(Command::Test(_))));
        assert!(matches!(parse("test --postgres 18"), Ok(Command::Test(_))));
        let options = soak::Options { minutes: 3, ..soak::Options::default() };
        assert!(matches!(parse("planted --only fence --layers unit,kit"), Ok(Command::Planted(_))));
        assert!(parse("planted --layers all").is_err_and(|e| e.contains("unit, kit and sim")));
        assert!(matches!(parse("sim --seeds 5 --minutes 1"), Ok(Command::Sim(_))));
        assert_eq!(parse("soak --minutes 3"), Ok(Command::Soak(options)));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(parse("tset"), Err("there is no command \"tset\"".to_owned()));
        assert_eq!(parse("ci now"), Err("`ci` takes no argument, found \"now\"".to_owned()));
        assert!(parse("api-check --strict").is_err_and(|e| e.contains("--strict")));
        assert!(parse("test -p xtask").is_err_and(|e| e.contains("after `--`")));
        assert!(parse("test --postgres new").is_err_and(|e| e.contains("--postgres")));
        assert!(parse("sim --seeds many").is_err_and(|e| e.contains("--seeds")));
        assert!(parse("soak --minutes soon").is_err_and(|e| e.contains("--minutes")));
    }
}
