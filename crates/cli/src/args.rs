//! Command-line arguments: verbs, flags, defaults and the texts of `--help`.

mod config;
mod idempotency;
mod leases;
mod locks;
mod outbox;
mod queues;
mod reactions;
mod runs;
mod schedules;
mod serve;
mod state;
mod store_args;
mod streams;
mod top;
mod transfer;
#[cfg(test)]
mod verbs;
mod work;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tidelock_console::duration::seconds;

pub(crate) use config::{Config, ConfigShow};
pub(crate) use idempotency::{IdempotencyDelete, IdempotencyList, IdempotencyShow, IdempotencyVerb};
pub(crate) use leases::{Leases, LeasesList, LeasesShow};
pub(crate) use locks::{Locks, LocksList};
pub(crate) use outbox::{OutboxDiscard, OutboxList, OutboxRetry, OutboxVerb};
pub(crate) use queues::{RunsLimit, RunsQueues};
pub(crate) use reactions::{
    ReactionKeys, Reactions, ReactionsBlocked, ReactionsDeadLetters, ReactionsList, ReactionsOperate,
    ReactionsPrioritize, ReactionsStatus,
};
pub(crate) use runs::{
    Runs, RunsCancel, RunsFork, RunsList, RunsPrune, RunsResume, RunsShow, RunsSignal, RunsStart, RunsSteps,
    RunsWatch,
};
pub(crate) use schedules::{
    Schedules, SchedulesHistory, SchedulesList, SchedulesPause, SchedulesResume, SchedulesRun, SchedulesShow,
};
pub(crate) use serve::{Dev, LogFormat, LogLevel, Reached, Serve};
pub(crate) use state::{
    Condition, State, StateDelete, StateGet, StateHistory, StateList, StateSet, StateWatch,
};
pub(crate) use store_args::{ConfirmArgs, Flushing, Pages, Source, StoreArgs, WatchArgs, every};
pub(crate) use streams::{
    Streams, StreamsAppend, StreamsClose, StreamsList, StreamsShow, StreamsTail, TailFrom,
};
pub(crate) use tidelock_console::address::ChildStore;
pub(crate) use tidelock_console::output::Format;
pub(crate) use top::Top;
pub(crate) use transfer::{StreamsExport, StreamsImport};
pub(crate) use work::{Rows, Work, WorkBlocked, WorkList, WorkOperate, WorkPrioritize, WorkShow, WorkState};

const EXAMPLES: &str = "\
Examples:
  tidelock demo                              kill workers at random; nothing is lost or doubled
  tidelock doctor                            check this machine
  tidelock doctor --store app.db             check a store
  tidelock doctor --store postgres://me@db/app
  tidelock state list --prefix session --store app.db
  tidelock state get 'session(\"s-1\", \"cart\")' --store app.db
  tidelock streams tail --prefix order --store app.db
  tidelock reactions list --store app.db     progress, lag and errors of reactions
  tidelock work blocked --store app.db       blocked work; exits with 5 if there is any
  tidelock runs list --status failed --store app.db
  tidelock runs watch order-17 --store app.db
  tidelock top --store app.db                a live overview of the store
  tidelock work list --watch --store app.db  due, leased and blocked work, refreshed
  tidelock leases list --store app.db        holders, fences and remaining times
  tidelock idempotency list --store app.db   idempotency keys and their states
  tidelock schedules list --store app.db     schedules and their next times
  tidelock serve --store app.db              serve the store over HTTP, read-only, on this machine
  tidelock migrate status --store postgres://me@db/app
  tidelock migrate sql > tidelock.sql        the migrations, for an administrator
  tidelock bench --store app.db              compare Tidelock with the disk and the bare driver
  tidelock explain TL0204                    the page of an error code
  tidelock completions bash > tidelock.bash

Exit codes: 0 well, 1 failed, 2 wrong usage, 3 not found, 4 conflict, 5 something is blocked, 6 a run did not complete.
Data goes to standard output, everything else to standard error. NO_COLOR is respected.";

