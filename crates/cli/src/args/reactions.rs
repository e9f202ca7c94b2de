//! Arguments of `tidelock reactions`.

use clap::{Args, Subcommand};

use super::{ConfirmArgs, Pages, Source, WatchArgs};

/// `tidelock reactions`
#[derive(Debug, Subcommand)]
pub(crate) enum Reactions {
    /// List reactions: their progress, lag, blocked keys and errors
    #[command(after_help = LIST)]
    List(ReactionsList),
    /// Show the keys of a reaction: their progress, lag, holders and errors
    #[command(after_help = STATUS)]
    Status(ReactionsStatus),
    /// List the blocked keys of a reaction; exit with 5 when there are any
    #[command(after_help = BLOCKED)]
    Blocked(ReactionsBlocked),
    /// Resume blocked keys where they stopped, with a fresh retry budget
    #[command(after_help = UNBLOCK)]
    Unblock(ReactionsOperate),
    /// Make keys in backoff due at once
    #[command(after_help = RETRY)]
    Retry(ReactionsOperate),
    /// Restart keys, or a whole reaction, from the first event
    #[command(after_help = RESET)]
    Reset(ReactionsReset),
    /// Change the priority of keys
    #[command(after_help = PRIORITIZE)]
    Prioritize(ReactionsPrioritize),
    /// Park the event that blocks each key as a dead letter
    #[command(after_help = PARK)]
    Park(ReactionsOperate),
    /// List the dead letters of a reaction
    #[command(after_help = DEAD_LETTERS)]
    DeadLetters(ReactionsDeadLetters),
    /// Retry dead letters once
    #[command(after_help = REPLAY)]
    Replay(ReactionsReplay),
    /// Drop dead letters: the reaction never handles them
    #[command(after_help = DROP)]
    Drop(ReactionsReplay),
}

const LIST: &str = "\
Examples:
  tidelock reactions list --store app.db
  tidelock reactions list --watch --store app.db

The command leases nothing and changes nothing. A + after a number means that not all events were counted.";

/// `tidelock reactions list`
#[derive(Clone, Debug, Args)]
pub(crate) struct ReactionsList {
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

/// A reaction and a selection of its keys.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReactionKeys {
    /// Reaction
    pub(crate) reaction: String,
    /// Only these keys, such as 'order("o-1")'
    #[arg(value_name = "KEY", conflicts_with = "pattern")]
    pub(crate) keys: Vec<String>,
    /// Only keys that match this pattern
    #[arg(long, value_name = "PATTERN")]
    pub(crate) pattern: Option<String>,
}

const STATUS: &str = "\
Examples:
  tidelock reactions status send-mail --store app.db
  tidelock reactions status send-mail --blocked --store app.db
  tidelock reactions status send-mail 'order(\"o-1\")' --store app.db -o json

The command leases nothing and changes nothing. A + after a number means that not all events were counted.";

