//! Arguments of `tidelock streams`.

use clap::{Args, Subcommand};

use super::operate::{self, StreamsOperate, StreamsPark, StreamsParked, StreamsPrioritize};
use super::operate::{StreamsReplay, StreamsReset, StreamsStatus};
use super::place::rows;
use super::work::{self, StreamsBlocked, StreamsExport, StreamsImport};
use super::{Consent, Look, Pages, Source};

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
    /// Prints what happened and then what happens, in the order of the log, until Ctrl-C
    #[command(after_help = TAIL)]
    Tail(StreamsTail),
    /// Append an event at the current version; exit with 4 on a conflict
    #[command(after_help = APPEND)]
    Append(StreamsAppend),
    /// Close a stream permanently: it rejects further events
    #[command(after_help = CLOSE)]
    Close(StreamsClose),
    /// Write streams as JSON lines, for a copy in another store
    #[command(after_help = work::EXPORT)]
    Export(StreamsExport),
    /// Import what `export` wrote; events that are already present stay as
    /// they are
    #[command(after_help = work::IMPORT)]
    Import(StreamsImport),
    /// Lists work that is blocked; ends with 5 when there is any
    #[command(after_help = work::BLOCKED)]
    Blocked(StreamsBlocked),
    /// Show the progress, lag, holders and errors of reactions
    #[command(after_help = operate::STATUS)]
    Status(StreamsStatus),
    /// Resume blocked work where it stopped, with a fresh retry budget
    #[command(after_help = operate::UNBLOCK)]
    Unblock(StreamsOperate),
    /// Restart work from the beginning; the current holder is fenced off
    #[command(after_help = operate::RESET)]
    Reset(StreamsReset),
    /// Make work in backoff due at once
    #[command(after_help = operate::RETRY)]
    Retry(StreamsOperate),
    /// Change the priority of work
    #[command(after_help = operate::PRIORITIZE)]
    Prioritize(StreamsPrioritize),
    /// Park the event that blocks each key of a reaction; the key continues
    /// with the next one
    #[command(after_help = operate::PARK)]
    Park(StreamsPark),
    /// List the parked events of a reaction
    #[command(after_help = operate::PARKED)]
    Parked(StreamsParked),
    /// Retry parked events once
    #[command(after_help = operate::REPLAY)]
    Replay(StreamsReplay),
    /// Drop parked events: the reaction never handles them
    #[command(after_help = operate::DROP)]
    Drop(StreamsReplay),
}

const LIST: &str = "\
Examples:
  tidelock streams list --store app.db                  all streams
  tidelock streams list order --store app.db            those of a kind
  tidelock streams list 'order(\"o-' --store app.db       those of orders whose id begins with o-
  tidelock streams list order --limit 20 --cursor 'order(\"o-7\")' --store app.db";

/// `tidelock streams list`
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsList {
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

const SHOW: &str = "\
Examples:
  tidelock streams show 'order(\"o-1\")' --store app.db
  tidelock streams show 'order(\"o-1\")' --backward --limit 5 --store app.db     the last five
  tidelock streams show 'order(\"o-1\")' --from 40 --type Paid --type Refunded --store app.db
  tidelock streams show 'order(\"o-1\")' --store app.db -o jsonl | jq .payload
  tidelock streams show 'order(\"o-1\")' --backward --watch --store app.db

Versions count from 0. On a terminal, payloads are cut where the line ends; with -o json and jsonl they are whole, and times
are microseconds since 1970, UTC.";

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
    pub(crate) look: Look,
}

const TAIL: &str = "\
Examples:
  tidelock streams tail --store app.db                           everything, from the first event on
  tidelock streams tail --from now --store app.db                only what happens from now on
  tidelock streams tail 'order(\"o-1\")' --store app.db            one stream
  tidelock streams tail --prefix order --type Paid --from 1200 --store app.db -o json | jq -c .payload

Interrupted, it says on standard error where to go on with --from. It also ends when nobody reads its output any more.";

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

Without a condition, the version that is there is read first and appended to, so a writer in the same moment ends this one
with 4. Nothing checks the rules of your aggregates: what is appended has happened.";

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

The events stay and can be read. A stream is never opened again. Somebody who appends in the same moment ends this with 4.";

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
    pub(crate) consent: Consent,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}
