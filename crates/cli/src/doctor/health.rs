//! `tidelock doctor --health`: whether a store can be opened and asked, in one line. For probes that ask every few seconds: it reads
//! neither the file nor the work, and blocked work is no reason to restart anything.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::address::Address;
use crate::args::Format;
use crate::exit::{self, Exit};
use crate::output;

/// A store that takes longer than this is not well.
const LIMIT: Duration = Duration::from_secs(5);

/// What is printed.
#[derive(Debug, Serialize)]
struct Report {
    healthy: bool,
    found: String,
}

/// Opens the store, which must have the schema of this program, and asks it for the time.
pub(crate) async fn check(address: &Address, format: Format) -> Result<Exit> {
    let (healthy, found) = match tokio::time::timeout(LIMIT, probe(address)).await {
        Ok(Ok(found)) => (true, found),
        Ok(Err(error)) => (false, format!("{error:#}")),
        Err(_) => (false, format!("the store did not answer within {}", output::span(LIMIT))),
    };
    let exit = if healthy { Exit::Well } else { Exit::Failed };
    let word = if healthy { "well" } else { "not well" };
    let printed = match format {
        Format::Json => output::json_line(&Report { healthy, found }),
        Format::Table => output::say(format!("{word}: {}", output::flat(&found))),
    };
    exit::after(printed, exit)
}

async fn probe(address: &Address) -> Result<String> {
    // A server that does not flush is found by the whole check-up; here it would end in restarts that change nothing.
    let opened = address.open_existing().await?;
    let store = opened.shared();
    let (info, now) = (store.info().await?, store.now().await?);
    opened.close().await;
    Ok(format!("{} {}, schema {}, at {}", info.backend, info.engine, info.schema, output::instant(now)))
}
