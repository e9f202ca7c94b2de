//! `tidelock streams blocked`, `unblock`, `reset` and `retry`: work that is stuck, and how it goes on.

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::store::{Operation, Pattern, Selection, WorkFilter, WorkRow};

use crate::args::{Format, Rows, StreamsBlocked, StreamsOperate};
use crate::ask;
use crate::exit::Exit;
use crate::output;

/// More rows than this are asked about.
const MANY: u64 = 100;
/// So many are shown before something is done to them.
const FIRST: usize = 10;

/// A row as it is printed.
#[derive(Debug, Serialize)]
struct Line {
    key: Key,
    lane: Lane,
    attempts: u32,
    blocked_since: Option<Timestamp>,
    due: Option<Timestamp>,
    error: Option<String>,
}

impl Line {
    fn of(row: WorkRow) -> Self {
        let WorkRow { key, lane, attempts, due, last_error, blocked, .. } = row;
        let blocked_since = blocked.as_ref().map(|blocked| blocked.since);
        let error = blocked.map(|blocked| blocked.reason).or(last_error);
        Self { key, lane, attempts, blocked_since, due, error }
    }
}

fn filter(rows: &Rows, blocked: Option<bool>, leased: Option<bool>) -> Result<WorkFilter> {
    let lane = rows.lane.as_deref().map(str::parse).transpose()?;
    let pattern = rows.like.as_deref().map(Pattern::new).transpose()?;
    Ok(WorkFilter { lane, pattern, blocked, leased })
}

/// What `blocked` prints.
#[derive(Debug, Serialize)]
struct Listing {
    /// How many are blocked in all.
    blocked: u64,
    rows: Vec<Line>,
    /// Where to go on; `None` when these are all.
    next: Option<Key>,
}

/// Lists one page of what is blocked.
pub(super) async fn blocked(options: &StreamsBlocked) -> Result<Exit> {
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
        Format::Table if listing.rows.is_empty() => eprintln!("nothing is blocked"),
        Format::Table => {
            table(&listing.rows)?;
            eprintln!("{} blocked", output::number(blocked));
            if let Some(next) = &listing.next {
                eprintln!("hint: there are more; go on with --after {}", output::quoted(&output::key(next)));
            }
        }
    }
    Ok(if listing.blocked > 0 { Exit::Blocked } else { Exit::Well })
}

fn table(rows: &[Line]) -> Result<()> {
    let mut table = output::table(&["key", "lane", "attempts", "since", "error"], &[2]);
    for row in rows {
        let error = row.error.as_deref().unwrap_or_default().replace('\n', " ");
        table.add_row([
            output::key(&row.key),
            output::escaped(row.lane.as_str()),
            row.attempts.to_string(),
            row.blocked_since.map(output::instant).unwrap_or_default(),
            output::escaped(&error),
        ]);
    }
    output::one_line(&mut table);
    output::say(table)
}

/// A verb: what it is called, what it does, and which rows it means.
struct Verb {
    name: &'static str,
    operation: Operation,
    selection: Selection,
    /// Whether nothing says which rows are meant.
    all: bool,
}

/// What a verb prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    operation: &'a str,
    dry_run: bool,
    /// How many rows are meant.
    meant: u64,
    /// How many of them changed.
    changed: u64,
    /// The first of them, as they were before.
    rows: Vec<Line>,
}

/// Carries out an operator's verb, or says what it would mean.
pub(super) async fn operate(
    options: &StreamsOperate,
    name: &'static str,
    operation: Operation,
) -> Result<Exit> {
    let verb = Verb::new(options, name, operation)?;
    let opened = options.place.open().await?;
    let ended = verb.run(&*opened.shared(), options).await;
    opened.close().await;
    ended
}

impl Verb {
    fn new(options: &StreamsOperate, name: &'static str, operation: Operation) -> Result<Self> {
        let keys = options.keys.iter().map(|key| key.parse()).collect::<Result<Vec<Key>, _>>()?;
        let all = keys.is_empty() && options.rows.lane.is_none() && options.rows.like.is_none();
        let (blocked, leased) = match operation {
            Operation::RetryNow => (Some(false), Some(false)),
            Operation::Reset if !all => (None, None),
            _ => (Some(true), None),
        };
        let selection = match keys.is_empty() {
            true => Selection::Filter(filter(&options.rows, blocked, leased)?),
            false => Selection::Keys(keys),
        };
        Ok(Self { name, operation, selection, all })
    }

    async fn run(&self, store: &dyn Store, options: &StreamsOperate) -> Result<Exit> {
        let (meant, rows) = match self.meant(store).await? {
            Meant::Rows(meant, rows) => (meant, rows),
            Meant::Missing(key) => {
                eprintln!("error: there is no work {}; nothing was changed", output::key(&key));
                eprintln!("hint: `tidelock streams blocked` shows what is stuck");
                return Ok(Exit::NotFound);
            }
        };
        let mut report = Report { operation: self.name, dry_run: options.dry_run, meant, changed: 0, rows };
        if options.dry_run {
            return self.tell(&report, options.place.output);
        }
        if (self.all || meant > MANY) && meant > 0 {
            let which = if self.all { " (no condition was given)" } else { "" };
            let question =
                format!("{} rows are meant{which}. {} them?", output::number(meant), capital(self.name));
            if !ask::agreed(&question, options.yes)? {
                return Ok(Exit::Failed);
            }
        }
        let batch = Batch::new().operate(self.selection.clone(), self.operation);
        report.changed = store.apply(batch).await?.operated.first().copied().unwrap_or_default();
        self.tell(&report, options.place.output)
    }

    async fn meant(&self, store: &dyn Store) -> Result<Meant> {
        match &self.selection {
            Selection::Filter(filter) => {
                let count = store.count_work(filter).await?;
                let first = store.works(filter, Page::first(FIRST)).await?.rows;
                Ok(Meant::Rows(count, first.into_iter().map(Line::of).collect()))
            }
            Selection::Keys(keys) => {
                let mut rows = Vec::new();
                for key in keys {
                    let Some(row) = store.work(key).await? else { return Ok(Meant::Missing(key.clone())) };
                    if rows.len() < FIRST {
                        rows.push(Line::of(row));
                    }
                }
                Ok(Meant::Rows(keys.len() as u64, rows))
            }
        }
    }

    fn tell(&self, report: &Report<'_>, format: Format) -> Result<Exit> {
        let (meant, changed) = (output::number(report.meant), output::number(report.changed));
        match format {
            Format::Json => output::json(report)?,
            Format::Table if report.dry_run => {
                if !report.rows.is_empty() {
                    table(&report.rows)?;
                }
                let shown =
                    if report.meant > report.rows.len() as u64 { "; these are the first" } else { "" };
                eprintln!("{meant} rows are meant{shown}; nothing was changed");
            }
            Format::Table => output::say(format!("{}: {changed} of {meant} rows changed", self.name))?,
        }
        Ok(Exit::Well)
    }
}

/// Which rows a verb means.
enum Meant {
    /// So many, with the first of them.
    Rows(u64, Vec<Line>),
    /// One that was named is not there.
    Missing(Key),
}

fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
