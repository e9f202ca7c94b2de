//! Arguments of `tidelock runs`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use tidelock::clock::parse_duration;
use tidelock::workflow::RunStatus as Status;

use super::queues::{LIMIT, QUEUES, RunsLimit, RunsQueues};
use super::{ConfirmArgs, Pages, Source, WatchArgs};

/// `tidelock runs`
#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// List runs and their current activity
    #[command(after_help = LIST)]
    List(RunsList),
    /// Show all details of a run: its state, attributes and steps
    #[command(after_help = SHOW)]
    Show(RunsShow),
    /// List the operations of a run so far: steps, timers, children and
    /// signals
    #[command(after_help = STEPS)]
    Steps(RunsSteps),
    /// Print the recorded history of a run as JSON, for a replay test
    #[command(after_help = HISTORY)]
    History(RunsHistory),
    /// Start a run of a workflow that a worker has registered, and print its
    /// id
    #[command(after_help = START)]
    Start(RunsStart),
    /// Send a signal to a run
    #[command(after_help = SIGNAL)]
    Signal(RunsSignal),
    /// Ask a run to stop and to clean up
    #[command(after_help = CANCEL)]
    Cancel(RunsCancel),
    /// Resume a run that has failed, is in backoff or is blocked
    #[command(after_help = RESUME)]
    Resume(RunsResume),
    /// Start a run with the history of another one up to a step, and print its
    /// id
    #[command(after_help = FORK)]
    Fork(RunsFork),
    /// Print the journal of a run as it grows, until the run ends
    #[command(after_help = WATCH)]
    Watch(RunsWatch),
    /// Remove runs that ended long ago, with their journals
    #[command(after_help = PRUNE)]
    Prune(RunsPrune),
    /// List queues and their limits
    #[command(after_help = QUEUES)]
    Queues(RunsQueues),
    /// Limit the concurrency and the start rate of a queue, across all
    /// processes
    #[command(after_help = LIMIT)]
    Limit(RunsLimit),
}

const LIST: &str = "\
Examples:
  tidelock runs list --store app.db
  tidelock runs list --workflow order --status failed --store app.db
  tidelock runs list --attribute customer=c-7 --since 2h --store app.db
  tidelock runs list --status running --before 1d --store app.db        no change for a day
  tidelock runs list --status failed --prefix order- --limit 20 --store app.db
  tidelock runs list --status running --watch=5s --store app.db
  tidelock runs list --status failed --store app.db -o jsonl | jq -r .run

Runs are listed newest first, by their start. Each page ends with a cursor for the next one; runs that start or end between two
pages neither repeat nor hide others. With a condition that few runs meet, a short page may have a next one. The counts are
those of the page.";

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunStatus {
    /// Not ended
    Running,
    /// Ended with success
    Completed,
    /// Failed
    Failed,
    /// Cancelled
    Cancelled,
}

impl From<RunStatus> for Status {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Running => Self::Running,
            RunStatus::Completed => Self::Completed,
            RunStatus::Failed => Self::Failed,
            RunStatus::Cancelled => Self::Cancelled,
        }
    }
}

/// `tidelock runs list`
#[derive(Clone, Debug, Args)]
pub(crate) struct RunsList {
    /// Only runs of this workflow
    #[arg(long, value_name = "WORKFLOW")]
    pub(crate) workflow: Option<String>,
    /// Only runs with this status
    #[arg(long, value_enum)]
    pub(crate) status: Option<RunStatus>,
    /// Only runs whose id has this prefix
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    /// Only runs with this attribute; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = attribute)]
    pub(crate) attribute: Vec<(String, String)>,
    /// Only runs that changed within this time, such as 2h
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) since: Option<Duration>,
    /// Only runs that last changed before this time, such as 7d
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) before: Option<Duration>,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const SHOW: &str = "\
Examples:
  tidelock runs show order-17 --store app.db
  tidelock runs show order-17 --store app.db -o json | jq .output

On a terminal, the values of steps are truncated to the line; -o json prints them completely.";

const STEPS: &str = "\
Examples:
  tidelock runs steps order-17 --store app.db
  tidelock runs steps order-17 --store app.db -o jsonl | jq 'select(.state == \"failed\")'

Steps are listed when they have completed or failed; a step in flight is not recorded yet. For a run that continued as new, the
list begins there.";

