//! Diagnostics of a SQLite store: its file and its settings.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use tidelock::prelude::*;
use tidelock::store::Durability;

use super::environment::free_space;
use super::reactions;
use super::report::{Report, Status};
use super::work::look_at_work;
use crate::address::unopened;
use crate::{filesystem, output};

/// The size of the write-ahead log above which checkpoints are assumed to be stalled.
const LONG_LOG: u64 = 256 << 20;
/// The maximum number of faults shown.
const FAULTS: usize = 3;

/// Opens the store without creating it, and runs all checks.
pub(crate) async fn check(path: &Path) -> Result<Report> {
    let options = SqliteOptions { create: false, ..SqliteOptions::default() };
    let store = SqliteStore::open(path, options).await.map_err(|error| unopened(path, error))?;
    let mut report = Report::new(path.display().to_string());
    settings(&store, &mut report).await?;
    integrity(&store, &mut report).await?;
    log_size(path, &mut report);
    free_space(&mut report, filesystem::directory_of(path));
    look_at_work(&store).await?.report(&mut report);
    reactions::check(Arc::new(store.clone()), &mut report).await?;
    store.close().await;
    Ok(report)
}

async fn settings(store: &SqliteStore, report: &mut Report) -> Result<()> {
    let info = store.info().await?;
    report.ok("store", format!("{} {}, schema {}", info.backend, info.engine, info.schema));
    report.ok("epoch", info.epoch.to_string());
    match info.durability {
        Durability::Full => report.ok("durability", "full: flushed before a commit is acknowledged"),
        other => report.warn("durability", format!("{other:?}"), "open the store with Durability::Full"),
    }
    let kind = filesystem::file_system(filesystem::directory_of(store.path()));
    if filesystem::is_memory(&kind) {
        report.warn("file system", kind, "nothing here survives a power cut; move the store to a disk");
    } else {
        report.ok("file system", kind);
    }
    report.ok("clock", "this machine's, which is also the store's: there is no skew");
    Ok(())
}

async fn integrity(store: &SqliteStore, report: &mut Report) -> Result<()> {
    let faults = store.integrity_check().await?;
    if faults.is_empty() {
        report.ok("integrity", "the file is sound");
    } else {
        let shown: Vec<_> = faults.iter().take(FAULTS).map(String::as_str).collect();
        let found = format!("{} faults: {}", faults.len(), shown.join("; "));
        report.add("integrity", Status::Fail, found, "stop writing, keep the file, restore a backup");
    }
    Ok(())
}

fn log_size(path: &Path, report: &mut Report) {
    let log = filesystem::beside(path, "-wal");
    let length = std::fs::metadata(log).map_or(0, |facts| facts.len());
    let found = format!("write-ahead log of {}", output::bytes(length));
    if length > LONG_LOG {
        report.warn("log", found, "a reader holds an old snapshot open: look for a hanging process");
    } else {
        report.ok("log", found);
    }
}
