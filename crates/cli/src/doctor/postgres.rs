//! Diagnostics of a PostgreSQL store: its schema, its settings, its clock, and transactions that block readers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tidelock::clock::SystemClock;
use tidelock::postgres::{LogBlocker, migrate};
use tidelock::prelude::*;
use tidelock::store::{Durability, StoreErrorKind};

use super::reactions;
use super::report::{Report, Status};
use super::work::look_at_work;
use crate::address::INTERACTIVE;
use crate::connection::connect;
use crate::output;
use crate::server_url::ServerUrl;

/// The clock difference above which a warning is reported.
const SKEW: Duration = Duration::from_millis(500);
/// The waiting time of readers above which a warning is reported.
const STALLED: Duration = Duration::from_secs(1);
/// The maximum number of stalls shown.
const SHOWN: usize = 3;

/// The timeout of a query outside the store. A frozen server accepts a query and never responds.
const LIMIT: Duration = Duration::from_secs(30);

/// Checks the schema first, then opens the store without changing anything and runs all checks.
pub(crate) async fn check(url: &ServerUrl, schema: &str) -> Result<Report> {
    let mut report = Report::new(format!("{url} · schema {schema}"));
    if !schema_is_current(url, schema, &mut report).await? {
        return Ok(report);
    }
    let store = open(url, schema, &mut report).await?;
    settings(&store, &mut report).await?;
    clock(&store, &mut report).await?;
    stalls(&store.stalls().await?, &mut report);
    pooler(url, &mut report).await;
    connections(url, &mut report).await;
    look_at_work(&store).await?.report(&mut report);
    reactions::check(Arc::new(store.clone()), &mut report).await?;
    store.close().await;
    Ok(report)
}

/// Waits for a response, and fails when none arrives in time.
async fn in_time<T>(answer: impl Future<Output = Result<T>>) -> Result<T> {
    let limited = tokio::time::timeout(LIMIT, answer).await;
    limited
        .unwrap_or_else(|_| Err(anyhow::anyhow!("the server did not answer within {}", output::span(LIMIT))))
}

/// Returns whether the schema is the one that this program needs.
async fn schema_is_current(url: &ServerUrl, schema: &str, report: &mut Report) -> Result<bool> {
    let status = in_time(async { Ok(migrate::status(url.secret(), schema).await?) }).await?;
    let newest = status.newest;
    let (found, next) = match status.installed {
        Some(version) if version == newest => {
            report.ok("schema", format!("version {version}, the newest"));
            return Ok(true);
        }
        Some(version) => (format!("version {version} of {newest}"), "run `tidelock migrate up`"),
        None => (
            "there is no store in this schema".to_owned(),
            "run `tidelock migrate up`, or name another --schema",
        ),
    };
    report.add("schema", Status::Fail, found, next);
    Ok(false)
}

/// Opens the store with full durability. On a server that does not flush, that fails. The failure is reported, and the
/// store is opened with weaker requirements.
async fn open(url: &ServerUrl, schema: &str, report: &mut Report) -> Result<PostgresStore> {
    let careful = PostgresOptions {
        schema: schema.to_owned(),
        migrate: false,
        patience: INTERACTIVE,
        ..PostgresOptions::default()
    };
    match PostgresStore::open(url.secret(), careful.clone()).await {
        Ok(store) => Ok(store),
        Err(error) if error.kind == StoreErrorKind::SettingNotInForce => {
            let next = "set fsync and full_page_writes on the server: `tidelock explain TL0404`";
            report.add("durability", Status::Fail, error.detail, next);
            let relaxed = PostgresOptions { durability: Durability::Relaxed, ..careful };
            Ok(PostgresStore::open(url.secret(), relaxed).await?)
        }
        Err(error) => Err(error.into()),
    }
}

async fn settings(store: &PostgresStore, report: &mut Report) -> Result<()> {
    let info = store.info().await?;
    report.ok("store", format!("{} {}, schema {}", info.backend, info.engine, info.schema));
    report.ok("epoch", info.epoch.to_string());
    if info.durability == Durability::Full {
        report.ok("durability", "full: flushed before a commit is acknowledged");
    }
    Ok(())
}

/// Compares the clocks. The store's clock decides when leases expire, so a difference is inconvenient but not
/// dangerous. The reported time may lag behind the store's clock by the latency of the response.
async fn clock(store: &PostgresStore, report: &mut Report) -> Result<()> {
    let here = SystemClock::default();
    let (there, here) = (store.now().await?, here.now());
    let (apart, way) =
        if there > here { (there.since(here), "ahead of") } else { (here.since(there), "behind") };
    let found = format!("the server's, {:.1} ms {way} this machine's", apart.as_secs_f64() * 1e3);
    if apart > SKEW {
        let next = "let both machines set their clocks by the network; due times given by hand are off";
        report.warn("clock", found, next);
    } else {
        report.ok("clock", found);
    }
    Ok(())
}

