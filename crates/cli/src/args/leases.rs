//! Arguments of `tidelock leases`.

use clap::{Args, Subcommand};

use super::{Pages, Rows, WatchArgs};

/// `tidelock leases`
#[derive(Debug, Subcommand)]
pub(crate) enum Leases {
    /// List leases: their holders, fences and remaining times
    #[command(after_help = LIST)]
    List(LeasesList),
    /// Show a lease by its key: its holder, the holder's note, and the waiters
    #[command(after_help = SHOW)]
    Show(LeasesShow),
}

const LIST: &str = "\
Examples:
  tidelock leases list --store app.db
  tidelock leases list --expired --store app.db            leases whose holders crashed or hang
  tidelock leases list --watch=1s --store app.db
  tidelock leases list --store app.db -o jsonl | jq -r 'select(.owner | startswith(\"worker-1\")) | .key'

The list has leases by key, and the leases of workers on work, runs and reactions. An expired lease stays valid until another
owner acquires the row. Locks inside a process are not in the store; see `tidelock locks`.";

/// `tidelock leases list`
#[derive(Clone, Debug, Args)]
pub(crate) struct LeasesList {
    /// The rows
    #[command(flatten)]
    pub(crate) rows: Rows,
    /// Only leases that have expired
    #[arg(long)]
    pub(crate) expired: bool,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const SHOW: &str = "\
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
    pub(crate) look: WatchArgs,
}
