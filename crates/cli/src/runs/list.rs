//! `tidelock runs list`: the runs and their current activity.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use comfy_table::Table;
use serde_json::json;
use tidelock::prelude::*;
use tidelock::workflow::{RunCursor, RunFilter, RunView, WorkflowClient};

use super::activity;
use crate::args::RunsList;
use crate::exit::{Exit, UsageError};
use crate::output;
use crate::render::{self, Listing};

/// The maximum length of a reason on a terminal, so that the other columns have room. `show` has
/// the rest.
const WORDS: usize = 48;

/// Lists one page.
pub(super) async fn run(options: &RunsList) -> Result<Exit> {
    render::listing(&options.look, &options.pages, async |store, ask| {
        let client = WorkflowClient::new(SharedStore::clone(store));
        let after = ask.cursor.as_deref().map(cursor).transpose()?;
        let filter = filter(&**store, options).await?;
        let page = client.list(&filter, after.as_ref(), ask.limit).await?;
        let next = page.next.map(|next| next.to_string());
        Ok(counted(Listing::new("runs", page.runs, table).or("no runs").next(next)))
    })
    .await
}

fn cursor(text: &str) -> Result<RunCursor, UsageError> {
    text.parse().map_err(|_| UsageError(format!("{text:?} is no cursor of runs")))
}

/// Adds the number of runs in each status.
fn counted(listing: Listing<RunView>) -> Listing<RunView> {
    let mut counts = BTreeMap::<&str, usize>::new();
    for run in &listing.rows {
        *counts.entry(run.status.word()).or_default() += 1;
    }
    let words: Vec<String> = counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
    let listing = listing.fact("counts", json!(counts));
    if words.is_empty() { listing } else { listing.note(words.join(", ")) }
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

/// Returns the instant that lies the given duration before `now`.
pub(super) fn ago(now: Timestamp, span: Duration) -> Timestamp {
    let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(now.as_micros().saturating_sub(micros))
}

fn table(runs: &[RunView]) -> Table {
    let mut table = output::table(&["run", "workflow", "status", "doing", "started", "ended"], &[]);
    for run in runs {
        table.add_row([
            output::flat(&run.run).into(),
            output::flat(&run.workflow).into(),
            output::cell(run.status.word(), activity::tone(run.status)),
            cut(&activity::words(&run.doing)).into(),
            output::instant(run.started_at).into(),
            run.ended_at.map(output::instant).unwrap_or_default().into(),
        ]);
    }
    table
}

fn cut(words: &str) -> String {
    if output::columns().is_some() { output::cut(words, WORDS) } else { words.to_owned() }
}