/// `tidelock runs steps`
#[derive(Clone, Debug, Args)]
pub(crate) struct RunsSteps {
    /// Id of the run
    pub(crate) run: String,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

/// `tidelock runs history`
#[derive(Clone, Debug, Args)]
pub(crate) struct RunsHistory {
    /// Id of the run
    pub(crate) run: String,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

/// `tidelock runs show`
#[derive(Clone, Debug, Args)]
pub(crate) struct RunsShow {
    /// Id of the run
    pub(crate) run: String,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const HISTORY: &str = "\
Example:
  tidelock runs history order-17 --store app.db > tests/order-17.json

A test passes it to tidelock::workflow::replay with the current code. It contains the recorded inputs and results of steps, so
keep secrets out of it.";

const START: &str = "\
Examples:
  tidelock runs start order --input '{\"item\": \"tea\"}' --store app.db
  tidelock runs start order --input-file order.json --id order-17 --store app.db
  tidelock runs start order --input - --attribute customer=c-7 --store app.db < order.json
  tidelock runs start report --after 2h --priority 1 --store app.db
  tidelock runs start order --input '{\"item\": \"tea\"}' --wait --store app.db

The default input is null. A second start with the same id and input returns the same run; with another input, the command exits
with 4. With --wait, the output is printed and the id goes to standard error; a failed or cancelled run exits with 6.";

/// `tidelock runs start`
#[derive(Clone, Debug, Args)]
pub(crate) struct RunsStart {
    /// Name under which a worker has registered the workflow
    pub(crate) workflow: String,
    /// Input as JSON; - reads it from standard input [default: null]
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) input: Option<String>,
    /// File with the input as JSON
    #[arg(long, value_name = "FILE", conflicts_with = "input")]
    pub(crate) input_file: Option<PathBuf>,
    /// Id of the run [default: a new UUID]
    #[arg(long, value_name = "RUN")]
    pub(crate) id: Option<String>,
    /// Queue of the run [default: the one in which a worker registered the
    /// workflow]
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// Priority, from 0 (last) to 9 (first); 5 is the default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: Option<u8>,
    /// Delay of the start, such as 2h
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) after: Option<Duration>,
    /// Attribute for searching; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = attribute)]
    pub(crate) attribute: Vec<(String, String)>,
    /// Wait for the end, and print the output
    #[arg(long)]
    pub(crate) wait: bool,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

const SIGNAL: &str = "\
Examples:
  tidelock runs signal order-17 approved --value true --store app.db
  tidelock runs signal order-17 paid --value '{\"amount\": 20}' --id payment-3 --store app.db
  tidelock runs signal order-17 paid --value - --store app.db < paid.json

The default value is null. An early signal waits for the run. A signal with the same id is delivered once. The workflow alone
decides which values are valid; an invalid one can fail the run.";

/// `tidelock runs signal`
#[derive(Clone, Debug, Args)]
pub(crate) struct RunsSignal {
    /// Id of the run
    pub(crate) run: String,
    /// Name of the signal
    pub(crate) name: String,
    /// Value as JSON; - reads it from standard input [default: null]
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) value: Option<String>,
    /// Id of the signal, which identifies duplicates
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

const CANCEL: &str = "\
Examples:
  tidelock runs cancel order-17 --reason 'the customer called' --store app.db
  tidelock runs cancel order-17 --yes --store app.db

Pending waits are cancelled, a step in flight completes, and the workflow cleans up. `tidelock runs watch` follows the run.";

/// `tidelock runs cancel`
#[derive(Clone, Debug, Args)]
pub(crate) struct RunsCancel {
    /// Id of the run
    pub(crate) run: String,
    /// Reason, which is recorded
    #[arg(long, value_name = "TEXT", default_value = "cancelled at the command line")]
    pub(crate) reason: String,
    /// The confirmation
    #[command(flatten)]
    pub(crate) consent: ConfirmArgs,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

const RESUME: &str = "\
Examples:
  tidelock runs resume order-17 --reason 'the bank is back' --store app.db

A failed run retries the step that failed, with a fresh retry budget. A run in backoff or blocked is retried at once. For a
completed, cancelled or compensated run, the command exits with 4.";

/// `tidelock runs resume`
#[derive(Clone, Debug, Args)]
pub(crate) struct RunsResume {
    /// Id of the run
    pub(crate) run: String,
    /// Reason, which is recorded
    #[arg(long, value_name = "TEXT", default_value = "resumed at the command line")]
    pub(crate) reason: String,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

const FORK: &str = "\
Examples:
  tidelock runs steps order-17 --store app.db                       its steps
  tidelock runs fork order-17 --from charge --store app.db
  tidelock runs fork order-17 --from charge --id order-17-again --store app.db

The other run, and the effects of its steps outside the store, stay unchanged. If the id is taken, the command exits with 4.";

/// `tidelock runs fork`
#[derive(Clone, Debug, Args)]
pub(crate) struct RunsFork {
    /// Id of the run
    pub(crate) run: String,
    /// First step that is executed again
    #[arg(long, value_name = "STEP")]
    pub(crate) from: String,
    /// Id of the new run [default: a new UUID]
    #[arg(long, value_name = "NEW")]
    pub(crate) id: Option<String>,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

const WATCH: &str = "\
Examples:
  tidelock runs watch order-17 --store app.db
  tidelock runs watch order-17 --store app.db -o json | jq -c 'select(.entry == \"tried\") | .payload'
  tidelock runs watch order-17 --store app.db > /dev/null && echo completed

The output begins with the journal so far; for a run that continued as new, with the journal since then. The command exits with 0
when the run completes or the output is closed, with 6 when the run fails or is cancelled, and with 1 when interrupted.";

/// `tidelock runs watch`
#[derive(Clone, Debug, Args)]
pub(crate) struct RunsWatch {
    /// Id of the run
    pub(crate) run: String,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

const PRUNE: &str = "\
Examples:
  tidelock runs prune --older 30d --dry-run --store app.db          count the runs
  tidelock runs prune --older 30d --limit 1000 --yes --store app.db

Runs that have not ended, and runs whose parent has not, are never removed. After an interruption, the next call continues.";

/// `tidelock runs prune`
#[derive(Clone, Debug, Args)]
pub(crate) struct RunsPrune {
    /// Runs that ended longer ago than this, such as 30d
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) older: Duration,
    /// Maximum number of runs [default: all of them]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Only count the matching runs
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Skip the confirmation; required without a terminal
    #[arg(long)]
    pub(crate) yes: bool,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

/// Parses a name and a value.
fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}
