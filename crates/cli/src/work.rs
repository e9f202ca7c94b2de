//! `tidelock work`: rows of work, as operators view and repair them.

mod blocked;
mod operate;
pub(crate) mod report;

use anyhow::Result;
use comfy_table::{Cell, Table};
use serde::Serialize;
use tidelock::key::reserved::is_own;
use tidelock::model::lease::ready_at;
use tidelock::payload::text;
use tidelock::prelude::*;
use tidelock::store::{Operation, Pattern, WorkFilter, WorkRow};

use crate::args::{Rows, Work, WorkList, WorkPrioritize, WorkShow, WorkState};
use crate::exit::Exit;
use crate::output::{self, Tone};
use crate::render::{self, Listing, PageRequest, Single};

/// Runs a verb of `work`.
pub(crate) async fn run(verb: Work) -> Result<Exit> {
    match verb {
        Work::List(options) => list(&options).await,
        Work::Show(options) => show(&options).await,
        Work::Blocked(options) => blocked::run(&options).await,
        Work::Unblock(options) => operate::run(&options, "unblock", Operation::Unblock).await,
        Work::Retry(options) => operate::run(&options, "retry", Operation::RetryNow).await,
        Work::Reset(options) => operate::run(&options, "reset", Operation::Reset).await,
        Work::Prioritize(WorkPrioritize { priority, operate }) => {
            let operation = Operation::Prioritize(Priority::new(priority)?);
            operate::run(&operate, "prioritize", operation).await
        }
    }
}

/// Returns the filter for the rows that meet the conditions.
pub(crate) fn filter(rows: &Rows, blocked: Option<bool>, leased: Option<bool>) -> Result<WorkFilter> {
    let queue = rows.queue.as_deref().map(str::parse).transpose()?;
    let pattern = rows.pattern.as_deref().map(Pattern::new).transpose()?;
    Ok(WorkFilter { queue, pattern, blocked, leased })
}

/// A row as it is printed.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    row: WorkRow,
    /// Its state: `blocked`, `leased`, `due`, `waiting` or `idle`.
    state: &'static str,
}

impl Line {
    fn of(row: WorkRow, now: Timestamp) -> Self {
        let leased = row.lease.as_ref().is_some_and(|lease| !lease.until.has_come(now));
        let state = match ready_at(&row) {
            _ if row.blocked.is_some() => "blocked",
            _ if leased => "leased",
            Some(ready) if ready.has_come(now) => "due",
            Some(_) => "waiting",
            None => "idle",
        };
        Self { row, state }
    }

    /// Returns the reason of the block, or else the last error.
    fn error(&self) -> String {
        let blocked = self.row.blocked.as_ref().map(|blocked| &blocked.reason);
        blocked.or(self.row.last_error.as_ref()).map(|error| output::flat(error)).unwrap_or_default()
    }

    /// Returns the time of the block, the expiry of the lease, or the due time.
    fn when(&self) -> Option<Timestamp> {
        let blocked = self.row.blocked.as_ref().map(|blocked| blocked.since);
        let leased = self.row.lease.as_ref().filter(|_| self.state == "leased").map(|lease| lease.until);
        blocked.or(leased).or_else(|| ready_at(&self.row))
    }
}

async fn list(options: &WorkList) -> Result<Exit> {
    let (blocked, leased) = match options.state {
        Some(WorkState::Blocked) => (Some(true), None),
        Some(WorkState::Leased) => (Some(false), Some(true)),
        Some(WorkState::Free) => (Some(false), Some(false)),
        None => (None, None),
    };
    let filter = filter(&options.rows, blocked, leased)?;
    render::listing(&options.look, &options.pages, async |store, ask| {
        let now = store.now().await?;
        let (rows, next) = page_of(store, &filter, &ask, |row| options.all || !is_own(&row.key)).await?;
        let lines = rows.into_iter().map(|row| Line::of(row, now)).collect();
        let none = if options.all { "no work" } else { "no work; --all includes internal rows" };
        Ok(Listing::new("rows", lines, table).or(none).next(next.map(|key| key.to_string())))
    })
    .await
}

