//! The command line of Tidelock.
//!
//! Data goes to standard output, everything else to standard error. Exit codes are for scripts: 0 well, 1 failed,
//! 2 wrong usage, 3 not found, 4 conflict, 5 something is blocked, 6 a run did not complete.
#![expect(clippy::print_stderr, reason = "a program talks to people")]

mod args;
mod bench;
mod config;
mod confirm;
mod demo;
mod doctor;
mod exit;
mod explain;
mod idempotency;
mod input;
mod leases;
mod locks;
mod log;
mod man;
mod migrate;
mod outbox;
mod output;
mod reactions;
mod render;
mod restored;
mod runs;
mod schedules;
mod serve;
mod state;
mod stdout_closed;
mod streams;
mod terminal;
mod top;
mod version;
mod work;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory as _, FromArgMatches as _};
use tidelock_console::{
    address, connection, filesystem, parent_death, progress, random, server_url, temp_schema,
};

use self::args::{Cli, Command};
use self::config::Config;
use self::exit::Exit;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let config = Config::load(&args);
    let known = config.as_ref().map_or_else(|_| Cli::command(), |config| config.onto(Cli::command()));
    let command = config::without_empty(known);
    let cli = match (parse(command, args), &config) {
        (Ok(cli), _) => cli,
        // The missing argument may be set in the configuration file that cannot be parsed.
        (Err(refused), Err(error)) if refused.use_stderr() => return exit::unfit(error),
        (Err(refused), _) => return exit::usage(&refused),
    };
    let config = match config {
        Ok(config) => config,
        Err(_) if cli.command.needs_no_settings() => Config::default(),
        Err(error) => return exit::unfit(&error),
    };
    if cli.no_color || config.is_plain() {
        output::be_plain();
    }
    let done = runtime().and_then(|runtime| runtime.block_on(run(cli, &config)));
    match done {
        Ok(exit) => exit.into(),
        Err(error) => exit::report(&error).into(),
    }
}

fn parse(command: clap::Command, args: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut read = command.try_get_matches_from(args)?;
    Cli::from_arg_matches_mut(&mut read).map_err(|error| error.format(&mut Cli::command()))
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

async fn run(cli: Cli, config: &Config) -> Result<Exit> {
    match cli.command {
        Command::Bench(options) => Box::pin(bench::run(&options)).await,
        Command::Doctor(options) => Box::pin(doctor::run(options)).await,
        Command::Migrate(verb) => Box::pin(migrate::run(verb)).await,
        Command::Restored(options) => Box::pin(restored::run(&options)).await,
        Command::Demo(options) => Box::pin(demo::run(options)).await,
        Command::DemoWorker(options) => Box::pin(demo::work(options)).await,
        Command::State(verb) => Box::pin(state::run(verb)).await,
        Command::Streams(verb) => Box::pin(streams::run(verb)).await,
        Command::Runs(verb) => Box::pin(runs::run(verb)).await,
        Command::Reactions(verb) => Box::pin(reactions::run(verb)).await,
        Command::Work(verb) => Box::pin(work::run(verb)).await,
        Command::Leases(verb) => Box::pin(leases::run(verb)).await,
        Command::Locks(verb) => Box::pin(locks::run(verb)).await,
        Command::Outbox(verb) => Box::pin(outbox::run(verb)).await,
        Command::Top(options) => Box::pin(top::run(&options)).await,
        Command::Version(options) => version::run(&options),
        Command::Idempotency(verb) => Box::pin(idempotency::run(verb)).await,
        Command::Schedules(verb) => Box::pin(schedules::run(verb)).await,
        Command::Serve(options) => Box::pin(serve::run(&options)).await,
        Command::Dev(options) => Box::pin(serve::dev(&options)).await,
        Command::Explain(options) => explain::run(&options),
        Command::Config(verb) => config::run(&verb, config, cli.no_color),
        Command::Man(options) => man::run(&options),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tidelock", &mut script);
            output::say(String::from_utf8_lossy(&script))?;
            Ok(Exit::Well)
        }
    }
}
