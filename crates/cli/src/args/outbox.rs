//! Arguments of `tidelock outbox`.

use clap::{Args, Subcommand};

use super::{ConfirmArgs, Pages, Source, WatchArgs};

/// `tidelock outbox`
#[derive(Debug, Subcommand)]
pub(crate) enum OutboxVerb {
    /// List undelivered messages; exit with 5 when one is blocked
    #[command(after_help = LIST)]
    List(OutboxList),
    /// Retry blocked messages, with a fresh retry budget
    #[command(after_help = RETRY)]
    Retry(OutboxRetry),
    /// Remove a message without sending it
    #[command(after_help = DISCARD)]
    Discard(OutboxDiscard),
}

const LIST: &str = "\
Examples:
  tidelock outbox list mails --store app.db
  tidelock outbox list mails --watch --store app.db
  tidelock outbox list mails --store app.db -o jsonl | jq -r 'select(.state.blocked) | .id'

Of messages with an ordering key, only the first is listed; the others wait for it.";

/// `tidelock outbox list`
#[derive(Clone, Debug, Args)]
pub(crate) struct OutboxList {
    /// Name of the outbox
    pub(crate) outbox: String,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: WatchArgs,
}

const RETRY: &str = "\
Examples:
  tidelock outbox retry mails --dry-run --store app.db       count the messages
  tidelock outbox retry mails --yes --store app.db           all blocked messages
  tidelock outbox retry mails order-17 --store app.db

Without a message, all blocked messages are selected, and a confirmation or --yes is required.";

/// `tidelock outbox retry`
#[derive(Clone, Debug, Args)]
pub(crate) struct OutboxRetry {
    /// Name of the outbox
    pub(crate) outbox: String,
    /// Id of the message, or the ordering key of messages [default: all
    /// blocked ones]
    pub(crate) message: Option<String>,
    /// The confirmation
    #[command(flatten)]
    pub(crate) consent: ConfirmArgs,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

const DISCARD: &str = "\
Examples:
  tidelock outbox discard mails order-17 --dry-run --store app.db
  tidelock outbox discard mails order-17 --yes --store app.db

Of messages with an ordering key, the first is removed, and the next ones continue. If the message is in flight, the command
exits with 4.";

/// `tidelock outbox discard`
#[derive(Clone, Debug, Args)]
pub(crate) struct OutboxDiscard {
    /// Name of the outbox
    pub(crate) outbox: String,
    /// Id of the message, or the ordering key of messages
    pub(crate) message: String,
    /// The confirmation
    #[command(flatten)]
    pub(crate) consent: ConfirmArgs,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}
