//! `tidelock leases`: the leases with their holders, fencing tokens and remaining times.

use anyhow::Result;
use comfy_table::{Cell, Table};
use serde::Serialize;
use tidelock::lease::{self, LeaseView};
use tidelock::prelude::*;
use tidelock::store::{LeaseRow, WorkRow};

use crate::args::{Leases, LeasesList, LeasesShow};
use crate::exit::Exit;
use crate::output::{self, Tone};
use crate::render::{self, Listing, Single};
use crate::work::{filter, page_of};

/// Runs a verb of `leases`.
pub(crate) async fn run(verb: Leases) -> Result<Exit> {
    match verb {
        Leases::List(options) => list(&options).await,
        Leases::Show(options) => show(&options).await,
    }
}

/// A lease as it is printed.
#[derive(Debug, Serialize)]
struct Line {
    key: Key,
    queue: QueueName,
    #[serde(flatten)]
    lease: LeaseRow,
    /// Whether it has expired, so that the next caller acquires it.
    expired: bool,
    takeovers: u32,
    #[serde(skip)]
    now: Timestamp,
}

impl Line {
    fn of(row: WorkRow, now: Timestamp) -> Option<Self> {
        let WorkRow { key, queue, takeovers, lease, .. } = row;
        let lease = lease?;
        Some(Self { key, queue, expired: lease.until.has_come(now), lease, takeovers, now })
    }

    /// Returns the remaining time, or the time since the expiry.
    fn left(&self) -> Cell {
        match self.expired {
            false => output::span(self.lease.until.since(self.now)).into(),
            true => output::cell(
                &format!("expired {} ago", output::span(self.now.since(self.lease.until))),
                Tone::Caution,
            ),
        }
    }
}

async fn list(options: &LeasesList) -> Result<Exit> {
    let filter = filter(&options.rows, None, Some(true))?;
    render::listing(&options.look, &options.pages, async |store, ask| {
        let now = store.now().await?;
        let has_expired = |row: &WorkRow| row.lease.as_ref().is_some_and(|lease| lease.until.has_come(now));
        let (rows, next) = page_of(store, &filter, &ask, |row| !options.expired || has_expired(row)).await?;
        let lines = rows.into_iter().filter_map(|row| Line::of(row, now)).collect();
        let none = if options.expired { "no lease has expired" } else { "no leases are held" };
        Ok(Listing::new("leases", lines, table).or(none).next(next.map(|key| key.to_string())))
    })
    .await
}

fn table(lines: &[Line]) -> Table {
    let mut table = output::table(&["key", "queue", "owner", "fence", "left", "takeovers"], &[3, 4, 5]);
    for line in lines {
        table.add_row([
            output::key(&line.key).into(),
            output::escaped(line.queue.as_str()).into(),
            output::escaped(line.lease.owner.as_str()).into(),
            line.lease.fence.to_string().into(),
            line.left(),
            line.takeovers.to_string().into(),
        ]);
    }
    table
}

async fn show(options: &LeasesShow) -> Result<Exit> {
    let key: Key = options.key.parse()?;
    render::whole(&options.look, async |store| {
        let Some(view) = lease::view(store, &key).await? else {
            let missing = format!("error: {} has neither a lease nor waiters", output::key(&key));
            let hint = "hint: `tidelock leases list` lists current leases".to_owned();
            return Ok(Single::missing(vec![missing, hint]));
        };
        let facts = facts(&view).into_iter().filter(|(_, value)| !value.is_empty());
        let text: Vec<String> = facts.map(|(name, value)| format!("{name:<10}  {value}")).collect();
        Ok(Single::new(view, text.join("\n")))
    })
    .await
}

/// Returns the properties of a lease, the most requested first.
fn facts(view: &LeaseView) -> Vec<(&'static str, String)> {
    let held = |part: fn(&LeaseRow) -> String| view.holder.as_ref().map_or_else(String::new, part);
    let expired = if view.has_ended() { ", expired; the next caller acquires it" } else { "" };
    let mut facts = vec![
        ("key", output::key(&view.key)),
        ("holder", held(|holder| output::escaped(holder.owner.as_str()))),
        ("fence", held(|holder| holder.fence.to_string())),
        ("leased at", held(|holder| output::instant(holder.since))),
        (
            "expires at",
            view.holder
                .as_ref()
                .map(|holder| format!("{}{expired}", output::instant(holder.until)))
                .unwrap_or_default(),
        ),
        ("note", view.note.as_deref().map(output::flat).unwrap_or_default()),
        ("takeovers", view.takeovers.to_string()),
        ("waiting", view.waiters.len().to_string()),
    ];
    let waiters = view.waiters.iter();
    facts.extend(waiters.map(|waiter| {
        ("", format!("{} since {}", output::escaped(waiter.owner.as_str()), output::instant(waiter.since)))
    }));
    facts
}
