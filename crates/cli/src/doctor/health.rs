//! `tidelock doctor --health`: a one-line health check that opens and queries a store. It is meant for probes that run every few
//! seconds. It reads neither the file nor the work, and blocked work does not count as unhealthy.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::address::Address;
use crate::args::Format;
use crate::exit::{self, Exit};
use crate::output;

/// The time after which a store counts as unhealthy.
const LIMIT: Duration = Duration::from_secs(5);

/// The printed report.
#[derive(Debug, Serialize)]
struct Report {
    healthy: bool,
    found: String,
}

/// Opens the store, which must have the schema of this program, and queries its clock.
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
    // The full diagnosis detects a server that does not flush. Here it would cause restarts that change nothing.
    let opened = address.open_existing().await?;
    let store = opened.shared();
    let (info, now) = (store.info().await?, store.now().await?);
    opened.close().await;
    Ok(format!("{} {}, schema {}, at {}", info.backend, info.engine, info.schema, output::instant(now)))
}
