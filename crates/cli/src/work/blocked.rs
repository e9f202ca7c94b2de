//! `tidelock work blocked`: work that is blocked until an operator acts.

use anyhow::Result;
use comfy_table::Table;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::store::WorkRow;

use super::filter;
use crate::args::WorkBlocked;
use crate::exit::Exit;
use crate::output;
use crate::render::{self, Listing};

/// A row as it is printed.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    key: Key,
    queue: QueueName,
    priority: Priority,
    position: Option<Position>,
    attempts: u32,
    takeovers: u32,
    blocked_at: Option<Timestamp>,
    due_at: Option<Timestamp>,
    error: Option<String>,
    owner: Option<Owner>,
    lease_expires_at: Option<Timestamp>,
    fence: Option<Fence>,
}

impl Line {
    pub(super) fn of(row: WorkRow) -> Self {
        let WorkRow { key, queue, priority, position, attempts, takeovers, due: due_at, .. } = row;
        let blocked_at = row.blocked.as_ref().map(|blocked| blocked.since);
        let error = row.blocked.map(|blocked| blocked.reason).or(row.last_error);
        let (owner, lease_expires_at, fence) = match row.lease {
            Some(lease) => (Some(lease.owner), Some(lease.until), Some(lease.fence)),
            None => (None, None, None),
        };
        Self {
            key,
            queue,
            priority,
            position,
            attempts,
            takeovers,
            blocked_at,
            due_at,
            error,
            owner,
            lease_expires_at,
            fence,
        }
    }
}

/// Lists one page of blocked work.
pub(super) async fn run(options: &WorkBlocked) -> Result<Exit> {
    let filter = filter(&options.rows, Some(true), None)?;
    render::listing(&options.look, &options.pages, async |store, ask| {
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
    let mut table = output::table(&["key", "queue", "attempts", "blocked at", "error"], &[2]);
    for row in rows {
        table.add_row([
            output::key(&row.key),
            output::escaped(row.queue.as_str()),
            row.attempts.to_string(),
            row.blocked_at.map(output::instant).unwrap_or_default(),
            output::flat(row.error.as_deref().unwrap_or_default()),
        ]);
    }
    output::one_line(&mut table);
    table
}
