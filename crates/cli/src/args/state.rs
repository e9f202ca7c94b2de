//! Arguments of `tidelock state`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::place::rows;
use super::{Consent, Look, Pages, Source};

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
  tidelock state list --store app.db                    all records
  tidelock state list session --store app.db            those of a kind
  tidelock state list 'session(\"s-1\")' --store app.db   those of one session
  tidelock state list 'session(\"s-' --store app.db       those of sessions whose id begins with s-";

/// `tidelock state list`
#[derive(Clone, Debug, Args)]
pub(crate) struct StateList {
    /// Prefix of the keys: a kind, or a key with its first arguments [default:
    /// all keys]
    pub(crate) prefix: Option<String>,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: Look,
}

const GET: &str = "\
Examples:
  tidelock state get 'session(\"s-1\", \"cart\")' --store app.db
  tidelock state get 'session(\"s-1\", \"cart\")' --store app.db -o json | jq .version

Single quotes keep the shell away from the key. With -o json, times are microseconds since 1970, UTC.";

/// `tidelock state get`
#[derive(Clone, Debug, Args)]
pub(crate) struct StateGet {
    /// Key, such as 'session("s-1", "cart")'
    pub(crate) key: String,
    /// The store
    #[command(flatten)]
    pub(crate) look: Look,
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

Without a condition, the version that is there is read first and written against, so a writer in the same moment ends
this one with 4 instead of being overwritten. The same value is not written again. When the record expires, it still does.
If the record has a history, the write is told in it. With -o json, the record as it was before is printed, too.";

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

It is asked about, or needs --yes. With -o json, the record as it was before is printed. If the record has a history, the deletion is told in it.";

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
    pub(crate) consent: Consent,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

const HISTORY: &str = "\
Examples:
  tidelock state history 'session(\"s-1\", \"cart\")' --store app.db
  tidelock state history 'session(\"s-1\", \"cart\")' --limit 5 --before 40 --store app.db -o json";

/// `tidelock state history`
#[derive(Clone, Debug, Args)]
pub(crate) struct StateHistory {
    /// Key, such as 'session("s-1", "cart")'
    pub(crate) key: String,
    /// Maximum number of writes [default: 20; with -o jsonl all of them]
    #[arg(long, value_name = "N", value_parser = rows)]
    pub(crate) limit: Option<usize>,
    /// Only writes before this number
    #[arg(long, value_name = "N", visible_alias = "before")]
    pub(crate) cursor: Option<u64>,
    /// The store
    #[command(flatten)]
    pub(crate) look: Look,
}

const WATCH: &str = "\
Examples:
  tidelock state watch 'session(\"s-1\", \"cart\")' --store app.db
  tidelock state watch 'session(\"s-1\", \"cart\")' --store app.db -o json | jq -c .value

The version that is there comes first. Versions that follow each other quickly may be passed over; the newest never is.
With -o json, each is an object on a line of its own; one without a version says that there is no record.";

/// `tidelock state watch`
#[derive(Clone, Debug, Args)]
pub(crate) struct StateWatch {
    /// Key, such as 'session("s-1", "cart")'
    pub(crate) key: String,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}