/// Keeps application state correct while many tasks, processes and machines work on it at once.
#[derive(Debug, Parser)]
#[command(name = "tidelock", version, after_help = EXAMPLES, propagate_version = true)]
pub(crate) struct Cli {
    /// Print nothing in colour or bold; NO_COLOR does the same
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    /// Configuration file [default: the nearest tidelock.toml from here
    /// upwards]
    #[arg(long, global = true, value_name = "FILE", env = "TIDELOCK_CONFIG", hide_env = true)]
    pub(crate) config: Option<PathBuf>,
    /// The verb.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Kill workers at random and prove that nothing was lost or doubled
    Demo(Demo),
    /// Check a store, or this machine when no store is named
    Doctor(Doctor),
    /// Show and change records: their values, versions and histories
    #[command(subcommand)]
    State(State),
    /// Show, follow, copy and change event streams
    #[command(subcommand)]
    Streams(Streams),
    /// Show and repair reactions, their keys and their dead letters
    #[command(subcommand)]
    Reactions(Reactions),
    /// Show, start, signal, cancel and repair workflow runs
    #[command(subcommand)]
    Runs(Runs),
    /// Show a live overview: events, work, runs, leases and schedules
    #[command(after_help = top::TOP)]
    Top(Top),
    /// Show and repair rows of work: due, leased or blocked
    #[command(subcommand)]
    Work(Work),
    /// Show leases across processes: holders, fences and remaining times
    #[command(subcommand)]
    Leases(Leases),
    /// Show the locks inside a running program, by asking its server
    #[command(subcommand)]
    Locks(Locks),
    /// Show undelivered messages, and retry or remove blocked ones
    #[command(subcommand)]
    Outbox(OutboxVerb),
    /// Show and delete idempotency keys and their stored responses
    #[command(subcommand)]
    Idempotency(IdempotencyVerb),
    /// List, trigger, pause and resume schedules
    #[command(subcommand)]
    Schedules(Schedules),
    /// Serve a store over HTTP: JSON API, live events, health and metrics
    Serve(Serve),
    /// Create a store in a file and serve it with writes, to try things out
    Dev(Dev),
    /// Print the page of an error code, or list all codes
    Explain(Explain),
    /// Show, apply or print the migrations of a PostgreSQL store
    #[command(subcommand)]
    Migrate(Migrate),
    /// Declare that a store was restored from a backup or copied
    Restored(Restored),
    /// Measure a disk or server: commits and claims beside the bare driver
    #[command(after_help = BENCH)]
    Bench(Bench),
    /// Show the settings and their origins
    #[command(subcommand)]
    Config(Config),
    /// Print the manual page, or write one for each verb into a directory
    #[command(after_help = MAN)]
    Man(Man),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Show the version and the build of this program
    Version(Version),
    /// Run one worker process of `demo`
    #[command(hide = true)]
    DemoWorker(DemoWorker),
}

impl Command {
    /// Returns whether the command works with an invalid configuration. It may
    /// be the command that explains the error.
    pub(crate) fn needs_no_settings(&self) -> bool {
        matches!(
            self,
            Self::Explain(_)
                | Self::Completions { .. }
                | Self::Man(_)
                | Self::Version(_)
                | Self::Config(Config::Schema)
        )
    }
}

/// The output layout of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Layout {
    /// A table for human readers
    #[default]
    Table,
    /// One JSON value for programs
    Json,
    /// JSON for programs, one row on each line, as they are read
    Jsonl,
}

/// `tidelock bench`
#[derive(Clone, Debug, Args)]
pub(crate) struct Bench {
    /// Store whose disk or server is measured: a path, a directory,
    /// sqlite://PATH, postgres://… or mem: [default: the temporary directory]
    #[arg(long, value_name = "URL|PATH", env = "TIDELOCK_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// Seconds of each phase
    #[arg(long, value_name = "N", default_value = "2", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// The format of the report
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
}

const BENCH: &str = "\
Examples:
  tidelock bench --store app.db              The disk of this file; the file itself is not touched
  tidelock bench --store /var/lib/app        The disk of this directory
  tidelock bench --store postgres://me@db/app
  tidelock bench --store mem: --seconds 0.5  The store in memory, beside a map behind a mutex

SQLite is measured in a temporary directory beside the file, PostgreSQL in temporary schemas. Both are removed
afterwards. Ratios compare Tidelock with the device and the bare driver in the same rounds: an aim that is met means
that the disk or server is the limit. The suites that compare versions and libraries are the program `tidelock-bench`:
cargo run --profile dist -p tidelock-benches -- --help";

