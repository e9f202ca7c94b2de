//! `tidelock schedules show` and `history`: one task, its next fires, and its past runs.

use anyhow::Result;
use comfy_table::Table;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::schedule::{ScheduleView, Schedules, TickEntry, TickKind, TickOutcome};

use super::list::{when, whole};
use crate::args::{SchedulesHistory, SchedulesShow};
use crate::exit::Exit;
use crate::output::{self, Tone};
use crate::render::{self, Listing, Single};

/// The number of fires and runs shown.
const FEW: usize = 5;
/// The default and the maximum number of runs listed in a history.
const RUNS: usize = 20;
const MOST: usize = 1_000;

/// The printed report.
#[derive(Debug, Serialize)]
struct Task {
    #[serde(flatten)]
    view: ScheduleView,
    /// The next fires according to the schedule.
    upcoming: Vec<Timestamp>,
    history: Vec<TickEntry>,
}

/// Shows all details of a task.
pub(super) async fn run(options: &SchedulesShow) -> Result<Exit> {
    render::whole(&options.look, async |store| {
        let tasks = Schedules::new(SharedStore::clone(store));
        let view = tasks.show(&options.schedule).await?;
        // For a record that cannot be decoded, only its view is available.
        let upcoming = tasks.upcoming(&options.schedule, FEW).await.unwrap_or_default();
        let task = Task { view, upcoming, history: tasks.history(&options.schedule, FEW).await? };
        let notes = if task.history.is_empty() { vec!["no runs yet".to_owned()] } else { Vec::new() };
        let text = text(&task);
        Ok(Single::new(task, text).notes(notes))
    })
    .await
}

/// Lists the runs of a task, newest first. The start of a run is the cursor.
pub(super) async fn history(options: &SchedulesHistory) -> Result<Exit> {
    render::listing_of(RUNS, &options.look, &options.pages, async |store, ask| {
        let before: Option<Timestamp> = ask.cursor.as_deref().map(str::parse).transpose()?;
        let tasks = Schedules::new(SharedStore::clone(store));
        let asked = if before.is_some() { MOST } else { (ask.limit + 1).min(MOST) };
        let mut runs = tasks.history(&options.schedule, asked).await?;
        runs.retain(|run| before.is_none_or(|before| run.began < before));
        let more = runs.len() > ask.limit;
        runs.truncate(ask.limit);
        let next = runs.last().filter(|_| more).map(|run| run.began.to_string());
        Ok(Listing::new("runs", runs, table).or("no runs yet").next(next))
    })
    .await
}

fn text(task: &Task) -> String {
    let facts = facts(&task.view).into_iter().map(|(name, value)| format!("{name:<12}  {value}"));
    let mut lines: Vec<String> = facts.collect();
    for (i, fire) in task.upcoming.iter().enumerate() {
        let name = if i == 0 { "upcoming" } else { "" };
        lines.push(format!("{name:<12}  {}", output::instant(*fire)));
    }
    if !task.history.is_empty() {
        lines.push(format!("\n{}", table(&task.history)));
    }
    lines.join("\n")
}

/// Returns the properties of a task, the most requested first.
fn facts(view: &ScheduleView) -> Vec<(&'static str, String)> {
    let record = &view.record;
    let mut facts = vec![
        ("task", output::flat(&record.name)),
        ("times", output::flat(&record.cron_expression)),
        ("zone", output::flat(&view.zone)),
        ("does", output::flat(&view.action)),
        ("doing", whole(&view.doing)),
        ("next", when(view.next)),
        ("last success", when(record.last_success_time)),
        ("last failure", when(record.last_failure_time)),
        ("last attempt", when(record.last_attempt_time)),
        ("retry at", when(record.pending_retry_until)),
        ("retry delay", format!("{} ms", output::number(record.retry_delay_ms))),
        ("ran by", record.scheduler_identifier.as_deref().map_or_else(|| "-".to_owned(), output::flat)),
        ("scheduler", output::flat(&view.scheduler)),
        ("runs", output::number(view.runs)),
        ("failures", output::number(view.failures)),
        ("passed over", output::number(view.skipped)),
    ];
    facts.retain(|(_, value)| !value.is_empty() && value != "-");
    facts
}

fn table(history: &[TickEntry]) -> Table {
    let mut table = output::table(&["fire", "kind", "attempt", "outcome", "began", "took", "error"], &[2, 5]);
    for run in history {
        table.add_row([
            output::instant(run.fire).into(),
            kind(run.kind).into(),
            run.attempt.to_string().into(),
            outcome(&run.outcome),
            output::instant(run.began).into(),
            output::span(run.ended.since(run.began)).into(),
            run.error.as_deref().map(output::flat).unwrap_or_default().into(),
        ]);
    }
    output::one_line(&mut table);
    table
}

fn kind(kind: TickKind) -> &'static str {
    match kind {
        TickKind::Scheduled => "scheduled",
        TickKind::Manual => "manual",
        TickKind::Backfill => "backfill",
    }
}

fn outcome(outcome: &TickOutcome) -> comfy_table::Cell {
    let tone = match outcome {
        TickOutcome::Succeeded | TickOutcome::Started { .. } => Tone::Good,
        TickOutcome::Failed => Tone::Bad,
        TickOutcome::Lost | TickOutcome::Interrupted => Tone::Caution,
    };
    output::cell(outcome.word(), tone)
}