/// Returns one page of the visible rows, and the cursor of the next page.
///
/// Hidden rows make a page smaller, so pages are read until one is full. Each read is a full page: many hidden rows may follow the
/// last visible one.
pub(crate) async fn page_of(
    store: &SharedStore,
    filter: &WorkFilter,
    ask: &PageRequest,
    is_shown: impl Fn(&WorkRow) -> bool,
) -> Result<(Vec<WorkRow>, Option<Key>)> {
    let (mut page, mut rows) = (ask.page()?, Vec::new());
    let next = loop {
        let found = store.works(filter, page.clone()).await?;
        rows.extend(found.rows.into_iter().filter(&is_shown));
        if rows.len() > ask.limit {
            rows.truncate(ask.limit);
            break rows.last().map(|row: &WorkRow| row.key.clone());
        }
        match found.next {
            Some(next) if rows.len() < ask.limit => page.after = Some(next),
            next => break next,
        }
    };
    Ok((rows, next))
}

fn table(lines: &[Line]) -> Table {
    let mut table = output::table(&["key", "queue", "state", "when", "owner", "attempts", "error"], &[5]);
    for line in lines {
        let owner = line.row.lease.as_ref().map(|lease| output::escaped(lease.owner.as_str()));
        table.add_row([
            output::key(&line.row.key).into(),
            output::escaped(line.row.queue.as_str()).into(),
            state(line.state),
            line.when().map(output::instant).unwrap_or_default().into(),
            owner.unwrap_or_default().into(),
            line.row.attempts.to_string().into(),
            line.error().into(),
        ]);
    }
    table
}

fn state(word: &'static str) -> Cell {
    match word {
        "blocked" => output::cell(word, Tone::Bad),
        "leased" => output::cell(word, Tone::Good),
        _ => word.into(),
    }
}

async fn show(options: &WorkShow) -> Result<Exit> {
    let key: Key = options.key.parse()?;
    render::whole(&options.look, async |store| {
        let Some(row) = store.work(&key).await? else { return Ok(Single::missing(missing(&key))) };
        let line = Line::of(row, store.now().await?);
        let facts = facts(&line).into_iter().filter(|(_, value)| !value.is_empty());
        let text: Vec<String> = facts.map(|(name, value)| format!("{name:<11}  {value}")).collect();
        Ok(Single::new(line, text.join("\n")))
    })
    .await
}

fn missing(key: &Key) -> Vec<String> {
    let pattern = output::quoted(&format!("^{}", key.kind()));
    vec![
        format!("error: there is no work {}", output::key(key)),
        format!("hint: `tidelock work list --pattern {pattern}` lists rows of this kind"),
    ]
}

/// Returns the properties of a row, the most requested first.
fn facts(line: &Line) -> Vec<(&'static str, String)> {
    let row = &line.row;
    let when = |at: Option<Timestamp>| at.map(output::instant).unwrap_or_default();
    let lease =
        |part: fn(&tidelock::store::LeaseRow) -> String| row.lease.as_ref().map(part).unwrap_or_default();
    vec![
        ("key", output::key(&row.key)),
        ("queue", output::escaped(row.queue.as_str())),
        ("state", line.state.to_owned()),
        ("due", when(row.due)),
        ("blocked", when(row.blocked.as_ref().map(|blocked| blocked.since))),
        ("error", line.error()),
        ("owner", lease(|lease| output::escaped(lease.owner.as_str()))),
        ("fence", lease(|lease| lease.fence.to_string())),
        ("leased at", lease(|lease| output::instant(lease.since))),
        ("expires at", lease(|lease| output::instant(lease.until))),
        ("attempts", row.attempts.to_string()),
        ("takeovers", row.takeovers.to_string()),
        ("priority", row.priority.level().to_string()),
        ("position", row.position.map(|position| position.to_string()).unwrap_or_default()),
        ("follows", row.follow.as_ref().map(output::key).unwrap_or_default()),
        ("enqueued", output::instant(row.enqueued_at)),
        ("payload", output::harmless(&text::compact(row.payload.as_str()))),
    ]
}
