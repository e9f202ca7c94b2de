//! Arguments of `tidelock idempotency`.

use clap::{Args, Subcommand};

use super::{Pages, Source, WatchArgs};

/// `tidelock idempotency`
#[derive(Debug, Subcommand)]
pub(crate) enum IdempotencyVerb {
    /// List keys: those in flight, and the stored responses of the others
    #[command(after_help = LIST)]
    List(IdempotencyList),
    /// Show a key: the process that runs its request, or the stored response
    #[command(after_help = SHOW)]
    Show(IdempotencyShow),
    /// Delete the stored response of a key, so that its request runs again
    #[command(after_help = DELETE)]
    Delete(IdempotencyDelete),
}

const LIST: &str = "\
Examples:
  tidelock idempotency list --store app.db
  tidelock idempotency list --scope shop-1 --store app.db
  tidelock idempotency list --limit 20 --scope shop-1 --watch --store app.db
  tidelock idempotency list --store app.db -o json | jq -r '.keys[] | select(.state.in_flight) | .key'

Keys are sorted by scope and name.";

/// `tidelock idempotency list`
#[derive(Clone, Debug, Args)]
pub(crate) struct IdempotencyList {
    /// Only keys of this scope
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Option<String>,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const SHOW: &str = "\
Examples:
  tidelock idempotency show order-17 --store app.db
  tidelock idempotency show order-17 --scope shop-1 --store app.db
  tidelock idempotency show order-17 --store app.db -o json | jq -r .answer.body

A binary body is shown in hexadecimal.";

/// `tidelock idempotency show`
#[derive(Clone, Debug, Args)]
pub(crate) struct IdempotencyShow {
    /// Key
    pub(crate) key: String,
    /// Scope of the key
    #[arg(long, value_name = "SCOPE", default_value = "")]
    pub(crate) scope: String,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const DELETE: &str = "\
Examples:
  tidelock idempotency delete order-17 --dry-run --store app.db       show what would be deleted
  tidelock idempotency delete order-17 --scope shop-1 --yes --store app.db

The effects of the request stay. A request with the key runs again. The key of a request in flight is not deleted; it expires
if its process crashed.";

/// `tidelock idempotency delete`
#[derive(Clone, Debug, Args)]
pub(crate) struct IdempotencyDelete {
    /// Key
    pub(crate) key: String,
    /// Scope of the key
    #[arg(long, value_name = "SCOPE", default_value = "")]
    pub(crate) scope: String,
    /// Only show what would be deleted
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Skip the confirmation; required without a terminal
    #[arg(long)]
    pub(crate) yes: bool,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}
