//! Arguments of `tidelock top`.

use std::time::Duration;

use clap::Args;

use super::Source;
use super::store_args::every;

pub(super) const TOP: &str = "\
Examples:
  tidelock top --store app.db
  tidelock top --every 5s --store app.db
  tidelock top --once --store app.db              one look, as text; so it is without a terminal
  tidelock top --once --store app.db -o json | jq .work.blocked

Keys: q ends it, p pauses, tab and the arrows to the sides change the panel, up and down scroll, ? shows the keys. A + after a number
says that there may be more: at most 20,000 rows of work and 1,000 runs are looked at. Nothing is leased or changed.";

/// `tidelock top`
#[derive(Clone, Debug, Args)]
pub(crate) struct Top {
    /// Refresh interval
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = every)]
    pub(crate) every: Duration,
    /// Print one snapshot as text
    #[arg(long)]
    pub(crate) once: bool,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}
