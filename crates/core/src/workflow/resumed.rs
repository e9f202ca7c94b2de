//! What a resumed run keeps of its journal: everything but the failures that ended it.

use super::entry::{Ending, Entry, GaveUp, Placed};
use super::failure::Failure;

/// What a run did, as far as its present code must do the same. Each time that somebody resumed it, the failures that had
/// ended it are taken back. Failures that the workflow handled stay, and so does every end.
pub(super) fn counting(entries: Vec<Placed>) -> Vec<Placed> {
    let mut kept: Vec<Placed> = Vec::with_capacity(entries.len());
    for placed in entries {
        match placed.entry {
            Entry::Resumed(_) => take_back(&mut kept),
            _ => kept.push(placed),
        }
    }
    kept
}

/// The children whose failures are taken back when the run is resumed.
pub(super) fn failed_children(entries: &[Placed]) -> Vec<String> {
    let taken = unhandled(entries);
    let children = entries.iter().filter_map(|placed| match &placed.entry {
        Entry::ChildEnded(ended) if is_bad(&ended.ending) && taken.contains(&ended.name) => Some(&ended.run),
        _ => None,
    });
    children.cloned().collect()
}

/// Takes back the end of a run and the failures that it did not handle.
fn take_back(entries: &mut Vec<Placed>) {
    let taken = unhandled(entries);
    entries.retain(|placed| match &placed.entry {
        Entry::Ended(_) => false,
        Entry::Tried(tried) => !taken.contains(&tried.op.name),
        entry => failed(entry).is_none_or(|name| !taken.iter().any(|taken| taken == name)),
    });
}

/// What failed and ended the run: the failure that caused its end, and those that nothing followed, of what went on beside it.
/// Where the cause is not known, it is the last failure.
fn unhandled(entries: &[Placed]) -> Vec<String> {
    let cause = ending(entries).and_then(|failure| failure.cause.as_deref());
    let (mut taken, mut last, mut found) = (Vec::new(), true, false);
    for placed in entries.iter().rev() {
        let Some(name) = failed(&placed.entry) else {
            let ends = matches!(placed.entry, Entry::Ended(_) | Entry::Tried(_));
            last &= ends || placed.entry.is_foreign();
            continue;
        };
        let caused = !found && cause.is_none_or(|cause| cause == name);
        if last || caused {
            taken.push(name.to_owned());
        }
        found |= caused;
    }
    taken
}

/// How the run failed.
fn ending(entries: &[Placed]) -> Option<&Failure> {
    entries.iter().rev().find_map(|placed| match &placed.entry {
        Entry::Ended(Ending::Failed(failure)) => Some(failure),
        _ => None,
    })
}

fn is_bad(ending: &Ending) -> bool {
    matches!(ending, Ending::Failed(_) | Ending::Cancelled(_))
}

/// The name of what an entry says has failed for good.
fn failed(entry: &Entry) -> Option<&str> {
    match entry {
        Entry::GaveUp(GaveUp { op, .. }) | Entry::ChildRefused(GaveUp { op, .. }) => Some(&op.name),
        Entry::ChildEnded(ended) if is_bad(&ended.ending) => Some(&ended.name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::super::entry::{Done, OpId, Reason};
    use super::super::failure::StepError;
    use super::*;
    use crate::clock::Timestamp;
    use crate::id::StreamVersion;
    use crate::payload::Payload;

    fn op(name: &str) -> OpId {
        OpId { name: name.to_owned(), seq: 0, input: None }
    }

    /// `a+` ended well, `a-` failed, `!a` ends the run because of `a`, `!` for a reason of its own, `^` resumes it.
    fn journal(text: &str) -> Vec<Placed> {
        let entry = |word: &str| match word.split_at(word.len() - 1) {
            (name, "+") => Entry::Done(Done { op: op(name), value: Payload::null() }),
            (name, "-") => {
                let (step, error) = (name.to_owned(), "no".to_owned());
                Entry::GaveUp(GaveUp { op: op(name), error: StepError::Failed { step, error, attempts: 1 } })
            }
            ("", "^") => Entry::Resumed(Reason { reason: String::new() }),
            _ => {
                let cause = word.strip_prefix('!').filter(|name| !name.is_empty()).map(str::to_owned);
                Entry::Ended(Ending::Failed(Failure { cause, ..Failure::new("no") }))
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
            ("a+ ! ^", "a+"),
        ] {
            assert_eq!(counting(journal(was)), journal(is), "{was}");
        }
    }
}
