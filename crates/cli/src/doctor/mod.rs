//! `tidelock doctor`: diagnostics of a store or a machine, with recommended actions.
//!
//! It reads and never repairs. Opening a SQLite store made by an older program migrates its schema, as in every
//! program that opens it. A PostgreSQL store is left as it is.

mod environment;
mod health;
mod postgres;
mod reactions;
mod report;
mod store;
mod work;

use anyhow::Result;

use crate::address::Address;
use crate::args::Doctor;
use crate::exit::{self, Exit, UsageError};

/// Checks a store, or the machine when no store is named.
pub(crate) async fn run(options: Doctor) -> Result<Exit> {
    let address =
        options.store.as_deref().map(|name| Address::parse(name, options.schema.as_deref())).transpose()?;
    if options.health {
        let none = "no store was named; --health asks one: add --store";
        let address = address.as_ref().ok_or_else(|| UsageError(none.to_owned()))?;
        return Box::pin(health::check(address, options.output)).await;
    }
    let report = match &address {
        Some(Address::File(path)) => store::check(path).await?,
        Some(Address::Schema { url, schema }) => Box::pin(postgres::check(url, schema)).await?,
        None => tokio::task::spawn_blocking(environment::check).await?,
    };
    exit::after(report.print(options.output), report.exit())
}
