//! Arguments of `tidelock state`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::store_args::rows;
use super::{ConfirmArgs, Pages, Source, WatchArgs};

/// The verbs of `tidelock state`.
#[derive(Debug, Subcommand)]
pub(crate) enum State {
    /// List records by key: version, size, time of the last write and expiry
    #[command(after_help = LIST)]
    List(StateList),
    /// Print a record; exit with 3 when it does not exist
    #[command(after_help = GET)]
    Get(StateGet),
    /// Write a record against its current version; exit with 4 on a conflict
    #[command(after_help = SET)]
    Set(StateSet),
    /// Delete a record against its current version; exit with 4 on a conflict
    #[command(after_help = DELETE)]
    Delete(StateDelete),
    /// Print the last writes to a record, newest first, if it has a history
    #[command(after_help = HISTORY)]
    History(StateHistory),
    /// Print each version of a record as it arrives, until Ctrl-C
    #[command(after_help = WATCH)]
    Watch(StateWatch),
}

const LIST: &str = "\
Examples:
  tidelock state list --store app.db
  tidelock state list --prefix session --store app.db              records of a kind
  tidelock state list --prefix 'session(\"s-1\")' --store app.db     records of one session
  tidelock state list --prefix 'session(\"s-' --store app.db         records of sessions whose id begins with s-";

/// `tidelock state list`
#[derive(Clone, Debug, Args)]
pub(crate) struct StateList {
    /// Only keys with this prefix: a kind, or a key with its first arguments
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const GET: &str = "\
Examples:
  tidelock state get 'session(\"s-1\", \"cart\")' --store app.db
  tidelock state get 'session(\"s-1\", \"cart\")' --store app.db -o json | jq .version

Single quotes protect the key from the shell.";

/// `tidelock state get`
#[derive(Clone, Debug, Args)]
pub(crate) struct StateGet {
    /// Key, such as 'session("s-1", "cart")'
    pub(crate) key: String,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

/// The precondition for a change of a record.
#[derive(Clone, Debug, Args)]
pub(crate) struct Condition {
    /// Only if the record is at this version
    #[arg(long, value_name = "N", conflicts_with = "force")]
    pub(crate) if_version: Option<u64>,
    /// Write unconditionally, even against a concurrent writer
    #[arg(long)]
    pub(crate) force: bool,
}

const SET: &str = "\
Examples:
  tidelock state set 'limits(\"mail\")' '{\"per_hour\": 100}' --store app.db
  tidelock state set 'limits(\"mail\")' --file limits.json --if-version 7 --store app.db
  tidelock state get 'limits(\"mail\")' --store app.db | jq '.per_hour += 1' |
      tidelock state set 'limits(\"mail\")' - --if-version 7 --store app.db

Without a condition, the command writes against the version that it has just read, and exits with 4 on a concurrent write. An
equal value is not written again. The expiry of the record is kept. If the record has a history, the write is part of it. With
-o json, the previous record is printed as well.";

/// `tidelock state set`
#[derive(Clone, Debug, Args)]
pub(crate) struct StateSet {
    /// Key, such as 'session("s-1", "cart")'
    pub(crate) key: String,
    /// Value as JSON; - reads it from standard input
    #[arg(required_unless_present = "file", conflicts_with = "file", allow_negative_numbers = true)]
    pub(crate) value: Option<String>,
    /// File with the value as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The precondition
    #[command(flatten)]
    pub(crate) condition: Condition,
    /// Only if the record does not exist
    #[arg(long, conflicts_with_all = ["force", "if_version"])]
    pub(crate) if_absent: bool,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

const DELETE: &str = "\
Examples:
  tidelock state delete 'session(\"s-1\", \"cart\")' --store app.db
  tidelock state delete 'session(\"s-1\", \"cart\")' --if-version 7 --yes --store app.db -o json > before.json

A confirmation or --yes is required. With -o json, the previous record is printed. If the record has a history, the deletion is
part of it.";

/// `tidelock state delete`
#[derive(Clone, Debug, Args)]
pub(crate) struct StateDelete {
    /// Key, such as 'session("s-1", "cart")'
    pub(crate) key: String,
    /// The precondition
    #[command(flatten)]
    pub(crate) condition: Condition,
    /// The confirmation
    #[command(flatten)]
    pub(crate) consent: ConfirmArgs,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

const HISTORY: &str = "\
Examples:
  tidelock state history 'session(\"s-1\", \"cart\")' --store app.db
  tidelock state history 'session(\"s-1\", \"cart\")' --limit 5 --cursor 40 --store app.db -o json";

/// `tidelock state history`
#[derive(Clone, Debug, Args)]
pub(crate) struct StateHistory {
    /// Key, such as 'session("s-1", "cart")'
    pub(crate) key: String,
    /// Maximum number of writes [default: 20; with -o jsonl all of them]
    #[arg(long, value_name = "N", value_parser = rows)]
    pub(crate) limit: Option<usize>,
    /// Continue before this write, the cursor of the previous page
    #[arg(long, value_name = "N")]
    pub(crate) cursor: Option<u64>,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const WATCH: &str = "\
Examples:
  tidelock state watch 'session(\"s-1\", \"cart\")' --store app.db
  tidelock state watch 'session(\"s-1\", \"cart\")' --store app.db -o json | jq -c .value

The current version comes first. Versions in quick succession may be skipped; the newest never is. With -o json, each version is
an object on a line; one without a version means that the record does not exist.";

/// `tidelock state watch`
#[derive(Clone, Debug, Args)]
pub(crate) struct StateWatch {
    /// Key, such as 'session("s-1", "cart")'
    pub(crate) key: String,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}
