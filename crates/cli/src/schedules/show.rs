//! `tidelock schedules show` and `history`: one task, its next fires, and how it ran.

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::schedule::{Entry, Kind, Outcome, Schedules, TaskView};

use super::list::{when, whole};
use crate::args::{Format, SchedulesHistory, SchedulesShow};
use crate::exit::Exit;
use crate::output::{self, Tone};

/// How many fires and runs are shown.
const FEW: usize = 5;

/// What is printed.
#[derive(Debug, Serialize)]
struct Whole {
    #[serde(flatten)]
    view: TaskView,
    /// The next fires, as the times say.
    upcoming: Vec<Timestamp>,
    history: Vec<Entry>,
}

/// Shows all there is about a task.
pub(super) async fn run(tasks: &Schedules, options: &SchedulesShow) -> Result<Exit> {
    let view = tasks.show(&options.task).await?;
    // Of a record that cannot be read, its view is all there is.
    let upcoming = tasks.upcoming(&options.task, FEW).await.unwrap_or_default();
    let history = tasks.history(&options.task, FEW).await?;
    let whole = Whole { view, upcoming, history };
    match options.place.output {
        Format::Json => output::json(&whole)?,
        Format::Table => tell(&whole)?,
    }
    Ok(Exit::Well)
}

/// Lists how a task ran.
pub(super) async fn history(tasks: &Schedules, options: &SchedulesHistory) -> Result<Exit> {
    let history = tasks.history(&options.task, options.limit).await?;
    match options.place.output {
        Format::Json => output::json(&history)?,
        Format::Table => table(&history)?,
    }
    Ok(Exit::Well)
}

fn tell(whole: &Whole) -> Result<()> {
    for (name, value) in facts(&whole.view) {
        output::say(format!("{name:<12}  {value}"))?;
    }
    for (i, fire) in whole.upcoming.iter().enumerate() {
        let name = if i == 0 { "upcoming" } else { "" };
        output::say(format!("{name:<12}  {}", output::instant(*fire)))?;
    }
    output::say("")?;
    table(&whole.history)
}

/// What is known about a task, in the order in which people ask for it.
fn facts(view: &TaskView) -> Vec<(&'static str, String)> {
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

fn table(history: &[Entry]) -> Result<()> {
    if history.is_empty() {
        eprintln!("no runs yet");
        return Ok(());
    }
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
    output::say(table)
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Scheduled => "scheduled",
        Kind::Manual => "manual",
        Kind::Backfill => "backfill",
    }
}

fn outcome(outcome: &Outcome) -> comfy_table::Cell {
    let tone = match outcome {
        Outcome::Succeeded | Outcome::Started { .. } => Tone::Good,
        Outcome::Failed => Tone::Bad,
        Outcome::Lost | Outcome::Interrupted => Tone::Caution,
    };
    output::cell(outcome.word(), tone)
}
