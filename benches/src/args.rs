//! Command-line arguments of the benchmark program.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tidelock_console::address::ChildStore;
use tidelock_console::duration::seconds;
use tidelock_console::output::Format;

const EXAMPLES: &str = "\
Examples:
  tidelock-bench store                         SQLite beside fdatasync and the bare driver
  tidelock-bench store --store postgres        PostgreSQL beside handwritten SQL, on a private server
  tidelock-bench store --processes 4           Four processes on one file; every commit is accounted for
  tidelock-bench lock                          Keyed locks beside tokio and the crate lockable
  tidelock-bench state --store sqlite          Many writers of one record, beside read-write-retry loops
  tidelock-bench events --quick                Commands and reactions beside bare appends
  tidelock-bench workflow -o json              Runs of ten steps, replay and sleeping runs, as JSON

Measure your own machine or server with `tidelock bench`; these suites are for comparing versions and libraries.
Exit codes: 0 success, 1 failure, 2 wrong usage.";

/// Measure Tidelock's engines beside bare drivers, handwritten SQL and other libraries
#[derive(Debug, Parser)]
#[command(name = "tidelock-bench", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// Print without colours; NO_COLOR does the same
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    /// The suite
    #[command(subcommand)]
    pub(crate) suite: Suite,
}

/// The suites.
#[derive(Debug, Subcommand)]
pub(crate) enum Suite {
    /// Measure commits and claims of a store, beside the device and the bare driver
    Store(StoreArgs),
    /// Measure keyed locks, beside tokio's mutex and the crate lockable
    Lock(LockArgs),
    /// Measure writers of the same records, beside read-write-retry loops
    State(EngineArgs),
    /// Measure commands on aggregates, and reactions, beside bare appends
    Events(EngineArgs),
    /// Measure runs of ten steps, replay and sleeping runs, beside bare appends
    Workflow(EngineArgs),
    /// Run one producing process of `store --processes`
    #[command(hide = true)]
    Producer(ProducerArgs),
    /// Run the process in which `lock` measures the memory of locks
    #[command(hide = true)]
    Holder(HolderArgs),
}

/// The measured backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// The reference store in memory
    Memory,
    /// One SQLite file
    Sqlite,
    /// A PostgreSQL server: the one of --url, or a private one that ends with the run
    Postgres,
}

/// The arguments of `store`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArgs {
    /// The backend
    #[arg(long, value_enum, default_value = "sqlite")]
    pub(crate) store: Backend,
    /// The directory of the measured files, which are removed afterwards [default: the temporary directory]
    #[arg(long, value_name = "DIR_OR_FILE")]
    pub(crate) path: Option<PathBuf>,
    /// The PostgreSQL database, measured in temporary schemas [default: a private server]
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    pub(crate) url: Option<String>,
    /// The number of concurrent producers
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) producers: u32,
    /// Seconds of each phase, over all rounds [default: 5, or 0.6 with --quick]
    #[arg(long, value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Shorten the phases, and fill 100 thousand instead of 1 million work rows
    #[arg(long)]
    pub(crate) quick: bool,
    /// The number of processes on one store; from 2 on, only commits are measured, and every one is accounted for
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) processes: u32,
    /// The format of the report
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
}

/// The arguments of `lock`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LockArgs {
    /// Seconds of each measurement, over all rounds [default: 2, or 0.2 with --quick]
    #[arg(long, value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Shorten the measurements and run fewer rounds
    #[arg(long)]
    pub(crate) quick: bool,
    /// The format of the report
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
}

/// The arguments of `state`, `events` and `workflow`.
#[derive(Clone, Debug, Args)]
pub(crate) struct EngineArgs {
    /// The backend
    #[arg(long, value_enum, default_value = "sqlite")]
    pub(crate) store: Backend,
    /// The directory of the measured files, which are removed afterwards [default: the temporary directory]
    #[arg(long, value_name = "DIR_OR_FILE")]
    pub(crate) path: Option<PathBuf>,
    /// The PostgreSQL database, measured in a temporary schema [default: a private server]
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    pub(crate) url: Option<String>,
    /// Seconds of each phase, over all rounds [default: 4 to 9 by suite, or less with --quick]
    #[arg(long, value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Shorten the phases and run fewer rounds
    #[arg(long)]
    pub(crate) quick: bool,
    /// The format of the report
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
}

/// The library whose locks are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Library {
    /// This library
    Tidelock,
    /// The crate lockable
    Lockable,
}

/// The arguments of `holder`.
#[derive(Clone, Debug, Args)]
pub(crate) struct HolderArgs {
    /// The library
    #[arg(long, value_enum)]
    pub(crate) library: Library,
    /// The number of locks
    #[arg(long)]
    pub(crate) keys: u32,
}

/// The arguments of `producer`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProducerArgs {
    /// The store
    #[command(flatten)]
    pub(crate) store: ChildStore,
    /// The number of this process
    #[arg(long)]
    pub(crate) process: u32,
    /// The number of concurrent producers
    #[arg(long)]
    pub(crate) producers: u32,
    /// Seconds to run
    #[arg(long, value_parser = seconds)]
    pub(crate) seconds: Duration,
}
