//! Arguments of `tidelock runs`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use tidelock::clock::parse_duration;
use tidelock::workflow::Status;

use super::queues::{LIMIT, QUEUES, RunsLimit, RunsQueues};
use super::{Consent, Look, Pages, Source};

/// `tidelock runs`
#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// List runs and their current activity
    #[command(after_help = LIST)]
    List(RunsList),
    /// Shows all there is about a run: how it stands, what it published, and its steps
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
    /// Removes runs that ended long ago, with all that they left
    #[command(after_help = RETIRE)]
    Retire(RunsRetire),
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
  tidelock runs list --status running --before 1d --store app.db        those that nothing has happened to for a day
  tidelock runs list --status failed --prefix order- --limit 20 --store app.db
  tidelock runs list --status running --watch=5s --store app.db
  tidelock runs list --status failed --store app.db -o jsonl | jq -r .run

Runs are listed newest first, by their start. A page ends with a cursor for the next one; runs that start or end meanwhile
neither repeat nor skip others. With conditions that few runs meet, a page may be short and still have a next one. The counts
are of what is listed. With -o json, times are microseconds since 1970, UTC.";

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
    pub(crate) look: Look,
}

const SHOW: &str = "\
Examples:
  tidelock runs show order-17 --store app.db
  tidelock runs show order-17 --store app.db -o json | jq .output

On a terminal, the values of steps are cut where the line ends; with -o json they are whole.";

const STEPS: &str = "\
Examples:
  tidelock runs steps order-17 --store app.db
  tidelock runs steps order-17 --store app.db -o jsonl | jq 'select(.state == \"failed\")'

Steps are listed when they have ended or failed: one that is just under way is not recorded yet. Of a run that continued as new,
those since then are listed.";

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
    pub(crate) look: Look,
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
    pub(crate) look: Look,
}

const HISTORY: &str = "\
Example:
  tidelock runs history order-17 --store app.db > tests/order-17.json

The test gives it to tidelock::workflow::replay with the code as it is now. Inputs and results of steps are in it as they were recorded:
keep what is secret out of the tests.";

const START: &str = "\
Examples:
  tidelock runs start order --input '{\"item\": \"tea\"}' --store app.db
  tidelock runs start order --input-file order.json --id order-17 --store app.db
  tidelock runs start order --input - --attribute customer=c-7 --store app.db < order.json
  tidelock runs start report --after 2h --priority 1 --store app.db
  tidelock runs start order --input '{\"item\": \"tea\"}' --wait --store app.db

Without an input it is null. Started again with the same id and input, it is the same run; with another input, it ends with 4.
With --wait, what the run brought is printed and its id goes to standard error; a run that fails or is cancelled ends it with 6.";

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
    /// Priority, from 0 (last) to 9 (first); 5 is usual
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

Without a value it is null. A signal that comes early waits for the run. Sent again with the same id, it is heard once. Only the
workflow knows which values fit: one that does not fit can fail the run.";

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

What the run waits for is given up, a step that has begun comes to its end, and the workflow cleans up. It may take a while:
`tidelock runs watch` follows it.";

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
    pub(crate) consent: Consent,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

const RESUME: &str = "\
Examples:
  tidelock runs resume order-17 --reason 'the bank is back' --store app.db

A run that failed tries the step again that failed it, with a fresh budget. One that is put off or blocked is tried at once. A run
that is completed or cancelled, or has taken back what it did, ends this with 4.";

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
  tidelock runs steps order-17 --store app.db                       the names of its steps
  tidelock runs fork order-17 --from charge --store app.db
  tidelock runs fork order-17 --from charge --id order-17-again --store app.db

The other run stays as it is, and so does what its steps did outside of the store. An id that is taken ends this with 4.";

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

It begins with what the run did so far; of a run that continued as new, with what it did since then. It ends with 0 when the run is
completed, with 6 when it failed or was cancelled, and with 1 when it is interrupted: the run goes on then. When nobody reads its
output any more, it ends with 0.";

/// `tidelock runs watch`
#[derive(Clone, Debug, Args)]
pub(crate) struct RunsWatch {
    /// Id of the run
    pub(crate) run: String,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

const RETIRE: &str = "\
Examples:
  tidelock runs retire --older 30d --dry-run --store app.db          how many would it be?
  tidelock runs retire --older 30d --limit 1000 --yes --store app.db

Runs that have not ended are never removed, nor are runs whose parent has not. Interrupted, it has removed some of them, and the
next call goes on.";

/// `tidelock runs retire`
#[derive(Clone, Debug, Args)]
pub(crate) struct RunsRetire {
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
