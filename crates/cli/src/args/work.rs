//! Arguments of `tidelock streams` for copying streams and listing blocked
//! work.

use std::path::PathBuf;

use clap::Args;

use super::{Consent, Look, Pages, Source};

pub(super) const EXPORT: &str = "\
Examples:
  tidelock streams export --file all.jsonl --store app.db
  tidelock streams export order --store app.db | gzip > orders.jsonl.gz

The first line says what the file is; then each event is an object on a line of its own, in the order of the log. A stream
that was truncated is noted before its first event, or at the end when no event is left; a closed one is noted at the end. What
is written is everything up to the last event that was there when it began. A file appears under its name when it is whole.
A stream that is truncated while it is exported ends it with 4: export again. Records, work and leases are not exported, nor
what Tidelock keeps for itself (kinds that begin with tidelock.).";

/// `tidelock streams export`
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsExport {
    /// Prefix of the keys: a kind, or a key with its first arguments [default:
    /// all keys]
    pub(crate) prefix: Option<String>,
    /// File to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

pub(super) const IMPORT: &str = "\
Examples:
  tidelock streams import --file all.jsonl --dry-run --store copy.db            how much would it be?
  tidelock streams import --file all.jsonl --store copy.db
  gunzip < orders.jsonl.gz | tidelock streams import --yes --store postgres://me@db/app
  tidelock streams import --file all.jsonl --from-line 1502 --store copy.db     goes on after a mistake was mended

It is counted and asked about, or needs --yes; what comes on standard input cannot be counted before.

Events keep their ids, versions, types, payloads, notes and conversations, so importing a file again changes nothing. Positions
and times are the store's own; the time of the event in its first store is noted as original_at in the notes of its meta. Up to
500 events are one batch, all or nothing. A stream that has other events here ends the import with 4 and the number of the line.

A stream that was truncated begins with version n in the file. It is imported only where the event of version n is already, or
with --begin-later where there is no event of it at all: then it begins with version n here, too. What the removed events said
is not in the file, so a program that needs them, or a snapshot of them, must get it in another way. Reactions that run on the
store handle what is imported like everything that happens.";

/// `tidelock streams import`
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsImport {
    /// File to read [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Start with this line; the first line is always read
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..))]
    pub(crate) from_line: u64,
    /// Skip streams that conflict with the store, instead of stopping at the
    /// first
    #[arg(long)]
    pub(crate) skip_conflicts: bool,
    /// Create truncated streams, beginning with the version of their oldest
    /// remaining event
    #[arg(long)]
    pub(crate) begin_later: bool,
    /// The confirmation
    #[command(flatten)]
    pub(crate) consent: Consent,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

pub(super) const BLOCKED: &str = "\
Examples:
  tidelock streams blocked --store app.db
  tidelock streams blocked --lane mails --like '^mail' --store app.db -o jsonl | jq -r .key
  tidelock streams blocked --store app.db > /dev/null || page-somebody

A pattern knows ^, $, . and .*, and is matched with the kind of the key and its arguments, set apart by blanks.";

/// `tidelock streams blocked`
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsBlocked {
    /// The rows
    #[command(flatten)]
    pub(crate) rows: Rows,
    /// The page
    #[command(flatten)]
    pub(crate) pages: Pages,
    /// The store
    #[command(flatten)]
    pub(crate) look: Look,
}

/// Conditions on work rows.
#[derive(Clone, Debug, Args)]
pub(crate) struct Rows {
    /// Only work of this lane
    #[arg(long, value_name = "LANE")]
    pub(crate) lane: Option<String>,
    /// Only work whose key matches this pattern
    #[arg(long, value_name = "PATTERN")]
    pub(crate) like: Option<String>,
}