/// Reports transactions that have reserved a position and have not ended. Later commits are not yet visible to
/// readers.
fn stalls(all: &[LogBlocker], report: &mut Report) {
    let old: Vec<&LogBlocker> = all.iter().filter(|stall| stall.since >= STALLED).collect();
    if old.is_empty() {
        return report.ok("readers", "no reader waits for a writer");
    }
    let shown: Vec<String> = old.iter().take(SHOWN).map(|stall| describe(stall)).collect();
    let found = format!("{} open: {}", old.len(), shown.join("; "));
    report.warn("readers", found, "end these transactions: SELECT pg_terminate_backend(pid)");
}

fn describe(stall: &LogBlocker) -> String {
    let LogBlocker { pid, application, state, since, floor } = stall;
    let name = if application.is_empty() { "no name" } else { application };
    format!(
        "pid {pid} ({name}), {state} for {:.0} s, holds readers at position {}",
        since.as_secs_f64(),
        floor.0
    )
}

/// Detects a pooler in transaction mode, which reassigns a backend after each transaction. Two connections open at the
/// same time then share one backend.
async fn pooler(url: &ServerUrl, report: &mut Report) {
    let is_told = url.setting("pooler") == Some("transaction");
    match in_time(share_a_backend(url)).await {
        Ok(false) => {
            report.ok("pooler", "none that gives connections away after each transaction was noticed");
        }
        Ok(true) if is_told => report.ok("pooler", "one in transaction mode, as the address says"),
        Ok(true) => {
            let next = "add pooler=transaction to the address, or connect to the server itself";
            report.warn("pooler", "connections are given away after each transaction", next);
        }
        Err(error) => {
            let found = output::escaped(&format!("not known: {error:#}"));
            report.warn("pooler", found, "if there is one in transaction mode, add pooler=transaction");
        }
    }
}

/// Checks whether the server has room for one more program. Each may open as many connections as its options allow.
async fn connections(url: &ServerUrl, report: &mut Report) {
    let usual = PostgresOptions::default();
    // One more connection receives notifications.
    let each = u64::try_from(usual.committers + usual.readers + 1).unwrap_or(u64::MAX);
    match in_time(taken(url)).await {
        Ok((taken, most)) => {
            let found =
                format!("{taken} of {most} are taken; a program with the usual options takes up to {each}");
            if most.saturating_sub(taken) < each {
                let next = "raise max_connections, lower readers in the options of programs, or use a pooler";
                report.warn("connections", found, next);
            } else {
                report.ok("connections", found);
            }
        }
        Err(error) => {
            let found = output::escaped(&format!("not known: {error:#}"));
            report.warn("connections", found, "compare max_connections with what your programs take");
        }
    }
}

/// Returns the number of connections, and the maximum for users that are not superusers.
async fn taken(url: &ServerUrl) -> Result<(u64, u64)> {
    const TAKEN: &str = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
    const MOST: &str = "SELECT current_setting('max_connections')::int \
                        - current_setting('superuser_reserved_connections')::int";
    let client = connect(url).await?;
    Ok((number(&client, TAKEN).await?.try_into()?, number(&client, MOST).await?.try_into()?))
}

async fn share_a_backend(url: &ServerUrl) -> Result<bool> {
    const BACKEND: &str = "SELECT pg_backend_pid()";
    let (one, other) = (connect(url).await?, connect(url).await?);
    // Each query is a separate transaction, and neither is open while the other runs. The queries are not prepared: a
    // pooler may have forgotten the statement.
    let first: i32 = number(&one, BACKEND).await?;
    Ok(first == number(&other, BACKEND).await?)
}

/// Returns the number that a query yields.
async fn number(client: &tokio_postgres::Client, sql: &str) -> Result<i32> {
    use tokio_postgres::SimpleQueryMessage::Row;
    let answer = client.simple_query(sql).await?;
    let found = answer.iter().find_map(|message| if let Row(row) = message { row.get(0) } else { None });
    Ok(found.unwrap_or_default().parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stall(pid: i32, seconds: u64) -> LogBlocker {
        let (application, state) = ("shop".to_owned(), "idle in transaction".to_owned());
        LogBlocker { pid, application, state, since: Duration::from_secs(seconds), floor: Position(7) }
    }

    #[test]
    fn old_transactions_that_readers_wait_for_are_named() {
        let mut report = Report::new("test");
        stalls(&[stall(4711, 12), stall(4712, 0)], &mut report);
        stalls(&[stall(4712, 0)], &mut report);
        let [old, young] = report.checks.as_slice() else { panic!("{report:?}") };
        let told = "1 open: pid 4711 (shop), idle in transaction for 12 s, holds readers at position 7";
        assert_eq!((old.status, old.found.as_str()), (Status::Warn, told));
        assert_eq!(young.status, Status::Ok);
    }
}
