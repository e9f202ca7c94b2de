//! The operator commands on the keys and parked events of a reaction.

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::reactions::{Operator, ReactionsError, Which};
use tidelock::store::Operation;

use super::call::{FIRST, Report};
use super::status::{KeyLine, table};
use crate::args::{Source, StreamsOperate, StreamsPark, StreamsReplay};
use crate::exit::Exit;
use crate::output;

/// The change to make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    /// An operation of the store.
    Operation(Operation),
    /// Restart the whole reaction.
    Whole,
    /// Park events as dead letters.
    Park,
    /// Retry parked events once.
    Replay,
    /// Drop parked events.
    Drop,
}

impl Change {
    /// Returns the noun for the affected rows.
    fn what(self) -> &'static str {
        match self {
            Self::Replay | Self::Drop => "parked events",
            _ => "keys",
        }
    }

    /// Returns whether the change always needs a confirmation, however few rows it affects.
    fn is_grave(self) -> bool {
        matches!(self, Self::Whole | Self::Drop)
    }

    async fn carry_out(self, operator: &Operator, call: &Call<'_>) -> Result<u64, ReactionsError> {
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
    which: Which,
    /// Whether the selection names nothing but the reaction.
    all: bool,
    dry_run: bool,
    yes: bool,
    place: &'a Source,
}

/// `unblock`, `reset`, `retry` and `prioritize` with `--reaction`.
pub(super) async fn operate(
    options: &StreamsOperate,
    reaction: &str,
    name: &'static str,
    change: Change,
) -> Result<Exit> {
    let StreamsOperate { keys, rows, dry_run, yes, place, .. } = options;
    let chosen = Chosen { reaction, keys, like: rows.like.as_deref(), at: &[] };
    Call::new(name, change, &chosen, (*dry_run, *yes), place)?.run().await
}

/// `park`
pub(in crate::streams) async fn park(options: &StreamsPark) -> Result<Exit> {
    call("park", Change::Park, options, &[])?.run().await
}

/// `replay` and `drop`
pub(in crate::streams) async fn replay(options: &StreamsReplay, drop: bool) -> Result<Exit> {
    let (name, change) = if drop { ("drop", Change::Drop) } else { ("replay", Change::Replay) };
    call(name, change, &options.park, &options.at)?.run().await
}

fn call<'a>(name: &'static str, change: Change, options: &'a StreamsPark, at: &[u64]) -> Result<Call<'a>> {
    let StreamsPark { reaction, keys, like, dry_run, yes, place } = options;
    let chosen = Chosen { reaction, keys, like: like.as_deref(), at };
    Call::new(name, change, &chosen, (*dry_run, *yes), place)
}

/// The selection from the command line.
struct Chosen<'a, 'b> {
    reaction: &'a str,
    keys: &'b [String],
    like: Option<&'b str>,
    at: &'b [u64],
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
        format!("error: reaction {name} has never seen {key}"),
        format!("hint: `tidelock streams status {}` shows what it has seen", output::quoted(&name)),
    ]
}

/// Returns the selected keys of a reaction.
pub(super) fn which(reaction: &str, keys: &[Key], like: Option<&str>) -> Which {
    let mut which = Which::of(reaction);
    if !keys.is_empty() {
        which = which.keys(keys.to_vec());
    }
    match like {
        Some(pattern) => which.matching(pattern),
        None => which,
    }
}

impl<'a> Call<'a> {
    fn new(
        name: &'static str,
        change: Change,
        chosen: &Chosen<'a, '_>,
        (dry_run, yes): (bool, bool),
        place: &'a Source,
    ) -> Result<Self> {
        let Chosen { reaction, keys, like, at } = *chosen;
        let mut keys = keys.iter().map(|key| key.parse()).collect::<Result<Vec<Key>, _>>()?;
        keys.sort_unstable();
        keys.dedup();
        let all = keys.is_empty() && like.is_none() && at.is_empty();
        let which = which(reaction, &keys, like).at(at.iter().map(|at| Position(*at)));
        Ok(Self { name, change, reaction, keys, which, all, dry_run, yes, place })
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
        let would_change = self.change.carry_out(&operator.clone().dry_run(), self).await?;
        let mut report = Report {
            operation: self.name,
            reaction: Some(self.reaction),
            dry_run: self.dry_run,
            meant: if self.keys.is_empty() || !about_keys { would_change } else { self.keys.len() as u64 },
            would_change,
            changed: 0,
            left_alone: 0,
            rows: rows.into_iter().take(FIRST).map(KeyLine::of).collect(),
        };
        if self.dry_run {
            return report.tell_dry(self.change.what(), self.place.output, table);
        }
        if !self.agreed(&report)? {
            return Ok(Exit::Failed);
        }
        report.changed = self.change.carry_out(operator, self).await?;
        report.tell(self.change.what(), self.place.output)
    }

    /// Returns the selection of keys to show before the change. Named keys are not filtered, because the command checks
    /// that they exist.
    fn shown(&self) -> Which {
        let blocked = matches!(self.change, Change::Operation(Operation::Unblock) | Change::Park);
        match blocked && self.keys.is_empty() {
            true => self.which.clone().that_are_blocked(),
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
            (true, _) => ", which cannot be taken back",
            (false, true) => " (no key was named)",
            (false, false) => "",
        };
        report.agreed(self.change.what(), why, grave || whole, self.yes)
    }
}
