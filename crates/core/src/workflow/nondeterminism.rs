//! Nondeterminism and misuse in the code of a workflow. The run is suspended with the reason and never failed, because the next
//! try may find other code.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::journal_entry::{Kind, OpId};
use crate::error::codes;

/// A fault in the code of a workflow, or in how it was called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Nondeterminism {
    /// The code differs from the recorded history.
    #[error(
        "the workflow does not do what it did before: {what}.\n{lists}\nBring the old code back, or keep both ways with version()"
    )]
    Differs { what: String, lists: String },
    /// A name was used twice.
    #[error(
        "{kind} {name:?} was asked for twice in one run; results are kept by name, so give it another, or a scope with an index in a loop"
    )]
    Twice { kind: &'static str, name: String },
    /// An operation was requested where that is not possible.
    #[error("{kind} {name:?} was asked for {place}; ask for it in the workflow itself")]
    Misplaced { kind: &'static str, name: String, place: &'static str },
    /// A recorded value does not have the type that the code expects.
    #[error(
        "{kind} {name:?} has a recorded value that does not fit: {reason}; read the old form, too, or give the step another name"
    )]
    Value { kind: &'static str, name: String, reason: String },
    /// A name is invalid, or a value cannot be written.
    #[error("{what}")]
    Invalid { what: String },
    /// The workflow itself panicked.
    #[error("the workflow panicked: {reason}")]
    Panicked { reason: String },
}

codes! {
    Nondeterminism {
        Differs => "TL1016",
        Twice => "TL1017",
        Misplaced => "TL1018",
        Value => "TL1019",
        Invalid => "TL1020",
        Panicked => "TL1021",
    }
}

/// The number of lines that are shown of each list, and of those before the first difference.
const LINES: usize = 30;
const BEFORE: usize = 10;

/// Formats recorded and requested operations side by side, around the first difference.
pub(super) fn side_by_side(recorded: &[(OpId, Kind)], current: &[(Kind, String)]) -> String {
    let mut seen = HashSet::new();
    let mut was: Vec<(u32, String)> = Vec::new();
    for (op, kind) in recorded {
        if seen.insert((op.seq, &op.name, kind.word())) {
            was.push((op.seq, format!("{} {}", kind.word(), op.name)));
        }
    }
    was.sort();
    let was: Vec<String> = was.into_iter().map(|(_, line)| line).collect();
    let is: Vec<String> = current.iter().map(|(kind, name)| format!("{} {name}", kind.word())).collect();
    let rows = was.len().max(is.len());
    let differs = (0..rows).find(|row| was.get(*row) != is.get(*row)).unwrap_or(0);
    let first = differs.saturating_sub(BEFORE);
    let shown = first..rows.min(first + LINES);
    let width = was.iter().skip(first).take(LINES).map(|line| line.chars().count()).max();
    let width = width.unwrap_or(0).clamp(8, 60);
    let mut text = format!("  {:<width$}   the code now\n", "recorded");
    if first > 0 {
        let _ = writeln!(text, "  … {first} before these are the same");
    }
    for row in shown.clone() {
        let left = was.get(row).map_or("-", String::as_str);
        let right = is.get(row).map_or("-", String::as_str);
        let mark = if left == right { ' ' } else { '!' };
        let _ = writeln!(text, "{mark} {left:<width$}   {right}");
    }
    if rows > shown.end {
        let _ = writeln!(text, "  … and {} more", rows - shown.end);
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_a_long_run_shows_the_lines_around_the_difference() {
        const STEPS: u32 = 100_000;
        let op = |seq: u32| (OpId { name: format!("s{seq}"), seq, input: None }, Kind::Step);
        let recorded: Vec<(OpId, Kind)> = (0..STEPS).map(op).collect();
        let is = |seq: u32| if seq == 50_000 { "other".to_owned() } else { format!("s{seq}") };
        let current: Vec<(Kind, String)> = (0..STEPS).map(|seq| (Kind::Step, is(seq))).collect();
        let text = side_by_side(&recorded, &current);
        assert!(text.contains("! step s50000   step other"), "{text}");
        assert!(text.contains("… 49990 before these are the same"), "{text}");
        assert!(text.contains("… and 49980 more"), "{text}");
        assert_eq!(text.lines().count(), LINES + 3);
    }
}
