//! What all verbs on a store that exists have in common.

use std::time::Duration;

use clap::Args;
use tidelock::clock::parse_duration;
use tidelock::prelude::*;
use tidelock::store::limits;

pub(crate) use tidelock_console::address::Flushing;

use super::{Format, Layout};
use crate::address::{Address, INTERACTIVE, Opened};

/// Where the store is, and how the result is printed.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// The store, which must exist: a path, sqlite://PATH or postgres://…
    #[arg(long, value_name = "URL|PATH", env = "TIDELOCK_STORE", hide_env_values = true)]
    pub(crate) store: String,
    /// The schema of a PostgreSQL store [default: the one that the address names, or tidelock]
    #[arg(long, value_name = "NAME", env = "TIDELOCK_SCHEMA", hide_env = true)]
    pub(crate) schema: Option<String>,
    /// What a PostgreSQL server must do before a write counts
    #[arg(
        long,
        value_name = "WORD",
        value_enum,
        default_value = "full",
        env = "TIDELOCK_DURABILITY",
        hide_env = true
    )]
    pub(crate) durability: Flushing,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
}

/// Where the store is, and how data is printed: in rows, for people or for programs.
#[derive(Clone, Debug, Args)]
pub(crate) struct Source {
    /// The store, which must exist: a path, sqlite://PATH or postgres://…
    #[arg(long, value_name = "URL|PATH", env = "TIDELOCK_STORE", hide_env_values = true)]
    pub(crate) store: String,
    /// The schema of a PostgreSQL store [default: the one that the address names, or tidelock]
    #[arg(long, value_name = "NAME", env = "TIDELOCK_SCHEMA", hide_env = true)]
    pub(crate) schema: Option<String>,
    /// What a PostgreSQL server must do before a write counts
    #[arg(
        long,
        value_name = "WORD",
        value_enum,
        default_value = "full",
        env = "TIDELOCK_DURABILITY",
        hide_env = true
    )]
    pub(crate) durability: Flushing,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value = "table", env = "TIDELOCK_OUTPUT", hide_env = true)]
    pub(crate) output: Layout,
}

/// A store that is looked at, once or again and again.
#[derive(Clone, Debug, Args)]
pub(crate) struct Look {
    /// Looks again so often, until Ctrl-C [default: every 2 s]
    #[arg(long, value_name = "SPAN", num_args = 0..=1, require_equals = true, default_missing_value = EVERY, value_parser = every)]
    pub(crate) watch: Option<Duration>,
    /// The store
    #[command(flatten)]
    pub(crate) place: Source,
}

/// How often a watched view is looked at when nobody says.
const EVERY: &str = "2s";

/// Reads how often something is looked at. More often than every tenth of a second is a burden and no help.
pub(crate) fn every(text: &str) -> Result<Duration, String> {
    let every = parse_duration(text).map_err(|error| error.to_string())?;
    let sensible = Duration::from_millis(100)..=Duration::from_hours(24);
    if sensible.contains(&every) { Ok(every) } else { Err("between 100ms and 24h make sense".to_owned()) }
}

/// Which page of a listing.
#[derive(Clone, Debug, Args)]
pub(crate) struct Pages {
    /// At most so many rows [default: 100; with -o jsonl all of them]
    #[arg(long, value_name = "N", value_parser = rows)]
    pub(crate) limit: Option<usize>,
    /// Goes on after this row, which the page before has named
    #[arg(long, value_name = "CURSOR", visible_alias = "after")]
    pub(crate) cursor: Option<String>,
}

/// How a change is agreed on.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Consent {
    /// Only says what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Does not ask; needed when nobody can be asked
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Reads a number of rows.
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
