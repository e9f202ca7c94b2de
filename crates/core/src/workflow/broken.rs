//! Why a run cannot go on with the code that is there. It is put off with the reason, never failed: the next try may find
//! other code.

use std::fmt::Write as _;

use super::entry::{Kind, Placed};
use crate::error::{Code, Explain, Outcome, Retry};

/// What is wrong with the code of a workflow, or with how it was called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broken {
    /// The code does something else than what was recorded.
    #[error(
        "the workflow does not do what it did before: {what}.\n{lists}\nBring the old code back, or keep both ways with version()"
    )]
    Differs { what: String, lists: String },
    /// A name was used twice.
    #[error(
        "{kind} {name:?} was asked for twice in one run; results are kept by name, so give it another, or a scope with an index in a loop"
    )]
    Twice { kind: &'static str, name: String },
    /// Something was asked for where it cannot be.
    #[error("{kind} {name:?} was asked for {place}; ask for it in the workflow itself")]
    Misplaced { kind: &'static str, name: String, place: &'static str },
    /// A recorded value does not have the type that the code expects.
    #[error(
        "{kind} {name:?} has a recorded value that does not fit: {reason}; read the old form, too, or give the step another name"
    )]
    Value { kind: &'static str, name: String, reason: String },
    /// A name cannot be one, or a value cannot be written.
    #[error("{what}")]
    Invalid { what: String },
    /// The workflow itself panicked.
    #[error("the workflow panicked: {reason}")]
    Panicked { reason: String },
}

impl Explain for Broken {
    fn code(&self) -> Code {
        Code(match self {
            Self::Differs { .. } => "TL1016",
            Self::Twice { .. } => "TL1017",
            Self::Misplaced { .. } => "TL1018",
            Self::Value { .. } => "TL1019",
            Self::Invalid { .. } => "TL1020",
            Self::Panicked { .. } => "TL1021",
        })
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn outcome(&self) -> Outcome {
        Outcome::NotApplied
    }
}

/// How many lines of each list are shown.
const LINES: usize = 30;

/// What was recorded and what the code asked for, side by side.
pub(super) fn side_by_side(recorded: &[Placed], current: &[(Kind, String)]) -> String {
    let mut was: Vec<(u32, String)> = Vec::new();
    for placed in recorded {
        if let Some((op, kind)) = placed.entry.op() {
            let line = (op.seq, format!("{} {}", kind.word(), op.name));
            if !was.contains(&line) {
                was.push(line);
            }
        }
    }
    was.sort();
    let was: Vec<String> = was.into_iter().map(|(_, line)| line).collect();
    // Waits leave no record of their own.
    let is = current.iter().filter(|(kind, _)| *kind != Kind::Wait);
    let is: Vec<String> = is.map(|(kind, name)| format!("{} {name}", kind.word())).collect();
    let width = was.iter().map(|line| line.chars().count()).max().unwrap_or(0).clamp(8, 60);
    let mut text = format!("  {:<width$}   the code now\n", "recorded");
    let rows = was.len().max(is.len());
    for row in 0..rows.min(LINES) {
        let left = was.get(row).map_or("-", String::as_str);
        let right = is.get(row).map_or("-", String::as_str);
        let mark = if left == right { ' ' } else { '!' };
        let _ = writeln!(text, "{mark} {left:<width$}   {right}");
    }
    if rows > LINES {
        let _ = writeln!(text, "  … and {} more", rows - LINES);
    }
    text.trim_end().to_owned()
}
