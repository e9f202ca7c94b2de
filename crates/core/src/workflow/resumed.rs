//! Journals of resumed runs: everything but the failures that ended them.

use super::journal_entry::{ChildEnded, Ending, GaveUp, JournalEntry, Placed};
use crate::failure::Failure;

/// Returns the history that the present code of a run must reproduce. Each resume removes the end of the run and the failures
/// that caused it. Failures that the workflow handled stay, and so does every successful result.
pub(super) fn counting(entries: Vec<Placed>) -> Vec<Placed> {
    let mut kept: Vec<Placed> = Vec::with_capacity(entries.len());
    for placed in entries {
        match placed.entry {
            JournalEntry::Resumed(_) => take_back(&mut kept),
            _ => kept.push(placed),
        }
    }
    kept
}

/// Returns the children whose failures are removed when the run is resumed.
pub(super) fn failed_children(entries: &[Placed]) -> Vec<String> {
    let taken = unhandled(entries);
    let children = entries.iter().filter_map(|placed| match &placed.entry {
        JournalEntry::ChildEnded(ended) if is_bad(&ended.ending) && taken.contains(&ended.name) => {
            Some(&ended.run)
        }
        _ => None,
    });
    children.cloned().collect()
}

/// Returns the children that have not reported their end to the run: name and run.
pub(super) fn open_children(entries: &[Placed]) -> Vec<(String, String)> {
    let mut open = Vec::new();
    for placed in entries {
        match &placed.entry {
            JournalEntry::ChildStarted(started) => open.push((started.op.name.clone(), started.run.clone())),
            JournalEntry::ChildEnded(ended) => open.retain(|(_, run)| *run != ended.run),
            _ => {}
        }
    }
    open
}

/// Removes the end of a run and the failures that it did not handle.
fn take_back(entries: &mut Vec<Placed>) {
    let taken = unhandled(entries);
    entries.retain(|placed| match &placed.entry {
        JournalEntry::Ended(_) => false,
        JournalEntry::Tried(tried) => !taken.contains(&tried.op.name),
        entry => failed(entry).is_none_or(|(name, _)| !taken.iter().any(|taken| taken == name)),
    });
}

/// Returns the names of the operations whose failures ended the run: the one that caused the end, and concurrent ones whose
/// failures are the last entries. Where the cause is not known and the last entries are not failures, it is the last failure
/// that the end quotes.
pub(super) fn unhandled(entries: &[Placed]) -> Vec<String> {
    let Some(ending) = ending(entries) else { return Vec::new() };
    let (mut taken, mut last, mut found) = (Vec::new(), true, false);
    for placed in entries.iter().rev() {
        let Some((name, error)) = failed(&placed.entry) else {
            let ends = matches!(placed.entry, JournalEntry::Ended(_) | JournalEntry::Tried(_));
            last &= ends || placed.entry.is_foreign();
            continue;
        };
        let caused = match ending.cause() {
            Some(cause) => !found && cause == name,
            None => taken.is_empty() && ending.message().contains(quoted(error)),
        };
        if last || caused {
            taken.push(name.to_owned());
        }
        found |= caused;
    }
    taken
}

/// Returns the part of an error by which it is recognized in another error. Long messages are cut.
fn quoted(error: &str) -> &str {
    error.get(..error.floor_char_boundary(200)).unwrap_or(error)
}

/// Returns how the run failed.
fn ending(entries: &[Placed]) -> Option<&Failure> {
    entries.iter().rev().find_map(|placed| match &placed.entry {
        JournalEntry::Ended(Ending::Failed(failure)) => Some(failure),
        _ => None,
    })
}

fn is_bad(ending: &Ending) -> bool {
    matches!(ending, Ending::Failed(_) | Ending::Cancelled(_))
}

/// Returns the name and the error of an operation that failed without a retry, if the entry records one.
fn failed(entry: &JournalEntry) -> Option<(&str, &str)> {
    match entry {
        JournalEntry::GaveUp(GaveUp { op, error, .. })
        | JournalEntry::ChildRefused(GaveUp { op, error, .. }) => Some((&op.name, error.message())),
        JournalEntry::ChildEnded(ChildEnded { name, ending, .. }) => match ending {
            Ending::Failed(failure) | Ending::Cancelled(failure) => Some((name, failure.message())),
            Ending::Completed(_) | Ending::Continued(_) => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::super::journal_entry::{Done, OpId, Ran, Reason};
    use super::*;
    use crate::clock::Timestamp;
    use crate::failure::step_error::StepError;
    use crate::id::StreamVersion;
    use crate::payload::Payload;

    fn op(name: &str) -> OpId {
        OpId { name: name.to_owned(), seq: 0, input: None }
    }

    /// `a+` succeeded, `a-` failed, `!a` ends the run because of `a`, `!` quotes `a`, `!?` has an unrelated reason, `^` resumes the run.
    fn journal(text: &str) -> Vec<Placed> {
        let entry = |word: &str| match word.split_at(word.len() - 1) {
            (name, "+") => JournalEntry::Done(Done { op: op(name), value: Payload::null(), ran: Ran::EPOCH }),
            (name, "-") => {
                let (step, error) = (name.to_owned(), "no".to_owned());
                let error = StepError::Failed { step, error, attempts: 1 };
                JournalEntry::GaveUp(GaveUp { op: op(name), error, ran: None })
            }
            ("", "^") => JournalEntry::Resumed(Reason { reason: String::new() }),
            _ => {
                let cause =
                    word.strip_prefix('!').filter(|name| !["", "?"].contains(name)).map(str::to_owned);
                let failure = Failure::new(if word == "!?" { "rejected" } else { "no" });
                JournalEntry::Ended(Ending::Failed(failure.caused_by(cause)))
            }
        };
        let placed = |entry| Placed { version: StreamVersion(0), at: Timestamp::EPOCH, entry };
        text.split_whitespace().map(entry).map(placed).collect()
    }

    #[test]
    fn only_what_ended_the_run_is_taken_back() {
        for (was, is) in [
            ("a+ b- !b ^", "a+"),
            ("a- b+ c+ d- !d ^", "a- b+ c+"),
            ("a- b+ c+ d- ! ^", "a- b+ c+"),
            ("a- b+ !a ^", "b+"),
            ("a- b- !a ^", ""),
            ("a+ b- !b ^ b- !b ^ b+ c- !c ^", "a+ b+"),
            ("a- b+ ! ^", "b+"),
            ("a- b+ !? ^", "a- b+"),
            ("a+ ! ^", "a+"),
        ] {
            assert_eq!(counting(journal(was)), journal(is), "{was}");
        }
    }
}
