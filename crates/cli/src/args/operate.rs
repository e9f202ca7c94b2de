//! Arguments of the operator verbs of `tidelock streams`.

use clap::Args;

use super::{Look, Pages, Rows, Source};

pub(super) const UNBLOCK: &str = "\
Examples:
  tidelock streams unblock --reaction send-mail --store app.db        all of a reaction that is blocked
  tidelock streams unblock --reaction send-mail 'order(\"o-1\")' --store app.db
  tidelock streams unblock 'mail(\"o-1\")' 'mail(\"o-2\")' --store app.db
  tidelock streams unblock --lane mails --dry-run --store app.db      how many would it be, and which?
  tidelock streams unblock --like '^mail' --store app.db
  tidelock streams unblock --yes --store app.db                       all that is blocked

Without names and conditions, all blocked work is meant. That, or more than 100 rows, is asked about or needs --yes.";

pub(super) const RESET: &str = "\
Examples:
  tidelock streams reset --reaction count 'order(\"o-1\")' --store app.db    this key, from its first event on
  tidelock streams reset --reaction count --whole --store app.db           the reaction, from the first event of the log on
  tidelock streams reset 'import(\"orders\")' --store app.db
  tidelock streams reset --lane projections --dry-run --store app.db
  tidelock streams reset --lane projections --yes --store app.db

With a condition, all work that meets it is meant, blocked or not, also what somebody is just working on. Without names and
conditions, all blocked work is meant. That, or more than 100 rows, is asked about or needs --yes. What handlers did before is
not undone. Rows of reactions are reset with --reaction only: their parked events are forgotten in the same step.";

pub(super) const RETRY: &str = "\
Examples:
  tidelock streams retry --reaction send-mail --store app.db
  tidelock streams retry 'mail(\"o-1\")' --store app.db
  tidelock streams retry --lane mails --dry-run --store app.db
  tidelock streams retry --like '^mail' --store app.db

Blocked work stays blocked, and what somebody holds stays with them. Without names and conditions, all work that is open is
meant. That, or more than 100 rows, is asked about or needs --yes. Rows of reactions are meant with --reaction only.";

/// `tidelock streams unblock` and `retry`
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsOperate {
    /// Keys of the work, such as 'mail("o-1")'; with --reaction, its keys
    #[arg(value_name = "KEY", conflicts_with_all = ["lane", "like"])]
    pub(crate) keys: Vec<String>,
    /// Only work of this reaction
    #[arg(long, value_name = "NAME", conflicts_with = "lane")]
    pub(crate) reaction: Option<String>,
    /// The rows
    #[command(flatten)]
    pub(crate) rows: Rows,
    /// Only count the selected rows and those that would change, and show the
    /// first
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Skip the confirmation
    #[arg(long)]
    pub(crate) yes: bool,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

/// `tidelock streams reset`
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsReset {
    /// The whole reaction: all events are routed and handled again, and parked
    /// events are deleted
    #[arg(long, requires = "reaction", conflicts_with_all = ["keys", "like"])]
    pub(crate) whole: bool,
    /// The selection and the options
    #[command(flatten)]
    pub(crate) operate: StreamsOperate,
}

pub(super) const PRIORITIZE: &str = "\
Examples:
  tidelock streams prioritize 9 --reaction send-mail 'order(\"o-1\")' --store app.db
  tidelock streams prioritize 1 --lane mails --dry-run --store app.db

Names or a condition are needed. More than 100 rows are asked about or need --yes. With a reaction, it lasts until the next
event of the key is routed.";

/// `tidelock streams prioritize`
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsPrioritize {
    /// Priority, from 0 (last) to 9 (first); 5 is usual
    #[arg(value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: u8,
    /// The selection and the options
    #[command(flatten)]
    pub(crate) operate: StreamsOperate,
}

pub(super) const STATUS: &str = "\
Examples:
  tidelock streams status --store app.db                        all reactions: how far they are, and how far behind
  tidelock streams status send-mail --store app.db              the keys of one
  tidelock streams status send-mail --blocked --store app.db
  tidelock streams status send-mail 'order(\"o-1\")' --store app.db -o json

Nothing is leased or changed. A + after a number says that there may be more: not all events were looked at.";

/// `tidelock streams status`
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsStatus {
    /// Reaction [default: all of them, without their keys]
    pub(crate) reaction: Option<String>,
    /// Only these keys, such as 'order("o-1")'
    #[arg(value_name = "KEY", conflicts_with = "like")]
    pub(crate) keys: Vec<String>,
    /// Only keys that match this pattern
    #[arg(long, value_name = "PATTERN", requires = "reaction")]
    pub(crate) like: Option<String>,
    /// Only blocked keys
    #[arg(long, requires = "reaction")]
    pub(crate) blocked: bool,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: Look,
}

pub(super) const PARKED: &str = "\
Examples:
  tidelock streams parked send-mail --store app.db
  tidelock streams parked send-mail --store app.db -o json | jq '.events[].event.payload'";

/// `tidelock streams parked`
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsParked {
    /// Reaction
    pub(crate) reaction: String,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: Look,
}

pub(super) const PARK: &str = "\
Examples:
  tidelock streams park --reaction send-mail 'order(\"o-1\")' --store app.db
  tidelock streams park --reaction send-mail --dry-run --store app.db

Keys that are not blocked are passed over. All keys of a reaction, or more than 100, are asked about or need --yes.";

/// `tidelock streams park`
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsPark {
    /// Reaction
    #[arg(long, value_name = "NAME")]
    pub(crate) reaction: String,
    /// Only these keys, such as 'order("o-1")'
    #[arg(value_name = "KEY", conflicts_with = "like")]
    pub(crate) keys: Vec<String>,
    /// Only keys that match this pattern
    #[arg(long, value_name = "PATTERN")]
    pub(crate) like: Option<String>,
    /// Only count the selected events
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Skip the confirmation
    #[arg(long)]
    pub(crate) yes: bool,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

pub(super) const REPLAY: &str = "\
Examples:
  tidelock streams replay --reaction send-mail 'order(\"o-1\")' --store app.db
  tidelock streams replay --reaction send-mail --at 1207 --store app.db

A worker does it as soon as it can. Those that fail again stay parked, with the new error. All that is parked, or more than
100 events, are asked about or need --yes.";

pub(super) const DROP: &str = "\
Examples:
  tidelock streams drop --reaction send-mail --at 1207 --store app.db
  tidelock streams drop --reaction send-mail --dry-run --store app.db

The events stay in their streams; the reaction never handles them. It is always asked about or needs --yes.";

/// `tidelock streams replay` and `drop`
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsReplay {
    /// The selection and the options
    #[command(flatten)]
    pub(crate) park: StreamsPark,
    /// Only the event at this position; may be given several times
    #[arg(long, value_name = "POSITION")]
    pub(crate) at: Vec<u64>,
}
