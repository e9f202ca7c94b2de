//! The check-up of a store: its file, its settings, and the work that is stuck in it.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use tidelock::model::lease::ready_at;
use tidelock::prelude::*;
use tidelock::store::{Durability, WorkFilter, WorkRow};

use super::environment::free_space;
use super::report::{Report, Status};
use crate::{output, target};

/// A log longer than this is not being moved into the database as it should.
const LONG_LOG: u64 = 256 << 20;
/// Work that nobody takes for this long is overdue.
const OVERDUE: Duration = Duration::from_secs(60);
/// Rows that are looked at in one go, and at most.
const PAGE: usize = 5_000;
const MOST_ROWS: usize = 1_000_000;
/// Names that are shown.
const NAMES: usize = 3;

/// Opens the store without creating it, and looks at everything.
pub(crate) async fn check(path: &Path) -> Result<Report> {
    let options = SqliteOptions { create: false, ..SqliteOptions::default() };
    let store = SqliteStore::open(path, options).await?;
    let mut report = Report::new(path.display().to_string());
    settings(&store, &mut report).await?;
    integrity(&store, &mut report).await?;
    log_size(path, &mut report);
    free_space(&mut report, target::directory_of(path));
    let seen = look_at_work(&store).await?;
    store.close().await;
    seen.report(&mut report);
    Ok(report)
}

async fn settings(store: &SqliteStore, report: &mut Report) -> Result<()> {
    let info = store.info().await?;
    report.ok("store", format!("{} {}, schema {}", info.backend, info.engine, info.schema));
    match info.durability {
        Durability::Full => report.ok("durability", "full: flushed before the caller hears OK"),
        other => report.warn("durability", format!("{other:?}"), "open the store with Durability::Full"),
    }
    let kind = target::file_system(target::directory_of(store.path()));
    if target::is_memory(&kind) {
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
        let shown: Vec<_> = faults.iter().take(NAMES).map(String::as_str).collect();
        let found = format!("{} faults: {}", faults.len(), shown.join("; "));
        report.add("integrity", Status::Fail, found, "stop writing, keep the file, restore a backup");
    }
    Ok(())
}

fn log_size(path: &Path, report: &mut Report) {
    let log = target::beside(path, "-wal");
    let length = std::fs::metadata(log).map_or(0, |facts| facts.len());
    let found = format!("write-ahead log of {}", output::bytes(length));
    if length > LONG_LOG {
        report.warn("log", found, "a reader holds an old snapshot open: look for a hanging process");
    } else {
        report.ok("log", found);
    }
}

/// What the work table shows.
#[derive(Debug, Default)]
struct Seen {
    rows: usize,
    all: bool,
    now: Option<Timestamp>,
    held: usize,
    ended_leases: Vec<String>,
    ended: usize,
    overdue: usize,
    oldest: Option<Timestamp>,
    blocked: u64,
    blocked_names: Vec<String>,
}

async fn look_at_work(store: &SqliteStore) -> Result<Seen> {
    let mut seen = Seen { now: Some(store.now().await?), ..Seen::default() };
    let blocked = WorkFilter { blocked: Some(true), ..WorkFilter::default() };
    seen.blocked = store.count_work(&blocked).await?;
    for row in store.works(&blocked, Page::first(NAMES)).await?.rows {
        let reason = row.blocked.map_or_else(String::new, |blocked| blocked.reason);
        seen.blocked_names.push(format!("{} ({reason})", row.key));
    }
    let open = WorkFilter { blocked: Some(false), ..WorkFilter::default() };
    let mut page = Page::first(PAGE);
    loop {
        let found = store.works(&open, page).await?;
        found.rows.iter().for_each(|row| seen.row(row));
        let Some(next) = found.next else {
            seen.all = true;
            break;
        };
        if seen.rows >= MOST_ROWS {
            break;
        }
        page = Page::after(&next, PAGE);
    }
    Ok(seen)
}

impl Seen {
    fn row(&mut self, row: &WorkRow) {
        self.rows += 1;
        let Some(now) = self.now else { return };
        if let Some(lease) = &row.lease {
            if lease.until.has_come(now) {
                self.ended += 1;
                if self.ended_leases.len() < NAMES {
                    self.ended_leases.push(format!("{} of {}", row.key, lease.owner));
                }
            } else {
                self.held += 1;
            }
        }
        let ready = ready_at(row).filter(|ready| now.since(*ready) >= OVERDUE);
        if let Some(ready) = ready {
            self.overdue += 1;
            self.oldest = Some(self.oldest.map_or(ready, |oldest| oldest.min(ready)));
        }
    }

    fn report(&self, report: &mut Report) {
        let some = if self.all { "" } else { "at least " };
        report.ok("work", format!("{some}{} rows, {} held", output::number(self.rows as u64), self.held));
        if self.ended == 0 {
            report.ok("leases", "none ended without release");
        } else {
            let found =
                format!("{some}{} ended without release: {}", self.ended, self.ended_leases.join(", "));
            report.warn("leases", found, "their holders died or hang; the next claim takes the rows over");
        }
        match (self.oldest, self.now) {
            (Some(oldest), Some(now)) => {
                let found =
                    format!("{some}{}, the oldest for {} s", self.overdue, now.since(oldest).as_secs());
                report.warn("overdue", found, "start workers for these lanes, or more of them");
            }
            _ => report.ok("overdue", "none"),
        }
        if self.blocked == 0 {
            report.ok("blocked", "none");
        } else {
            let found = format!("{}: {}", output::number(self.blocked), self.blocked_names.join(", "));
            report.add("blocked", Status::Blocked, found, "remove the cause, then unblock the rows");
        }
    }
}
