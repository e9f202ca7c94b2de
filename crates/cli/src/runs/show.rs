//! `tidelock runs show` and `steps`: one run, and its operations so far.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use comfy_table::Table;
use serde::Serialize;
use tidelock::payload::text;
use tidelock::prelude::*;
use tidelock::workflow::{RunView, StepView, WorkflowClient};

use super::{activity, keys};
use crate::args::{RunsShow, RunsSteps};
use crate::exit::{Exit, UsageError};
use crate::output::{self, Tone};
use crate::render::{self, Listing, Single};

/// The printed report.
#[derive(Debug, Serialize)]
struct Run {
    #[serde(flatten)]
    view: RunView,
    /// The published values.
    values: BTreeMap<String, Payload>,
    steps: Vec<StepView>,
}

/// Shows all details of a run.
pub(super) async fn run(options: &RunsShow) -> Result<Exit> {
    render::whole(&options.look, async |store| {
        let client = WorkflowClient::new(SharedStore::clone(store));
        let view = client.show(&options.run).await?;
        let values = match store.document(&keys::values(&options.run)?).await? {
            Some(document) => document.value.parse()?,
            None => BTreeMap::new(),
        };
        let run = Run { view, values, steps: client.steps(&options.run).await? };
        let notes = if run.steps.is_empty() { vec!["no steps yet".to_owned()] } else { Vec::new() };
        let text = text(&run);
        Ok(Single::new(run, text).notes(notes))
    })
    .await
}

/// Lists the steps of a run. A step never disappears within a generation of the run, so its number is a cursor.
pub(super) async fn steps(options: &RunsSteps) -> Result<Exit> {
    render::listing(&options.look, &options.pages, async |store, ask| {
        let seen = match ask.cursor.as_deref() {
            None => 0,
            Some(cursor) => {
                cursor.parse().map_err(|_| UsageError(format!("{cursor:?} is no cursor of steps")))?
            }
        };
        let all = WorkflowClient::new(SharedStore::clone(store)).steps(&options.run).await?;
        let next = seen + ask.limit;
        let next = (all.len() > next).then(|| next.to_string());
        let steps = all.into_iter().skip(seen).take(ask.limit).collect();
        Ok(Listing::new("steps", steps, table).or("no steps yet").next(next))
    })
    .await
}

fn text(run: &Run) -> String {
    let mut lines: Vec<String> = facts(&run.view).iter().map(|(name, value)| line(name, value)).collect();
    if !run.values.is_empty() {
        lines.push(format!("\n{}", output::styled("published", Tone::Bold)));
    }
    lines.extend(run.values.iter().map(|(name, value)| line(&output::flat(name), &compact(value))));
    if !run.steps.is_empty() {
        lines.push(format!("\n{}", table(&run.steps)));
    }
    lines.join("\n")
}

fn line(name: &str, value: &str) -> String {
    format!("{name:<10}  {value}")
}

/// Returns the properties of a run, the most requested first.
fn facts(view: &RunView) -> Vec<(&'static str, String)> {
    let named =
        |values: &[String]| values.iter().map(|value| output::flat(value)).collect::<Vec<_>>().join(", ");
    let attributes: Vec<_> = view.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut facts = vec![
        ("run", output::flat(&view.run)),
        ("workflow", output::flat(&view.workflow)),
        ("status", output::styled(view.status.word(), activity::tone(view.status))),
        ("doing", activity::whole(&view.doing)),
        ("started", output::instant(view.started_at)),
        ("ended", view.ended_at.map(output::instant).unwrap_or_default()),
        ("changed", output::instant(view.changed_at)),
        ("queue", output::flat(&view.queue)),
        ("priority", view.priority.to_string()),
        ("generation", view.generation.to_string()),
        ("parent", view.parent.as_deref().map(output::flat).unwrap_or_default()),
        ("signals", named(&view.signals)),
        ("attributes", named(&attributes)),
        ("input", compact(&view.input)),
        ("output", view.output.as_ref().map(compact).unwrap_or_default()),
        ("failure", view.failure.as_deref().map(output::flat).unwrap_or_default()),
    ];
    facts.retain(|(_, value)| !value.is_empty());
    facts
}

/// Returns a value on one line.
pub(super) fn compact(value: &Payload) -> String {
    output::harmless(&text::compact(value.as_str()))
}

fn table(steps: &[StepView]) -> Table {
    let mut table =
        output::table(&["name", "kind", "state", "attempts", "started", "took", "value"], &[3, 5]);
    for step in steps {
        table.add_row([
            output::flat(&step.name).into(),
            step.kind.into(),
            state(step.state),
            step.attempts.len().to_string().into(),
            output::instant(step.started_at).into(),
            took(step).into(),
            step.value.as_ref().map(compact).unwrap_or_default().into(),
        ]);
    }
    output::one_line(&mut table);
    table
}

/// Returns the time from the start of a step to its end, including retries and waits.
fn took(step: &StepView) -> String {
    let Some(took) = step.ended_at.map(|ended| ended.since(step.started_at)) else { return String::new() };
    if took < Duration::from_secs(10) { format!("{} ms", took.as_millis()) } else { output::span(took) }
}

fn state(word: &'static str) -> comfy_table::Cell {
    match word {
        "failed" => output::cell(word, Tone::Bad),
        "tried" => output::cell(word, Tone::Caution),
        _ => word.into(),
    }
}
