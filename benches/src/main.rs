//! The benchmark program: `cargo run --profile dist -p tidelock-benches -- SUITE`.
//!
//! Each suite measures one engine beside its baselines on the same machine, in the same minute. Reports go to standard
//! output, everything else to standard error. Exit codes: 0 success, 1 failure, 2 wrong usage.
#![expect(clippy::print_stderr, reason = "a program prints warnings and errors")]

mod args;
mod private_server;
mod suite;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser as _;
use tidelock_console::output;
use tidelock_console::usage::UsageError;

use self::args::{Cli, Suite};

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.no_color {
        output::be_plain();
    }
    match runtime().and_then(|runtime| runtime.block_on(run(cli.suite))) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", output::escaped(&format!("{error:#}")));
            let is_usage = error.chain().any(|cause| cause.is::<UsageError>());
            ExitCode::from(if is_usage { 2 } else { 1 })
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

async fn run(suite: Suite) -> Result<ExitCode> {
    match suite {
        Suite::Store(options) => Box::pin(suite::store::run(&options)).await,
        Suite::Lock(options) => Box::pin(suite::lock::run(&options)).await,
        Suite::State(options) => Box::pin(suite::state::run(&options)).await,
        Suite::Events(options) => Box::pin(suite::events::run(&options)).await,
        Suite::Workflow(options) => Box::pin(suite::workflow::run(&options)).await,
        Suite::Producer(options) => Box::pin(suite::store::produce(&options)).await,
        Suite::Holder(options) => Box::pin(suite::lock::hold(&options)).await,
    }
}
