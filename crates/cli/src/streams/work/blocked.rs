//! `tidelock streams blocked`: work that is blocked until an operator acts.

use anyhow::Result;
use comfy_table::Table;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::store::WorkRow;

use crate::args::StreamsBlocked;
use crate::exit::Exit;
use crate::output;
use crate::sight::{self, Listing};
use crate::work::filter;

/// A row as it is printed.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    key: Key,
    lane: Lane,
    priority: Priority,
    position: Option<Position>,
    attempts: u32,
    takeovers: u32,
    blocked_since: Option<Timestamp>,
    due: Option<Timestamp>,
    error: Option<String>,
    owner: Option<Owner>,
    until: Option<Timestamp>,
    fence: Option<Fence>,
}

impl Line {
    pub(super) fn of(row: WorkRow) -> Self {
        let WorkRow { key, lane, priority, position, attempts, takeovers, due, .. } = row;
        let blocked_since = row.blocked.as_ref().map(|blocked| blocked.since);
        let error = row.blocked.map(|blocked| blocked.reason).or(row.last_error);
        let (owner, until, fence) = match row.lease {
            Some(lease) => (Some(lease.owner), Some(lease.until), Some(lease.fence)),
            None => (None, None, None),
        };
        Self {
            key,
            lane,
            priority,
            position,
            attempts,
            takeovers,
            blocked_since,
            due,
            error,
            owner,
            until,
            fence,
        }
    }
}

/// Lists one page of blocked work.
pub(in crate::streams) async fn run(options: &StreamsBlocked) -> Result<Exit> {
    let filter = filter(&options.rows, Some(true), None)?;
    sight::listing(&options.look, &options.pages, async |store, ask| {
        let blocked = store.count_work(&filter).await?;
        let page = store.works(&filter, ask.page()?).await?;
        let rows = page.rows.into_iter().map(Line::of).collect();
        let mut listing = Listing::new("rows", rows, table).or("nothing is blocked").fact("blocked", blocked);
        if blocked > 0 {
            listing = listing.or("no more").note(format!("{} blocked", output::number(blocked)));
            listing.exit = Exit::Blocked;
        }
        Ok(listing.next(page.next.map(|key| key.to_string())))
    })
    .await
}

/// Returns rows as a table.
pub(super) fn table(rows: &[Line]) -> Table {
    let mut table = output::table(&["key", "lane", "attempts", "blocked since", "error"], &[2]);
    for row in rows {
        table.add_row([
            output::key(&row.key),
            output::escaped(row.lane.as_str()),
            row.attempts.to_string(),
            row.blocked_since.map(output::instant).unwrap_or_default(),
            output::flat(row.error.as_deref().unwrap_or_default()),
        ]);
    }
    output::one_line(&mut table);
    table
}
