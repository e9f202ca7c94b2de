//! Arguments of `tidelock work`.

use clap::{Args, Subcommand, ValueEnum};

use super::{ConfirmArgs, Pages, Source, WatchArgs};

/// `tidelock work`
#[derive(Debug, Subcommand)]
pub(crate) enum Work {
    /// List rows of work: their holders, due times and errors
    #[command(after_help = LIST)]
    List(WorkList),
    /// Show all details of a row of work; exit with 3 when it does not exist
    #[command(after_help = SHOW)]
    Show(WorkShow),
    /// List blocked work; exit with 5 when there is any
    #[command(after_help = BLOCKED)]
    Blocked(WorkBlocked),
    /// Resume blocked work where it stopped, with a fresh retry budget
    #[command(after_help = UNBLOCK)]
    Unblock(WorkOperate),
    /// Make work in backoff due at once
    #[command(after_help = RETRY)]
    Retry(WorkOperate),
    /// Restart work from the beginning; the current holder is fenced off
    #[command(after_help = RESET)]
    Reset(WorkOperate),
    /// Change the priority of work
    #[command(after_help = PRIORITIZE)]
    Prioritize(WorkPrioritize),
}

/// Conditions on work rows.
#[derive(Clone, Debug, Args)]
pub(crate) struct Rows {
    /// Only work in this queue
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Option<String>,
    /// Only work whose key matches this pattern
    #[arg(long, value_name = "PATTERN")]
    pub(crate) pattern: Option<String>,
}

const LIST: &str = "\
Examples:
  tidelock work list --store app.db
  tidelock work list --queue mails --state leased --watch --store app.db
  tidelock work list --state blocked --store app.db -o jsonl | jq -r .key
  tidelock work list --all --store app.db          include internal rows: runs, reactions, leases

A pattern supports ^, $, . and .*, and is matched with the kind of the key and its arguments, separated by spaces.";

/// The state of a row of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkState {
    /// Blocked until an operator acts
    Blocked,
    /// Leased by a worker
    Leased,
    /// Neither leased nor blocked
    Free,
}

/// `tidelock work list`
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkList {
    /// The rows
    #[command(flatten)]
    pub(crate) rows: Rows,
    /// Only rows in this state
    #[arg(long, value_enum)]
    pub(crate) state: Option<WorkState>,
    /// Include internal rows: kinds that begin with tidelock.
    #[arg(long)]
    pub(crate) all: bool,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const SHOW: &str = "\
Examples:
  tidelock work show 'mail(\"o-1\")' --store app.db
  tidelock work show 'mail(\"o-1\")' --watch --store app.db";

/// `tidelock work show`
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkShow {
    /// Key, such as 'mail("o-1")'
    pub(crate) key: String,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const BLOCKED: &str = "\
Examples:
  tidelock work blocked --store app.db
  tidelock work blocked --queue mails --pattern '^mail' --store app.db -o jsonl | jq -r .key
  tidelock work blocked --store app.db > /dev/null || send-alert

The list includes the rows of reactions and runs. A pattern supports ^, $, . and .*, and is matched with the kind of the key and
its arguments, separated by spaces.";

/// `tidelock work blocked`
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkBlocked {
    /// The rows
    #[command(flatten)]
    pub(crate) rows: Rows,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const UNBLOCK: &str = "\
Examples:
  tidelock work unblock 'mail(\"o-1\")' 'mail(\"o-2\")' --store app.db
  tidelock work unblock --queue mails --dry-run --store app.db      count and show the rows
  tidelock work unblock --pattern '^mail' --store app.db
  tidelock work unblock --yes --store app.db                        all blocked rows

Without keys and conditions, all blocked work is selected. That, or more than 100 rows, requires a confirmation or --yes.";

const RETRY: &str = "\
Examples:
  tidelock work retry 'mail(\"o-1\")' --store app.db
  tidelock work retry --queue mails --dry-run --store app.db
  tidelock work retry --pattern '^mail' --store app.db

Blocked and leased rows are left unchanged. Without keys and conditions, all other rows are selected. That, or more than 100
rows, requires a confirmation or --yes. For a key of a reaction, use `tidelock reactions retry`.";

const RESET: &str = "\
Examples:
  tidelock work reset 'import(\"orders\")' --store app.db
  tidelock work reset --queue projections --dry-run --store app.db
  tidelock work reset --queue projections --yes --store app.db

A condition selects all matching rows, including leased ones. Without keys and conditions, all blocked work is selected. That,
or more than 100 rows, requires a confirmation or --yes. Effects of handlers are not undone. For a key of a reaction, use
`tidelock reactions reset`, which also deletes its dead letters.";

/// `tidelock work unblock`, `retry` and `reset`
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkOperate {
    /// Keys of the work, such as 'mail("o-1")'
    #[arg(value_name = "KEY", conflicts_with_all = ["queue", "pattern"])]
    pub(crate) keys: Vec<String>,
    /// The rows
    #[command(flatten)]
    pub(crate) rows: Rows,
    /// The confirmation
    #[command(flatten)]
    pub(crate) consent: ConfirmArgs,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

const PRIORITIZE: &str = "\
Examples:
  tidelock work prioritize 9 'mail(\"o-1\")' --store app.db
  tidelock work prioritize 1 --queue mails --dry-run --store app.db

Keys or a condition are required. More than 100 rows require a confirmation or --yes.";

/// `tidelock work prioritize`
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkPrioritize {
    /// Priority, from 0 (last) to 9 (first); 5 is the default
    #[arg(value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: u8,
    /// The selection and the options
    #[command(flatten)]
    pub(crate) operate: WorkOperate,
}
