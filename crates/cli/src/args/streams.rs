//! What the user may type after `tidelock streams`.

use clap::{Args, Subcommand};

use super::operate::{self, StreamsOperate, StreamsPark, StreamsParked, StreamsPrioritize};
use super::operate::{StreamsReplay, StreamsReset, StreamsStatus};
use super::place::rows;
use super::work::{self, StreamsBlocked, StreamsExport, StreamsImport};
use super::{Consent, Look, Pages, Source};

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Streams {
    /// Lists streams in the order of their keys: the version of the last event, its type and time, and whether it is closed
    #[command(after_help = LIST)]
    List(StreamsList),
    /// Prints the events of a stream; ends with 3 when there is no such stream
    #[command(after_help = SHOW)]
    Show(StreamsShow),
    /// Prints what happened and then what happens, in the order of the log, until Ctrl-C
    #[command(after_help = TAIL)]
    Tail(StreamsTail),
    /// Appends an event at the version that is there; ends with 4 when somebody else was faster
    #[command(after_help = APPEND)]
    Append(StreamsAppend),
    /// Closes a stream for ever: nothing can be appended to it any more
    #[command(after_help = CLOSE)]
    Close(StreamsClose),
    /// Writes streams as lines of JSON, for a copy in another store
    #[command(after_help = work::EXPORT)]
    Export(StreamsExport),
    /// Reads what `export` wrote; what is there already stays as it is
    #[command(after_help = work::IMPORT)]
    Import(StreamsImport),
    /// Lists work that is blocked; ends with 5 when there is any
    #[command(after_help = work::BLOCKED)]
    Blocked(StreamsBlocked),
    /// Shows how far reactions are, how far behind, who works on them and what is wrong
    #[command(after_help = operate::STATUS)]
    Status(StreamsStatus),
    /// Lets blocked work go on where it stopped, with a fresh budget
    #[command(after_help = operate::UNBLOCK)]
    Unblock(StreamsOperate),
    /// Lets work start again from the beginning; whoever holds it is fenced off
    #[command(after_help = operate::RESET)]
    Reset(StreamsReset),
    /// Makes work that waits for its next attempt due at once
    #[command(after_help = operate::RETRY)]
    Retry(StreamsOperate),
    /// Gives work another urgency
    #[command(after_help = operate::PRIORITIZE)]
    Prioritize(StreamsPrioritize),
    /// Sets aside the event that each blocked key of a reaction stands before; the key goes on with the next one
    #[command(after_help = operate::PARK)]
    Park(StreamsPark),
    /// Lists the events that a reaction has set aside
    #[command(after_help = operate::PARKED)]
    Parked(StreamsParked),
    /// Tries parked events once more
    #[command(after_help = operate::REPLAY)]
    Replay(StreamsReplay),
    /// Drops parked events: the reaction never handles them
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
    /// What the keys begin with: a kind, or a key with its first arguments [default: all keys]
    pub(crate) prefix: Option<String>,
    /// Which page
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
    /// The stream, such as 'order("o-1")'
    pub(crate) key: String,
    /// Begins with the event of this version [default: the first, or the last with --backward]
    #[arg(long, value_name = "N", visible_alias = "cursor")]
    pub(crate) from: Option<u64>,
    /// At most so many [default: 100; with -o jsonl all of them]
    #[arg(long, value_name = "N", value_parser = rows)]
    pub(crate) limit: Option<usize>,
    /// The newest first
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
    /// One stream, such as 'order("o-1")' [default: all of them]
    #[arg(conflicts_with = "prefix")]
    pub(crate) key: Option<String>,
    /// Only streams whose keys begin like this: a kind, or a key with its first arguments
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    /// Only events of this type; may be given several times
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) types: Vec<String>,
    /// Where to begin: beginning, now, or after the event at a position
    #[arg(long, value_name = "beginning|now|POSITION", default_value = "beginning", value_parser = from)]
    pub(crate) from: TailFrom,
    /// Also what Tidelock keeps for itself: types that begin with tidelock.
    #[arg(long)]
    pub(crate) internal: bool,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

/// Where `tail` begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TailFrom {
    /// With the first event.
    Beginning,
    /// With what happens from now on.
    Now,
    /// After the event at this position.
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
    /// The stream, such as 'order("o-1")'
    pub(crate) key: String,
    /// What the event is called, such as Paid
    #[arg(value_name = "TYPE")]
    pub(crate) event_type: String,
    /// What it says, as JSON; - reads it from standard input
    #[arg(value_name = "JSON", allow_negative_numbers = true)]
    pub(crate) payload: String,
    /// Only if the last event has this version
    #[arg(long, value_name = "N", conflicts_with = "if_absent")]
    pub(crate) if_version: Option<u64>,
    /// Only if there is no such stream
    #[arg(long)]
    pub(crate) if_absent: bool,
    /// The conversation that the event belongs to
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
    /// The stream, such as 'order("o-1")'
    pub(crate) key: String,
    /// Only if the last event has this version
    #[arg(long, value_name = "N")]
    pub(crate) if_version: Option<u64>,
    /// How it is agreed on
    #[command(flatten)]
    pub(crate) consent: Consent,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}
