//! Arguments of `tidelock streams export` and `import`.

use std::path::PathBuf;

use clap::Args;

use super::{ConfirmArgs, Source};

pub(super) const EXPORT: &str = "\
Examples:
  tidelock streams export --file all.jsonl --store app.db
  tidelock streams export --prefix order --store app.db | gzip > orders.jsonl.gz

The first line describes the file. Each following line is an event, in the order of the log. A truncated stream is noted before
its first event, or at the end when no event is left; a closed stream is noted at the end. The file has all events up to the
last one at the start of the export, and appears under its name when it is complete. If a stream is truncated during the export,
the command exits with 4; repeat it. Records, work, leases and internal kinds (tidelock.) are not exported.";

/// `tidelock streams export`
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamsExport {
    /// Only keys with this prefix: a kind, or a key with its first arguments
    #[arg(long, value_name = "PREFIX")]
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
  tidelock streams import --file all.jsonl --dry-run --store copy.db            count the events
  tidelock streams import --file all.jsonl --store copy.db
  gunzip < orders.jsonl.gz | tidelock streams import --yes --store postgres://me@db/app
  tidelock streams import --file all.jsonl --from-line 1502 --store copy.db     continue after an error was fixed

The events are counted, and a confirmation or --yes is required. Standard input cannot be counted in advance.

Events keep their ids, versions, types, payloads, metadata and correlation ids, so a repeated import changes nothing. Positions
and times are assigned by the store; the original time becomes original_at in the metadata. Up to 500 events are one batch, all
or nothing. If a stream has other events in this store, the command exits with 4 and the number of the line.

A truncated stream begins with version n in the file. It is imported only if the store has the event of version n, or with
--begin-later if the store has no event of the stream; it then begins with version n here as well. The file has neither the
removed events nor snapshots of them. Reactions on the store handle imported events like any others.";

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
    pub(crate) consent: ConfirmArgs,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}
