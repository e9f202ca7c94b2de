//! `tidelock runs show` and `steps`: one run, and what it has asked for so far.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;
use tidelock::payload::text;
use tidelock::prelude::*;
use tidelock::workflow::{Client, RunView, StepView};

use super::{doing, keys};
use crate::args::{Format, RunsShow};
use crate::exit::Exit;
use crate::output::{self, Tone};

/// What is printed.
#[derive(Debug, Serialize)]
struct Whole {
    #[serde(flatten)]
    view: RunView,
    /// What it has published.
    values: BTreeMap<String, Payload>,
    steps: Vec<StepView>,
}

/// Shows all there is about a run.
pub(super) async fn run(client: &Client, store: &dyn Store, options: &RunsShow) -> Result<Exit> {
    let view = client.show(&options.run).await?;
    let values = match store.document(&keys::values(&options.run)?).await? {
        Some(document) => document.value.parse()?,
        None => BTreeMap::new(),
    };
    let whole = Whole { view, values, steps: client.steps(&options.run).await? };
    match options.place.output {
        Format::Json => output::json(&whole)?,
        Format::Table => tell(&whole)?,
    }
    Ok(Exit::Well)
}

/// Shows what a run has asked for.
pub(super) async fn steps(client: &Client, options: &RunsShow) -> Result<Exit> {
    let steps = client.steps(&options.run).await?;
    match options.place.output {
        Format::Json => output::json(&steps)?,
        Format::Table => table(&steps)?,
    }
    Ok(Exit::Well)
}

fn tell(whole: &Whole) -> Result<()> {
    for (name, value) in facts(&whole.view) {
        line(name, &value)?;
    }
    if !whole.values.is_empty() {
        output::say(format!("\n{}", output::styled("published", Tone::Bold)))?;
    }
    for (name, value) in &whole.values {
        line(&output::flat(name), &compact(value))?;
    }
    output::say("")?;
    table(&whole.steps)
}

fn line(name: &str, value: &str) -> Result<()> {
    output::say(format!("{name:<10}  {value}"))
}

/// What is known about a run, in the order in which people ask for it.
fn facts(view: &RunView) -> Vec<(&'static str, String)> {
    let named =
        |values: &[String]| values.iter().map(|value| output::flat(value)).collect::<Vec<_>>().join(", ");
    let attributes: Vec<_> = view.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut facts = vec![
        ("run", output::flat(&view.run)),
        ("workflow", output::flat(&view.workflow)),
        ("status", output::styled(view.status.word(), doing::tone(view.status))),
        ("doing", doing::whole(&view.doing)),
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

/// A value on one line.
pub(super) fn compact(value: &Payload) -> String {
    output::harmless(&text::compact(value.as_str()))
}

fn table(steps: &[StepView]) -> Result<()> {
    if steps.is_empty() {
        eprintln!("no steps yet");
        return Ok(());
    }
    let mut table = output::table(&["name", "kind", "state", "attempts", "at", "value"], &[3]);
    for step in steps {
        table.add_row([
            output::flat(&step.name).into(),
            step.kind.into(),
            state(step.state),
            step.attempts.to_string().into(),
            output::instant(step.at).into(),
            step.value.as_ref().map(compact).unwrap_or_default().into(),
        ]);
    }
    output::one_line(&mut table);
    output::say(table)
}

fn state(word: &'static str) -> comfy_table::Cell {
    match word {
        "failed" => output::cell(word, Tone::Bad),
        "tried" => output::cell(word, Tone::Caution),
        _ => word.into(),
    }
}
