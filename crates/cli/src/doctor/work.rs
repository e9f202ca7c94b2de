//! Stuck work in a store: expired leases, unclaimed rows, and rows blocked until an operator acts.

use std::time::Duration;

use anyhow::Result;
use tidelock::housekeeping::{SweepReport, last_sweep};
use tidelock::model::lease::ready_at;
use tidelock::prelude::*;
use tidelock::store::{Swept, WorkFilter, WorkRow};

use super::report::{Report, Status};
use crate::output;

/// Work that stays unclaimed for this long is overdue.
const OVERDUE: Duration = Duration::from_secs(60);
/// The number of rows read in one page, and the maximum.
const PAGE: usize = 5_000;
const MOST_ROWS: usize = 1_000_000;
/// The age of the last sweep above which no process is assumed to sweep.
const LATE: Duration = Duration::from_hours(1);
/// The maximum number of names shown.
const NAMES: usize = 3;

/// The findings in the work table.
#[derive(Debug, Default)]
pub(crate) struct Seen {
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
    swept: Option<SweepReport>,
}

/// Counts the blocked rows, and reads all other rows, up to about a million.
pub(crate) async fn look_at_work(store: &dyn Store) -> Result<Seen> {
    let mut seen = Seen { now: Some(store.now().await?), ..Seen::default() };
    seen.swept = last_sweep(store).await?;
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

    /// Adds the findings to a report.
    pub(crate) fn report(&self, report: &mut Report) {
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
                report.warn("overdue", found, "start workers, or more workers, for these queues");
            }
            _ => report.ok("overdue", "none"),
        }
        if self.blocked == 0 {
            report.ok("blocked", "none");
        } else {
            let found = format!("{}: {}", output::number(self.blocked), self.blocked_names.join(", "));
            report.add("blocked", Status::Blocked, found, "remove the cause, then unblock the rows");
        }
        self.report_housekeeping(report);
    }

    fn report_housekeeping(&self, report: &mut Report) {
        let start = "run `tidelock serve`, or start `Housekeeping` in a process of your own";
        let (Some(swept), Some(now)) = (&self.swept, self.now) else {
            // A new store has nothing to remove.
            return report.ok("housekeeping", "no sweep yet");
        };
        let age = now.since(swept.at);
        let Swept { expired, tombstones, operations } = swept.removed;
        let removed =
            [(expired, "expired documents"), (tombstones, "tombstones"), (operations, "operation records")]
                .map(|(count, kind)| format!("{} {kind}", output::number(count)))
                .join(", ");
        let more = if swept.complete { "" } else { "; more rows wait" };
        let found = format!("last sweep {} s ago removed {removed}{more}", age.as_secs());
        if age < LATE {
            report.ok("housekeeping", found);
        } else {
            report.warn("housekeeping", found, start);
        }
    }
}