/// `tidelock doctor`
#[derive(Clone, Debug, Args)]
pub(crate) struct Doctor {
    /// Store: a path, sqlite://PATH or postgres://…; without it, check the
    /// machine
    #[arg(long, value_name = "URL|PATH", env = "TIDELOCK_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// Schema of a PostgreSQL store [default: the one in the address, or
    /// tidelock]
    #[arg(long, value_name = "NAME", env = "TIDELOCK_SCHEMA", hide_env = true)]
    pub(crate) schema: Option<String>,
    /// Only open the store and read its clock: one line, and exit code 0 or 1,
    /// within 5 s; for probes
    #[arg(long)]
    pub(crate) health: bool,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
}

/// `tidelock migrate`
#[derive(Debug, Subcommand)]
pub(crate) enum Migrate {
    /// Show the migrations, and which of them the database has
    Status(MigrateStore),
    /// Apply the pending migrations
    Up(MigrateStore),
    /// Print the migrations as SQL for an administrator, without connecting
    Sql(MigrateSql),
}

/// `tidelock migrate status` and `tidelock migrate up`
#[derive(Clone, Debug, Args)]
pub(crate) struct MigrateStore {
    /// Store: postgres://…
    #[arg(long, value_name = "URL", env = "TIDELOCK_STORE", hide_env_values = true)]
    pub(crate) store: String,
    /// Schema [default: the one in the address, or tidelock]
    #[arg(long, value_name = "NAME", env = "TIDELOCK_SCHEMA", hide_env = true)]
    pub(crate) schema: Option<String>,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
}

/// `tidelock migrate sql`
#[derive(Clone, Debug, Args)]
pub(crate) struct MigrateSql {
    /// Store: postgres://…; optional
    #[arg(long, value_name = "URL", env = "TIDELOCK_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// Schema [default: the one in the address, or tidelock]
    #[arg(long, value_name = "NAME", env = "TIDELOCK_SCHEMA", hide_env = true)]
    pub(crate) schema: Option<String>,
    /// Version of the database; only later migrations are printed
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) from: u32,
}

/// `tidelock restored`
#[derive(Clone, Debug, Args)]
pub(crate) struct Restored {
    /// Reason of the cut, which is recorded
    #[arg(long, value_name = "TEXT", default_value = "declared by an operator")]
    pub(crate) reason: String,
    /// The confirmation
    #[command(flatten)]
    pub(crate) consent: ConfirmArgs,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

/// `tidelock explain`
#[derive(Clone, Debug, Args)]
pub(crate) struct Explain {
    /// Error code, for example TL0204; without it, list all codes
    pub(crate) code: Option<String>,
}

const MAN: &str = "\
Examples:
  tidelock man | man -l -
  tidelock man --dir /usr/local/share/man/man1";

/// `tidelock man`
#[derive(Clone, Debug, Args)]
pub(crate) struct Man {
    /// Write a page for each verb into this directory, creating it if needed
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// `tidelock version`
#[derive(Clone, Debug, Args)]
pub(crate) struct Version {
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Layout,
}

/// `tidelock demo`
#[derive(Clone, Debug, Args)]
pub(crate) struct Demo {
    /// Duration of the load and the kills, in seconds
    #[arg(long, default_value = "30", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// Number of worker processes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) workers: u32,
    /// File of the store [default: a new file in the temporary directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) path: Option<PathBuf>,
    /// Kind of store: sqlite, postgres (the server of DATABASE_URL) or
    /// postgres://…; on a server the demo uses a temporary schema
    #[arg(long, value_name = "KIND|URL", default_value = "sqlite")]
    pub(crate) store: String,
    /// Keep the file or the schema afterwards; a file named with --path is
    /// always kept
    #[arg(long)]
    pub(crate) keep: bool,
    /// Address of the server that shows the store during the demo; port 0
    /// picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Keep the server running after the proof, until Ctrl-C
    #[arg(long)]
    pub(crate) stay: bool,
    /// Format of the proof
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
}

/// `tidelock demo-worker`, hidden
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoWorker {
    /// The store
    #[command(flatten)]
    pub(crate) store: ChildStore,
    /// Name of the demo
    #[arg(long)]
    pub(crate) run: String,
    /// Name of the worker, unique among all workers that this demo ever had
    #[arg(long)]
    pub(crate) name: String,
}
