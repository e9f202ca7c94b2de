//! Registry of verbs by their effect on a store. A verb that removes data asks
//! for confirmation and has a dry run.

use clap::{Command, CommandFactory as _};

use super::Cli;

/// The effect of a verb on a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// It changes no existing data.
    Reads,
    /// It adds data, or changes one item that its caller names, against the
    /// current version. Another call can restore everything that it replaces.
    Adds,
    /// It removes data, or affects many items at once. It counts, asks for
    /// confirmation, and has `--dry-run` and `--yes`.
    Takes,
}

use Does::{Adds, Reads, Takes};

const VERBS: &[(&str, Does)] = &[
    ("bench", Reads),
    ("completions", Reads),
    ("config schema", Reads),
    ("config show", Reads),
    ("demo", Reads),
    ("dev", Reads),
    ("doctor", Reads),
    ("explain", Reads),
    ("idempotency delete", Takes),
    ("idempotency list", Reads),
    ("idempotency show", Reads),
    ("leases list", Reads),
    ("leases show", Reads),
    ("locks list", Reads),
    ("man", Reads),
    ("migrate sql", Reads),
    ("migrate status", Reads),
    ("migrate up", Adds),
    ("outbox discard", Takes),
    ("outbox list", Reads),
    ("outbox retry", Takes),
    ("reactions blocked", Reads),
    ("reactions dead-letters", Reads),
    ("reactions drop", Takes),
    ("reactions list", Reads),
    ("reactions park", Takes),
    ("reactions prioritize", Takes),
    ("reactions replay", Takes),
    ("reactions reset", Takes),
    ("reactions retry", Takes),
    ("reactions status", Reads),
    ("reactions unblock", Takes),
    ("restored", Takes),
    ("runs cancel", Takes),
    ("runs fork", Adds),
    ("runs history", Reads),
    ("runs limit", Adds),
    ("runs list", Reads),
    ("runs prune", Takes),
    ("runs queues", Reads),
    ("runs resume", Adds),
    ("runs show", Reads),
    ("runs signal", Adds),
    ("runs start", Adds),
    ("runs steps", Reads),
    ("runs watch", Reads),
    ("schedules history", Reads),
    ("schedules list", Reads),
    ("schedules pause", Adds),
    ("schedules resume", Adds),
    ("schedules run", Takes),
    ("schedules show", Reads),
    ("serve", Reads),
    ("state delete", Takes),
    ("state get", Reads),
    ("state history", Reads),
    ("state list", Reads),
    ("state set", Adds),
    ("state watch", Reads),
    ("streams append", Adds),
    ("streams close", Takes),
    ("streams export", Reads),
    ("streams import", Takes),
    ("streams list", Reads),
    ("streams show", Reads),
    ("streams tail", Reads),
    ("top", Reads),
    ("version", Reads),
    ("work blocked", Reads),
    ("work list", Reads),
    ("work prioritize", Takes),
    ("work reset", Takes),
    ("work retry", Takes),
    ("work show", Reads),
    ("work unblock", Takes),
];

/// Returns the leaf verbs below a command, by their full names.
fn leaves(command: &Command, above: &str) -> Vec<(String, Command)> {
    let below: Vec<&Command> = command.get_subcommands().filter(|below| !below.is_hide_set()).collect();
    if below.is_empty() {
        return vec![(above.to_owned(), command.clone())];
    }
    let name = |below: &Command| format!("{above} {}", below.get_name()).trim().to_owned();
    below.into_iter().flat_map(|below| leaves(below, &name(below))).collect()
}

#[test]
fn every_verb_is_registered_and_what_takes_away_asks() {
    let mut verbs = leaves(&Cli::command(), "");
    verbs.sort_by(|(one, _), (other, _)| one.cmp(other));
    let names: Vec<&str> = verbs.iter().map(|(name, _)| name.as_str()).collect();
    let registered: Vec<&str> = VERBS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, registered, "a verb is new or gone: register what it does");
    for ((name, verb), (_, does)) in verbs.iter().zip(VERBS) {
        let has = |flag: &str| verb.get_arguments().any(|arg| arg.get_long() == Some(flag));
        match does {
            Takes => assert!(has("dry-run") && has("yes"), "{name} takes something away and does not ask"),
            Reads => assert!(!has("yes"), "{name} reads, and asks all the same"),
            Adds => {}
        }
    }
}
