//! A journal entry of a run on one line: complete for programs, in words for human readers.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock::error::InvalidInput;
use tidelock::prelude::*;
use tidelock::store::Event;
use tidelock::workflow::{Failure, StepError};

use super::show::compact;
use crate::output::{self, Tone};

/// An entry in its form for programs.
#[derive(Debug, Serialize)]
pub(super) struct Line<'a> {
    run: &'a str,
    generation: u32,
    version: StreamVersion,
    at: Timestamp,
    entry: &'a str,
    payload: &'a Payload,
}

impl<'a> Line<'a> {
    pub(super) fn of(run: &'a str, generation: u32, event: &'a Event) -> Self {
        let (version, at, payload) = (event.version, event.at, &event.payload);
        Self { run, generation, version, at, entry: kind(event), payload }
    }
}

/// Returns the kind of the entry in one word: `done`, `tried`, `timer-set`, …
fn kind(event: &Event) -> &str {
    let name = event.event_type.as_str();
    name.strip_prefix("tidelock.run.").unwrap_or(name)
}

/// All fields that an entry may have. Absent fields have their defaults.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Said {
    op: Op,
    name: String,
    signal: String,
    run: String,
    reason: String,
    attempt: u32,
    input: Option<Payload>,
    value: Option<Payload>,
    /// The error text of an attempt, or the full error of a step that failed permanently.
    error: Option<Payload>,
    wait: Option<Duration>,
    when: Option<TimerSpec>,
    ending: Option<Ending>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Op {
    name: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TimerSpec {
    After(Duration),
    At(Timestamp),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Ending {
    Completed(Payload),
    Failed(Failure),
    Cancelled(Failure),
    Continued(Payload),
}

impl Ending {
    fn words(&self) -> String {
        match self {
            Self::Completed(value) => format!("completed: {}", compact(value)),
            Self::Failed(failure) => format!("failed: {}", output::flat(failure.message())),
            Self::Cancelled(failure) => format!("cancelled: {}", output::flat(failure.message())),
            Self::Continued(input) => format!("continues as new with {}", compact(input)),
        }
    }
}

/// Returns an entry for human readers, as wide as the terminal.
pub(super) fn words(event: &Event) -> String {
    let kind = kind(event);
    // An entry of a newer version is shown undecoded.
    let mut rest = said(kind, event).unwrap_or_else(|_| compact(&event.payload));
    let head = format!("{}  ", output::instant(event.at));
    let name = format!("{:<13}", output::flat(kind));
    if let Some(columns) = output::columns() {
        let taken = head.chars().count() + name.chars().count() + 3;
        rest = output::cut(&rest, columns.saturating_sub(taken).max(20));
    }
    format!("{head}{}  {rest}", output::styled(&name, tone(kind)))
}

fn tone(kind: &str) -> Tone {
    match kind {
        "gave-up" | "child-refused" => Tone::Bad,
        "tried" | "cancel" => Tone::Caution,
        _ => Tone::Bold,
    }
}

fn said(kind: &str, event: &Event) -> Result<String, InvalidInput> {
    if kind == "ended" {
        return Ok(event.payload.parse::<Ending>()?.words());
    }
    let said: Said = event.payload.parse()?;
    let step = output::flat(&said.op.name);
    // A missing value is shown as null.
    let value = |value: &Option<Payload>| value.as_ref().map_or_else(|| "null".to_owned(), compact);
    Ok(match kind {
        "started" => value(&said.input),
        "done" => format!("{step}  {}", value(&said.value)),
        "gave-up" | "child-refused" => format!("{step}  {}", failed(said.error.as_ref())?),
        "tried" => format!("{step}  {}", tried(&said)?),
        "timer-set" => format!("{step}  {}", until(said.when, event.at)),
        "signal-wait" => step,
        "timer-fired" => output::flat(&said.name),
        "child-started" => format!("{step}  run {}", output::flat(&said.run)),
        "child-ended" => {
            let ending = said.ending.as_ref().map(Ending::words).unwrap_or_default();
            format!("{}  run {} {ending}", output::flat(&said.name), output::flat(&said.run))
        }
        "version" => format!("{}  {}", output::flat(&said.name), value(&said.value)),
        "heard" => format!("{}  {}", output::flat(&said.signal), value(&said.value)),
        "cancel" | "resumed" => output::flat(&said.reason),
        _ => compact(&event.payload),
    })
}

fn failed(error: Option<&Payload>) -> Result<String, InvalidInput> {
    let error = error.map(Payload::parse::<StepError>).transpose()?;
    Ok(error.map(|error| output::flat(&error.to_string())).unwrap_or_default())
}

fn tried(said: &Said) -> Result<String, InvalidInput> {
    let error = said.error.as_ref().map(Payload::parse::<String>).transpose()?.unwrap_or_default();
    let again = said.wait.map(|wait| format!("; again in {}", output::span(wait))).unwrap_or_default();
    Ok(format!("attempt {}: {}{again}", said.attempt, output::flat(&error)))
}

fn until(when: Option<TimerSpec>, recorded: Timestamp) -> String {
    let instant = match when {
        Some(TimerSpec::After(wait)) => recorded.after(wait),
        Some(TimerSpec::At(at)) => at,
        None => return String::new(),
    };
    format!("until {}", output::instant(instant))
}
