//! The operator commands on the keys and dead letters of a reaction.

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::reactions::{Operator, ReactionFilter, ReactionsError};
use tidelock::store::Operation;

use super::status::{KeyLine, table};
use crate::args::{ConfirmArgs, ReactionKeys, ReactionsOperate, Source};
use crate::exit::Exit;
use crate::output;
use crate::work::report::{FIRST, Report};

/// The change to make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    /// An operation of the store.
    Operation(Operation),
    /// Restart the whole reaction.
    Whole,
    /// Park events as dead letters.
    Park,
    /// Retry dead letters once.
    Replay,
    /// Drop dead letters.
    Drop,
}

impl Change {
    /// Returns the noun for the affected rows.
    fn what(self) -> &'static str {
        match self {
            Self::Replay | Self::Drop => "dead letters",
            _ => "keys",
        }
    }

    /// Returns whether the change always needs a confirmation, however few rows it affects.
    fn is_grave(self) -> bool {
        matches!(self, Self::Whole | Self::Drop)
    }

    async fn execute(self, operator: &Operator, call: &Call<'_>) -> Result<u64, ReactionsError> {
        let which = &call.which;
        match self {
            Self::Operation(Operation::Reset) => operator.reset(which).await,
            Self::Operation(Operation::RetryNow) => operator.retry_now(which).await,
            Self::Operation(Operation::Prioritize(priority)) => operator.prioritize(which, priority).await,
            Self::Operation(Operation::Unblock | Operation::Remove) => operator.unblock(which).await,
            Self::Whole => operator.reset_reaction(call.reaction).await,
            Self::Park => operator.park(which).await,
            Self::Replay => operator.replay_parked(which).await,
            Self::Drop => operator.drop_parked(which).await,
        }
    }
}

/// A parsed command.
struct Call<'a> {
    name: &'static str,
    change: Change,
    reaction: &'a str,
    keys: Vec<Key>,
    which: ReactionFilter,
    /// Whether the selection names nothing but the reaction.
    all: bool,
    consent: ConfirmArgs,
    place: &'a Source,
}

/// Runs an operator command, or prints its preview. `positions` selects dead letters.
pub(super) async fn apply(
    name: &'static str,
    change: Change,
    options: &ReactionsOperate,
    positions: &[u64],
) -> Result<Exit> {
    Call::new(name, change, options, positions)?.run().await
}

/// Reports that a reaction does not know a key.
fn never_seen(reaction: &str, key: &Key) -> Exit {
    unseen(reaction, key).iter().for_each(|line| eprintln!("{line}"));
    Exit::NotFound
}

/// Returns the message that a reaction does not know a key.
pub(super) fn unseen(reaction: &str, key: &Key) -> Vec<String> {
    let (key, name) = (output::key(key), output::escaped(reaction));
    vec![
        format!("error: reaction {name} has no key {key}"),
        format!("hint: `tidelock reactions status {}` lists its keys", output::quoted(&name)),
    ]
}

/// Parses keys, sorts them, and removes duplicates.
pub(super) fn parsed(keys: &[String]) -> Result<Vec<Key>> {
    let mut keys = keys.iter().map(|key| key.parse()).collect::<Result<Vec<Key>, _>>()?;
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// Returns the selected keys of a reaction.
pub(super) fn which(reaction: &str, keys: &[Key], pattern: Option<&str>) -> ReactionFilter {
    let mut which = ReactionFilter::of(reaction);
    if !keys.is_empty() {
        which = which.keys(keys.to_vec());
    }
    match pattern {
        Some(pattern) => which.matching(pattern),
        None => which,
    }
}

impl<'a> Call<'a> {
    fn new(
        name: &'static str,
        change: Change,
        options: &'a ReactionsOperate,
        positions: &[u64],
    ) -> Result<Self> {
        let ReactionsOperate { keys: ReactionKeys { reaction, keys, pattern }, consent, place } = options;
        let keys = parsed(keys)?;
        let all = keys.is_empty() && pattern.is_none() && positions.is_empty();
        let which = which(reaction, &keys, pattern.as_deref());
        let which = which.at(positions.iter().map(|position| Position(*position)));
        Ok(Self { name, change, reaction, keys, which, all, consent: *consent, place })
    }

    async fn run(&self) -> Result<Exit> {
        let opened = self.place.open().await?;
        let ended = self.on(&Operator::new(opened.shared())).await;
        opened.close().await;
        ended
    }

    async fn on(&self, operator: &Operator) -> Result<Exit> {
        let about_keys = self.change.what() == "keys";
        let rows = match about_keys {
            true => operator.keys(&self.shown(), Page::first(FIRST)).await?.rows,
            false => Vec::new(),
        };
        if about_keys && let Some(key) = self.keys.iter().find(|key| rows.iter().all(|row| row.key != **key))
        {
            return Ok(never_seen(self.reaction, key));
        }
        let would_change = self.change.execute(&operator.clone().dry_run(), self).await?;
        let mut report = Report {
            operation: self.name,
            reaction: Some(self.reaction),
            dry_run: self.consent.dry_run,
            selected: if self.keys.is_empty() || !about_keys { would_change } else { self.keys.len() as u64 },
            would_change,
            changed: 0,
            skipped: 0,
            rows: rows.into_iter().take(FIRST).map(KeyLine::of).collect(),
        };
        if self.consent.dry_run {
            return report.print_preview(self.change.what(), self.place.output, table);
        }
        if !self.agreed(&report)? {
            return Ok(Exit::Failed);
        }
        report.changed = self.change.execute(operator, self).await?;
        report.print(self.change.what(), self.place.output)
    }

    /// Returns the selection of keys to show before the change. Named keys are not filtered, because the command checks
    /// that they exist.
    fn shown(&self) -> ReactionFilter {
        let blocked = matches!(self.change, Change::Operation(Operation::Unblock) | Change::Park);
        match blocked && self.keys.is_empty() {
            true => self.which.clone().blocked_only(),
            false => self.which.clone(),
        }
    }

    /// Returns whether the change may proceed. A grave change always needs a confirmation. So does any change without
    /// named keys, except unblocking and retrying. The report adds the limit on the number of rows.
    fn agreed<L: Serialize>(&self, report: &Report<'_, L>) -> Result<bool> {
        let grave = self.change.is_grave();
        let harmless = matches!(self.change, Change::Operation(Operation::Unblock | Operation::RetryNow));
        let whole = self.all && !harmless;
        let why = match (grave, whole) {
            (true, _) => ", which cannot be undone",
            (false, true) => " (no key was given)",
            (false, false) => "",
        };
        report.agreed(self.change.what(), why, grave || whole, self.consent.yes)
    }
}
