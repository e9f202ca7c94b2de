//! What all verbs on a store that exists have in common.

use clap::Args;
use tidelock::store::limits;

use super::Format;

/// Where the store is, and how the result is printed.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// The store, which must exist: a path, sqlite://PATH or postgres://…
    #[arg(long, value_name = "URL|PATH", env = "TIDELOCK_STORE", hide_env_values = true)]
    pub(crate) store: String,
    /// The schema of a PostgreSQL store [default: the one that the address names, or tidelock]
    #[arg(long, value_name = "NAME")]
    pub(crate) schema: Option<String>,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
}

/// Reads a number of rows.
pub(super) fn rows(text: &str) -> Result<usize, String> {
    let most = limits::PAGE_ROWS;
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("write a number from 1 to {most}"))
}
