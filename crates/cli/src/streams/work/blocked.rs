//! `tidelock streams blocked`: work that waits for an operator.

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::store::WorkRow;

use super::row::filter;
use crate::args::{Format, StreamsBlocked};
use crate::exit::Exit;
use crate::output;

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

/// What is printed.
#[derive(Debug, Serialize)]
struct Listing {
    /// How many are blocked in all.
    blocked: u64,
    rows: Vec<Line>,
    /// Where to go on; `None` when these are all.
    next: Option<Key>,
}

/// Lists one page of what is blocked.
pub(in crate::streams) async fn run(options: &StreamsBlocked) -> Result<Exit> {
    let filter = filter(&options.rows, Some(true), None)?;
    let after = options.after.as_deref().map(str::parse).transpose()?;
    let opened = options.place.open().await?;
    let store = opened.shared();
    let blocked = store.count_work(&filter).await?;
    let page = store.works(&filter, Page { after, limit: options.limit }).await?;
    opened.close().await;
    let rows = page.rows.into_iter().map(Line::of).collect();
    let listing = Listing { blocked, rows, next: page.next };
    match options.place.output {
        Format::Json => output::json(&listing)?,
        Format::Table if blocked == 0 => eprintln!("nothing is blocked"),
        Format::Table => tell(&listing)?,
    }
    Ok(if blocked > 0 { Exit::Blocked } else { Exit::Well })
}

fn tell(listing: &Listing) -> Result<()> {
    table(&listing.rows)?;
    eprintln!("{} blocked", output::number(listing.blocked));
    if let Some(next) = &listing.next {
        eprintln!("hint: there are more; go on with --after {}", output::quoted(&output::key(next)));
    }
    Ok(())
}

/// Rows as a table.
pub(super) fn table(rows: &[Line]) -> Result<()> {
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
    output::say(table)
}
