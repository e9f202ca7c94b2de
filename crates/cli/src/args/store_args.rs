//! Store arguments, shared by all verbs on an existing store.

use std::time::Duration;

use clap::Args;
use tidelock::clock::parse_duration;
use tidelock::prelude::*;
use tidelock::store::limits;

pub(crate) use tidelock_console::address::Flushing;

use super::{Format, Layout};
use crate::address::{Address, INTERACTIVE, Opened};

/// The store, and the format of the result.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArgs {
    /// Store, which must exist: a path, sqlite://PATH or postgres://…
    #[arg(long, value_name = "URL|PATH", env = "TIDELOCK_STORE", hide_env_values = true)]
    pub(crate) store: String,
    /// Schema of a PostgreSQL store [default: the one in the address, or
    /// tidelock]
    #[arg(long, value_name = "NAME", env = "TIDELOCK_SCHEMA", hide_env = true)]
    pub(crate) schema: Option<String>,
    /// Durability that a PostgreSQL server must guarantee for a write
    #[arg(
        long,
        value_name = "WORD",
        value_enum,
        default_value = "full",
        env = "TIDELOCK_DURABILITY",
        hide_env = true
    )]
    pub(crate) durability: Flushing,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
}

/// The store, and the layout of rows for human readers or programs.
#[derive(Clone, Debug, Args)]
pub(crate) struct Source {
    /// Store, which must exist: a path, sqlite://PATH or postgres://…
    #[arg(long, value_name = "URL|PATH", env = "TIDELOCK_STORE", hide_env_values = true)]
    pub(crate) store: String,
    /// Schema of a PostgreSQL store [default: the one in the address, or
    /// tidelock]
    #[arg(long, value_name = "NAME", env = "TIDELOCK_SCHEMA", hide_env = true)]
    pub(crate) schema: Option<String>,
    /// Durability that a PostgreSQL server must guarantee for a write
    #[arg(
        long,
        value_name = "WORD",
        value_enum,
        default_value = "full",
        env = "TIDELOCK_DURABILITY",
        hide_env = true
    )]
    pub(crate) durability: Flushing,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table", env = "TIDELOCK_OUTPUT", hide_env = true)]
    pub(crate) output: Layout,
}

/// A store that is read once or polled.
#[derive(Clone, Debug, Args)]
pub(crate) struct WatchArgs {
    /// Poll at this interval, until Ctrl-C [default: every 2 s]
    #[arg(long, value_name = "SPAN", num_args = 0..=1, require_equals = true, default_missing_value = EVERY, value_parser = every)]
    pub(crate) watch: Option<Duration>,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

/// The default poll interval.
const EVERY: &str = "2s";

/// Parses a poll interval. Polling more than ten times a second is a burden
/// without a benefit.
pub(crate) fn every(text: &str) -> Result<Duration, String> {
    let every = parse_duration(text).map_err(|error| error.to_string())?;
    let sensible = Duration::from_millis(100)..=Duration::from_hours(24);
    if sensible.contains(&every) { Ok(every) } else { Err("between 100ms and 24h make sense".to_owned()) }
}

/// A page of a listing.
#[derive(Clone, Debug, Args)]
pub(crate) struct Pages {
    /// Maximum number of rows [default: 100; with -o jsonl all of them]
    #[arg(long, value_name = "N", value_parser = rows)]
    pub(crate) limit: Option<usize>,
    /// Continue after this row, the cursor of the previous page
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

/// The confirmation of a change.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ConfirmArgs {
    /// Only show what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Skip the confirmation; required without a terminal
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Parses a number of rows.
pub(super) fn rows(text: &str) -> Result<usize, String> {
    let most = limits::PAGE_ROWS;
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("write a number from 1 to {most}"))
}

impl Source {
    /// Opens the store, which must exist.
    pub(crate) async fn open(&self) -> anyhow::Result<Opened> {
        let address = Address::parse(&self.store, self.schema.as_deref())?;
        let server = PostgresOptions { migrate: false, patience: INTERACTIVE, ..PostgresOptions::default() };
        address.open_as(false, server, self.durability).await
    }
}
