//! Arguments of `tidelock streams`.

use clap::{Args, Subcommand};

use super::store_args::rows;
use super::transfer::{self, StreamsExport, StreamsImport};
use super::{ConfirmArgs, Pages, Source, WatchArgs};

/// The verbs of `tidelock streams`.
#[derive(Debug, Subcommand)]
pub(crate) enum Streams {
    /// List streams by key: version, type and time of the last event, and
    /// closed
    #[command(after_help = LIST)]
    List(StreamsList),
    /// Print the events of a stream; exit with 3 when it does not exist
    #[command(after_help = SHOW)]
    Show(StreamsShow),
    /// Follow the log: print past and new events in order, until Ctrl-C
    #[command(after_help = TAIL)]
    Tail(StreamsTail),
    /// Append an event at the current version; exit with 4 on a conflict
    #[command(after_help = APPEND)]
    Append(StreamsAppend),
    /// Close a stream permanently: it rejects further events
    #[command(after_help = CLOSE)]
    Close(StreamsClose),
    /// Write streams as JSON lines, for a copy in another store
    #[command(after_help = transfer::EXPORT)]
    Export(StreamsExport),
    /// Import what `export` wrote; events that are already present stay as
    /// they are
    #[command(after_help = transfer::IMPORT)]
    Import(StreamsImport),
}

const LIST: &str = "\
Examples:
  tidelock streams list --store app.db
  tidelock streams list --prefix order --store app.db              streams of a kind
  tidelock streams list --prefix 'order(\"o-' --store app.db         streams of orders whose id begins with o-
  tidelock streams list --prefix order --limit 20 --cursor 'order(\"o-7\")' --store app.db";

/// `tidelock streams list`
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsList {
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

const SHOW: &str = "\
Examples:
  tidelock streams show 'order(\"o-1\")' --store app.db
  tidelock streams show 'order(\"o-1\")' --backward --limit 5 --store app.db     the last five
  tidelock streams show 'order(\"o-1\")' --from 40 --type Paid --type Refunded --store app.db
  tidelock streams show 'order(\"o-1\")' --store app.db -o jsonl | jq .payload
  tidelock streams show 'order(\"o-1\")' --backward --watch --store app.db

Versions start at 0. On a terminal, payloads are truncated to the line; -o json and jsonl print them completely.";

/// `tidelock streams show`
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsShow {
    /// Stream, such as 'order("o-1")'
    pub(crate) key: String,
    /// Start with the event of this version [default: the first, or the last
    /// with --backward]
    #[arg(long, value_name = "N", visible_alias = "cursor")]
    pub(crate) from: Option<u64>,
    /// Maximum number of events [default: 100; with -o jsonl all of them]
    #[arg(long, value_name = "N", value_parser = rows)]
    pub(crate) limit: Option<usize>,
    /// Print the newest first
    #[arg(long)]
    pub(crate) backward: bool,
    /// Only events of this type; may be given several times
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) types: Vec<String>,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const TAIL: &str = "\
Examples:
  tidelock streams tail --store app.db                           all events, from the first on
  tidelock streams tail --from now --store app.db                only new events
  tidelock streams tail 'order(\"o-1\")' --store app.db            one stream
  tidelock streams tail --prefix order --type Paid --from 1200 --store app.db -o json | jq -c .payload

When interrupted, the command prints on standard error the --from that continues. It also ends when its output is closed.";

/// `tidelock streams tail`
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsTail {
    /// Stream, such as 'order("o-1")' [default: all of them]
    #[arg(conflicts_with = "prefix")]
    pub(crate) key: Option<String>,
    /// Only streams with this key prefix: a kind, or a key with its first
    /// arguments
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    /// Only events of this type; may be given several times
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) types: Vec<String>,
    /// Start: beginning, now, or after the event at a position
    #[arg(long, value_name = "beginning|now|POSITION", default_value = "beginning", value_parser = from)]
    pub(crate) from: TailFrom,
    /// Include Tidelock's internal events: types that begin with tidelock.
    #[arg(long)]
    pub(crate) internal: bool,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

/// The start of `tail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TailFrom {
    /// The first event.
    Beginning,
    /// The first event appended from now on.
    Now,
    /// The first event after this position.
    After(u64),
}

fn from(text: &str) -> Result<TailFrom, String> {
    match text {
        "beginning" => Ok(TailFrom::Beginning),
        "now" => Ok(TailFrom::Now),
        number => number
            .parse()
            .map(TailFrom::After)
            .map_err(|_| "write beginning, now, or the position of an event".to_owned()),
    }
}

const APPEND: &str = "\
Examples:
  tidelock streams append 'order(\"o-1\")' Paid '{\"amount\": 20}' --store app.db
  tidelock streams append 'order(\"o-1\")' Paid '{\"amount\": 20}' --if-version 3 --store app.db
  tidelock streams append 'order(\"o-2\")' Placed - --if-absent --store app.db < placed.json

Without a condition, the command appends to the version that it has just read, and exits with 4 on a concurrent append. The
rules of your aggregates are not checked.";

/// `tidelock streams append`
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsAppend {
    /// Stream, such as 'order("o-1")'
    pub(crate) key: String,
    /// Type of the event, such as Paid
    #[arg(value_name = "TYPE")]
    pub(crate) event_type: String,
    /// Payload as JSON; - reads it from standard input
    #[arg(value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) payload: String,
    /// Only if the last event has this version
    #[arg(long, value_name = "N", conflicts_with = "if_absent")]
    pub(crate) if_version: Option<u64>,
    /// Only if the stream does not exist
    #[arg(long)]
    pub(crate) if_absent: bool,
    /// Correlation id of the event
    #[arg(long, value_name = "ID")]
    pub(crate) correlation: Option<String>,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

const CLOSE: &str = "\
Examples:
  tidelock streams close 'order(\"o-1\")' --dry-run --store app.db
  tidelock streams close 'order(\"o-1\")' --if-version 7 --yes --store app.db

The events stay readable. A closed stream cannot be reopened. The command exits with 4 on a concurrent append.";

/// `tidelock streams close`
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsClose {
    /// Stream, such as 'order("o-1")'
    pub(crate) key: String,
    /// Only if the last event has this version
    #[arg(long, value_name = "N")]
    pub(crate) if_version: Option<u64>,
    /// The confirmation
    #[command(flatten)]
    pub(crate) consent: ConfirmArgs,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}
