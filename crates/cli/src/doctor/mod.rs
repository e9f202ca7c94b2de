//! `tidelock doctor`: what is well, what is not, and what to do next.
//!
//! It reads and never repairs. Opening a store made by an older program brings its schema up to date, as every program
//! does that opens it.

mod environment;
mod report;
mod store;

use anyhow::Result;

use crate::args::Doctor;
use crate::exit::Exit;
use crate::target;

/// Checks a store, or the machine when no store is named.
pub(crate) async fn run(options: Doctor) -> Result<Exit> {
    let report = match &options.store {
        Some(name) => store::check(&target::sqlite_path(name)?).await?,
        None => tokio::task::spawn_blocking(environment::check).await?,
    };
    report.print(options.output)?;
    Ok(report.exit())
}
