//! What the user may type after `tidelock work` and `tidelock leases`.

use clap::{Args, Subcommand, ValueEnum};

use super::{Look, Pages, Rows};

/// `tidelock work`
#[derive(Debug, Subcommand)]
pub(crate) enum Work {
    /// Lists rows of work: who holds them, when they are due, and what is wrong
    #[command(after_help = LIST)]
    List(WorkList),
    /// Shows all there is about a row of work; ends with 3 when there is none
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

/// How a row of work stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkState {
    /// It waits for an operator
    Blocked,
    /// Somebody works on it
    Held,
    /// Nobody works on it, and it is not blocked
    Free,
}

/// `tidelock work list`
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkList {
    /// Which rows
    #[command(flatten)]
    pub(crate) rows: Rows,
    /// Only rows that stand so
    #[arg(long, value_enum)]
    pub(crate) state: Option<WorkState>,
    /// Also rows that Tidelock keeps for itself: kinds that begin with tidelock.
    #[arg(long)]
    pub(crate) all: bool,
    /// Which page
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
    /// The key, such as 'mail("o-1")'
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
    /// Shows a lease that was taken by its key: its holder, what that noted, and who waits
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
    /// Which rows
    #[command(flatten)]
    pub(crate) rows: Rows,
    /// Only leases whose time has run out
    #[arg(long)]
    pub(crate) ended: bool,
    /// Which page
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
    /// The key that the lease is on, such as 'report("daily")'
    pub(crate) key: String,
    /// The store
    #[command(flatten)]
    pub(crate) look: Look,
}
