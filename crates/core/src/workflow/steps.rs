//! Operations of a run, from its journal: steps with their attempts, timers, children and signals.

use foldhash::HashMap;
use serde::Serialize;

use super::journal_entry::{ChildStarted, Done, Ending, GaveUp, JournalEntry, Placed, Ran, TimerSet, Tried};
use crate::clock::Timestamp;
use crate::payload::Payload;

/// An operation of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepView {
    /// Its name, with its scopes.
    pub name: String,
    /// The kind: `step`, `timer`, `child` or `signal`.
    pub kind: &'static str,
    /// The state: `done`, `failed`, `tried`, `waits`, `fired`, `heard`.
    pub state: &'static str,
    /// The completed attempts of a step, in order. An attempt whose worker died leaves no record.
    pub attempts: Vec<AttemptView>,
    /// The result, or the error. A waiting timer has its time here, and a waiting child its run.
    pub value: Option<Payload>,
    /// When its first attempt, its timer or its child began.
    pub started_at: Timestamp,
    /// When it ended; `None` while it waits or is retried.
    pub ended_at: Option<Timestamp>,
    /// When its last entry was committed.
    #[serde(rename = "recorded_at")]
    pub at: Timestamp,
}

/// A completed attempt of a step. Its times are those of the store's clock as its worker estimated it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttemptView {
    /// When its code began.
    pub started_at: Timestamp,
    /// When its code ended. The commit follows.
    pub ended_at: Timestamp,
    /// Why it failed; `None` when it succeeded.
    pub error: Option<String>,
}

/// Returns the operations that the entries of a journal record. The last entry of each decides its state.
pub(super) fn of(entries: &[Placed]) -> Vec<StepView> {
    let mut steps: Vec<StepView> = Vec::new();
    let mut places: HashMap<(String, &'static str), usize> = HashMap::default();
    for placed in entries {
        let Some(step) = step(placed) else { continue };
        // Each signal is a separate operation.
        let place = match step.kind {
            "signal" => None,
            kind => Some(*places.entry((step.name.clone(), kind)).or_insert(steps.len())),
        };
        match place.and_then(|place| steps.get_mut(place)) {
            Some(known) => {
                let mut attempts = std::mem::take(&mut known.attempts);
                attempts.extend(step.attempts);
                *known = StepView { attempts, started_at: known.started_at, ..step };
            }
            None => steps.push(step),
        }
    }
    steps
}

/// The content of one entry.
struct Word<'a> {
    name: &'a str,
    kind: &'static str,
    state: &'static str,
    value: Option<Payload>,
    attempt: Option<(Ran, Option<String>)>,
}

fn word(placed: &Placed) -> Option<Word<'_>> {
    let said = |name, kind, state, value| Word { name, kind, state, value, attempt: None };
    Some(match &placed.entry {
        JournalEntry::Done(Done { op, value, ran }) => {
            Word { attempt: Some((*ran, None)), ..said(&op.name, "step", "done", Some(value.clone())) }
        }
        JournalEntry::GaveUp(GaveUp { op, error, ran }) => {
            let text = error.to_string();
            let value = Payload::of(&text).ok();
            Word { attempt: ran.map(|ran| (ran, Some(text))), ..said(&op.name, "step", "failed", value) }
        }
        JournalEntry::Tried(Tried { op, error, ran, .. }) => {
            let value = Payload::of(error).ok();
            Word { attempt: Some((*ran, Some(error.clone()))), ..said(&op.name, "step", "tried", value) }
        }
        JournalEntry::TimerSet(TimerSet { op, when }) => {
            said(&op.name, "timer", "waits", Payload::of(&when.since(placed.at).to_string()).ok())
        }
        JournalEntry::TimerFired(named) => said(&named.name, "timer", "fired", None),
        JournalEntry::ChildStarted(ChildStarted { op, run }) => {
            said(&op.name, "child", "waits", Payload::of(run).ok())
        }
        JournalEntry::ChildEnded(ended) => {
            let (state, value) = match &ended.ending {
                Ending::Completed(value) => ("done", Some(value.clone())),
                Ending::Failed(failure) | Ending::Cancelled(failure) => {
                    ("failed", Payload::of(failure.message()).ok())
                }
                Ending::Continued(_) => ("waits", None),
            };
            said(&ended.name, "child", state, value)
        }
        JournalEntry::ChildRefused(GaveUp { op, error, .. }) => {
            said(&op.name, "child", "failed", Payload::of(&error.to_string()).ok())
        }
        JournalEntry::Heard(heard) => said(&heard.signal, "signal", "heard", Some(heard.value.clone())),
        _ => return None,
    })
}

fn step(placed: &Placed) -> Option<StepView> {
    let Word { name, kind, state, value, attempt } = word(placed)?;
    let ran = attempt.as_ref().map(|(ran, _)| *ran).unwrap_or(Ran { began: placed.at, ended: placed.at });
    let open = matches!(state, "waits" | "tried");
    let attempt =
        attempt.map(|(ran, error)| AttemptView { started_at: ran.began, ended_at: ran.ended, error });
    Some(StepView {
        name: name.to_owned(),
        kind,
        state,
        attempts: attempt.into_iter().collect(),
        value,
        started_at: ran.began,
        ended_at: (!open).then_some(ran.ended),
        at: placed.at,
    })
}