/// `tidelock reactions status`
#[derive(Clone, Debug, Args)]
pub(crate) struct ReactionsStatus {
    /// The keys
    #[command(flatten)]
    pub(crate) keys: ReactionKeys,
    /// Only blocked keys
    #[arg(long)]
    pub(crate) blocked: bool,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const BLOCKED: &str = "\
Examples:
  tidelock reactions blocked send-mail --store app.db
  tidelock reactions blocked send-mail --store app.db > /dev/null || send-alert

`tidelock work blocked` lists the blocked rows of all reactions, runs and jobs.";

/// `tidelock reactions blocked`
#[derive(Clone, Debug, Args)]
pub(crate) struct ReactionsBlocked {
    /// The keys
    #[command(flatten)]
    pub(crate) keys: ReactionKeys,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const UNBLOCK: &str = "\
Examples:
  tidelock reactions unblock send-mail --store app.db                    all blocked keys
  tidelock reactions unblock send-mail 'order(\"o-1\")' --store app.db
  tidelock reactions unblock send-mail --dry-run --store app.db          count and show the keys

More than 100 keys require a confirmation or --yes.";

const RETRY: &str = "\
Examples:
  tidelock reactions retry send-mail --store app.db
  tidelock reactions retry send-mail 'order(\"o-1\")' --store app.db

Blocked and leased keys are left unchanged. More than 100 keys require a confirmation or --yes.";

/// `tidelock reactions unblock`, `retry` and `park`
#[derive(Clone, Debug, Args)]
pub(crate) struct ReactionsOperate {
    /// The keys
    #[command(flatten)]
    pub(crate) keys: ReactionKeys,
    /// The confirmation
    #[command(flatten)]
    pub(crate) consent: ConfirmArgs,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

const RESET: &str = "\
Examples:
  tidelock reactions reset count 'order(\"o-1\")' --store app.db    this key, from its first event
  tidelock reactions reset count --whole --store app.db           the reaction, from the first event of the log

The handler is called again for all events, and dead letters are deleted in the same step. Effects of handlers are not undone.
Without keys and conditions, or for more than 100 keys, a confirmation or --yes is required.";

/// `tidelock reactions reset`
#[derive(Clone, Debug, Args)]
pub(crate) struct ReactionsReset {
    /// Restart the whole reaction: route and handle all events again, and
    /// delete its dead letters
    #[arg(long, conflicts_with_all = ["keys", "pattern"])]
    pub(crate) whole: bool,
    /// The selection and the options
    #[command(flatten)]
    pub(crate) operate: ReactionsOperate,
}

const PRIORITIZE: &str = "\
Examples:
  tidelock reactions prioritize 9 send-mail 'order(\"o-1\")' --store app.db

The priority lasts until the next event of the key is routed. Without keys and conditions, or for more than 100 keys, a
confirmation or --yes is required.";

/// `tidelock reactions prioritize`
#[derive(Clone, Debug, Args)]
pub(crate) struct ReactionsPrioritize {
    /// Priority, from 0 (last) to 9 (first); 5 is the default
    #[arg(value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: u8,
    /// The selection and the options
    #[command(flatten)]
    pub(crate) operate: ReactionsOperate,
}

const PARK: &str = "\
Examples:
  tidelock reactions park send-mail 'order(\"o-1\")' --store app.db
  tidelock reactions park send-mail --dry-run --store app.db

The key continues with its next event. Keys that are not blocked are skipped. Without keys and conditions, or for more than 100
keys, a confirmation or --yes is required.";

const DEAD_LETTERS: &str = "\
Examples:
  tidelock reactions dead-letters send-mail --store app.db
  tidelock reactions dead-letters send-mail --store app.db -o json | jq '.events[].event.payload'";

/// `tidelock reactions dead-letters`
#[derive(Clone, Debug, Args)]
pub(crate) struct ReactionsDeadLetters {
    /// Reaction
    pub(crate) reaction: String,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const REPLAY: &str = "\
Examples:
  tidelock reactions replay send-mail 'order(\"o-1\")' --store app.db
  tidelock reactions replay send-mail --position 1207 --store app.db

A worker retries each dead letter once. Those that fail again stay parked, with the new error. All dead letters, or more than
100, require a confirmation or --yes.";

const DROP: &str = "\
Examples:
  tidelock reactions drop send-mail --position 1207 --store app.db
  tidelock reactions drop send-mail --dry-run --store app.db

The events stay in their streams; the reaction never handles them. A confirmation or --yes is always required.";

/// `tidelock reactions replay` and `drop`
#[derive(Clone, Debug, Args)]
pub(crate) struct ReactionsReplay {
    /// The selection and the options
    #[command(flatten)]
    pub(crate) operate: ReactionsOperate,
    /// Only the event at this position; may be given several times
    #[arg(long, value_name = "POSITION")]
    pub(crate) position: Vec<u64>,
}
