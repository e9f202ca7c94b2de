//! The command line of Tidelock.
//!
//! Data goes to standard output, everything else to standard error. Exit codes are for scripts: 0 well, 1 failed,
//! 2 wrong usage, 3 not found, 4 conflict, 5 something is blocked, 6 a run did not complete.
#![expect(clippy::print_stderr, reason = "a program talks to people")]

mod address;
mod args;
mod ask;
mod bench;
mod connection;
mod demo;
mod doctor;
mod exit;
mod explain;
mod idempotency;
mod input;
mod lifeline;
mod migrate;
mod output;
mod progress;
mod random;
mod reader;
mod runs;
mod schedules;
mod schemas;
mod screen;
mod serve;
mod server_url;
mod sight;
mod state;
mod streams;
mod target;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory as _, Parser as _};

use self::args::{Bench, Cli, Command};
use self::exit::Exit;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(refused) => return exit::usage(&refused),
    };
    if cli.no_color {
        output::be_plain();
    }
    let done = runtime().and_then(|runtime| runtime.block_on(run(cli.command)));
    match done {
        Ok(exit) => exit.into(),
        Err(error) => exit::report(&error).into(),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

async fn run(command: Command) -> Result<Exit> {
    match command {
        Command::Bench(Bench::Store(options)) => Box::pin(bench::run(options)).await,
        Command::Bench(Bench::Lock(options)) => Box::pin(bench::lock(options)).await,
        Command::Bench(Bench::Events(options)) => Box::pin(bench::events(options)).await,
        Command::Bench(Bench::Workflow(options)) => Box::pin(bench::workflow(options)).await,
        Command::Bench(Bench::State(options)) => Box::pin(bench::state(options)).await,
        Command::BenchHolder(options) => Box::pin(bench::hold(options)).await,
        Command::BenchProducer(options) => Box::pin(bench::produce(options)).await,
        Command::Doctor(options) => Box::pin(doctor::run(options)).await,
        Command::Migrate(verb) => Box::pin(migrate::run(verb)).await,
        Command::Demo(options) => Box::pin(demo::run(options)).await,
        Command::DemoWorker(options) => Box::pin(demo::work(options)).await,
        Command::State(verb) => Box::pin(state::run(verb)).await,
        Command::Streams(verb) => Box::pin(streams::run(verb)).await,
        Command::Runs(verb) => Box::pin(runs::run(verb)).await,
        Command::Idempotency(verb) => Box::pin(idempotency::run(verb)).await,
        Command::Schedules(verb) => Box::pin(schedules::run(verb)).await,
        Command::Serve(options) => Box::pin(serve::run(&options)).await,
        Command::Dev(options) => Box::pin(serve::dev(&options)).await,
        Command::Explain(options) => explain::run(&options),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tidelock", &mut script);
            output::say(String::from_utf8_lossy(&script))?;
            Ok(Exit::Well)
        }
    }
}
