//! Arguments of `tidelock work` and `tidelock leases`.

use clap::{Args, Subcommand, ValueEnum};

use super::{Look, Pages, Rows};

/// `tidelock work`
#[derive(Debug, Subcommand)]
pub(crate) enum Work {
    /// List rows of work: their holders, due times and errors
    #[command(after_help = LIST)]
    List(WorkList),
    /// Show all details of a row of work; exit with 3 when it does not exist
    #[command(after_help = SHOW)]
    Show(WorkShow),
}

const LIST: &str = "\
Examples:
  tidelock work list --store app.db
  tidelock work list --lane mails --state held --watch --store app.db
  tidelock work list --state blocked --store app.db -o jsonl | jq -r .key
  tidelock work list --all --store app.db                  what Tidelock keeps for itself, too: runs, reactions, leases

A pattern knows ^, $, . and .*, and is matched with the kind of the key and its arguments, set apart by blanks. `tidelock streams
unblock`, `retry`, `reset` and `prioritize` put rows back to work.";

/// The state of a row of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkState {
    /// Blocked until an operator acts
    Blocked,
    /// Leased by a worker
    Held,
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
    /// Include Tidelock's internal rows: kinds that begin with tidelock.
    #[arg(long)]
    pub(crate) all: bool,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: Look,
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
    pub(crate) look: Look,
}

/// `tidelock leases`
#[derive(Debug, Subcommand)]
pub(crate) enum Leases {
    /// Lists what somebody holds at the moment: who, with which fence, and for how long still
    #[command(after_help = LEASES)]
    List(LeasesList),
    /// Show a lease by its key: its holder, the holder's note, and the waiters
    #[command(after_help = LEASE)]
    Show(LeasesShow),
}

const LEASES: &str = "\
Examples:
  tidelock leases list --store app.db
  tidelock leases list --ended --store app.db             whose holders died or hang
  tidelock leases list --watch=1s --store app.db
  tidelock leases list --store app.db -o jsonl | jq -r 'select(.owner | startswith(\"worker-1\")) | .key'

Leases by key, and the leases of workers on work, runs and reactions. A lease that has ended is its holder's until somebody else
takes the row. Locks are inside one process, and no store knows them.";

/// `tidelock leases list`
#[derive(Clone, Debug, Args)]
pub(crate) struct LeasesList {
    /// The rows
    #[command(flatten)]
    pub(crate) rows: Rows,
    /// Only leases that have expired
    #[arg(long)]
    pub(crate) ended: bool,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: Look,
}

const LEASE: &str = "\
Examples:
  tidelock leases show 'report(\"daily\")' --store app.db
  tidelock leases show 'report(\"daily\")' --store app.db -o json | jq .waiters";

/// `tidelock leases show`
#[derive(Clone, Debug, Args)]
pub(crate) struct LeasesShow {
    /// Key of the lease, such as 'report("daily")'
    pub(crate) key: String,
    /// The store
    #[command(flatten)]
    pub(crate) look: Look,
}
