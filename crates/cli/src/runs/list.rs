//! `tidelock runs list`: which runs there are, and what they do.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::workflow::{Client, RunFilter, RunView};

use super::{doing, keys, shown};
use crate::args::{Format, RunsList};
use crate::exit::Exit;
use crate::output;

/// What is printed.
#[derive(Debug, Serialize)]
struct Listing {
    runs: Vec<RunView>,
    /// How many of these stand how.
    counts: BTreeMap<&'static str, usize>,
    /// The run to go on after; `None` when these are all.
    next: Option<String>,
}

/// On a terminal, a reason is cut so that the other columns have room. `show` has the rest.
const WORDS: usize = 48;

/// Lists one page.
pub(super) async fn run(client: &Client, store: &dyn Store, options: &RunsList) -> Result<Exit> {
    let listing = page(client, store, options).await?;
    match options.place.output {
        Format::Json => output::json(&listing)?,
        Format::Table => table(&listing)?,
    }
    Ok(Exit::Well)
}

async fn page(client: &Client, store: &dyn Store, options: &RunsList) -> Result<Listing> {
    let after = options.after.as_deref().map(keys::run).transpose()?;
    let filter = filter(store, options).await?;
    // One more than is shown tells whether there are more.
    let mut page = client.list(&filter, after.as_ref(), options.limit + 1).await?;
    let mut next = page.next.as_ref().and_then(keys::id);
    if page.runs.len() > options.limit {
        page.runs.truncate(options.limit);
        next = page.runs.last().map(|run| run.run.clone());
    }
    let mut counts = BTreeMap::new();
    for run in &page.runs {
        *counts.entry(run.status.word()).or_default() += 1;
    }
    Ok(Listing { runs: page.runs, counts, next })
}

async fn filter(store: &dyn Store, options: &RunsList) -> Result<RunFilter> {
    let now = store.now().await?;
    Ok(RunFilter {
        workflow: options.workflow.clone(),
        status: options.status.map(Into::into),
        prefix: options.prefix.clone(),
        attributes: options.attribute.iter().cloned().collect(),
        changed_since: options.since.map(|span| ago(now, span)),
        changed_before: options.before.map(|span| ago(now, span)),
    })
}

/// So long before now.
pub(super) fn ago(now: Timestamp, span: Duration) -> Timestamp {
    let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(now.as_micros().saturating_sub(micros))
}

fn table(listing: &Listing) -> Result<()> {
    if listing.runs.is_empty() {
        eprintln!("no runs");
    } else {
        rows(&listing.runs)?;
        let counts = listing.counts.iter().map(|(status, count)| format!("{count} {status}"));
        eprintln!("{}", counts.collect::<Vec<_>>().join(", "));
    }
    if let Some(next) = &listing.next {
        eprintln!("hint: there may be more; go on with --after {}", shown(next));
    }
    Ok(())
}

fn rows(runs: &[RunView]) -> Result<()> {
    let mut table = output::table(&["run", "workflow", "status", "doing", "changed"], &[]);
    for run in runs {
        table.add_row([
            output::flat(&run.run).into(),
            output::flat(&run.workflow).into(),
            output::cell(run.status.word(), doing::tone(run.status)),
            cut(&doing::words(&run.doing)).into(),
            output::instant(run.changed_at).into(),
        ]);
    }
    output::say(table)
}

fn cut(words: &str) -> String {
    if output::columns().is_some() { output::cut(words, WORDS) } else { words.to_owned() }
}
