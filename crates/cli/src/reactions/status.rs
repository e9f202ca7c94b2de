//! `tidelock reactions list`, `status` and `blocked`: the progress of reactions and of their keys. The commands lease
//! nothing.

use std::time::Duration;

use anyhow::Result;
use comfy_table::Table;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::reactions::{Operator, ReactionFilter, ReactionKeyView, ReactionLag, ReactionView};

use super::operate::{parsed, unseen, which};
use crate::args::{Pages, ReactionKeys, ReactionsBlocked, ReactionsList, ReactionsStatus, WatchArgs};
use crate::exit::Exit;
use crate::output;
use crate::render::{self, Listing};

/// Shows the keys of a reaction.
pub(super) async fn keys(options: &ReactionsStatus) -> Result<Exit> {
    Keys::new(&options.keys, options.blocked)?.show(&options.look, &options.pages, Exit::Well).await
}

/// Lists the blocked keys of a reaction.
pub(super) async fn blocked(options: &ReactionsBlocked) -> Result<Exit> {
    Keys::new(&options.keys, true)?.show(&options.look, &options.pages, Exit::Blocked).await
}

/// A selection of keys.
struct Keys<'a> {
    reaction: &'a str,
    named: Vec<Key>,
    which: ReactionFilter,
    blocked: bool,
}

impl<'a> Keys<'a> {
    fn new(keys: &'a ReactionKeys, blocked: bool) -> Result<Self> {
        let ReactionKeys { reaction, keys, pattern } = keys;
        let named = parsed(keys)?;
        let which = which(reaction, &named, pattern.as_deref());
        let which = if blocked { which.blocked_only() } else { which };
        Ok(Self { reaction, named, which, blocked })
    }

    /// Shows a page of keys, and exits with `found` when there are any.
    async fn show(&self, look: &WatchArgs, pages: &Pages, found: Exit) -> Result<Exit> {
        render::listing(look, pages, async |store, ask| {
            let page = Operator::new(SharedStore::clone(store)).keys(&self.which, ask.page()?).await?;
            let keys: Vec<KeyLine> = page.rows.into_iter().map(KeyLine::of).collect();
            let missing = self.named.iter().find(|key| keys.iter().all(|line| line.key != **key));
            let missing = missing.filter(|_| !self.blocked).map(|key| unseen(self.reaction, key));
            let none = if self.named.is_empty() { "no such keys" } else { "none of these" };
            let exit = if keys.is_empty() { Exit::Well } else { found };
            let mut listing = Listing::new("keys", keys, table).or(none).fact("reaction", self.reaction);
            listing.exit = exit;
            if let Some(notes) = missing {
                (listing.notes, listing.exit) = (notes, Exit::NotFound);
            }
            Ok(listing.next(page.next.map(|key| key.to_string())))
        })
        .await
    }
}

/// The lag of a key or a reaction, for programs.
#[derive(Debug, Serialize)]
struct LagLine {
    events: u64,
    /// Whether there may be more of them.
    at_least: bool,
    /// The age of the oldest of them.
    seconds: f64,
}

impl LagLine {
    fn of(lag: ReactionLag) -> Self {
        Self { events: lag.events, at_least: lag.at_least, seconds: lag.behind.as_secs_f64() }
    }

    fn events(&self) -> String {
        format!("{}{}", output::number(self.events), if self.at_least { "+" } else { "" })
    }

    fn behind(&self) -> String {
        match self.events {
            0 => String::new(),
            _ => output::span(Duration::try_from_secs_f64(self.seconds).unwrap_or_default()),
        }
    }
}

/// A key of a reaction as it is printed.
#[derive(Debug, Serialize)]
pub(super) struct KeyLine {
    key: Key,
    position: Option<Position>,
    lag: LagLine,
    due_at: Option<Timestamp>,
    attempts: u32,
    takeovers: u32,
    error: Option<String>,
    blocked_at: Option<Timestamp>,
    owner: Option<Owner>,
    lease_expires_at: Option<Timestamp>,
    fence: Option<Fence>,
}

impl KeyLine {
    pub(super) fn of(view: ReactionKeyView) -> Self {
        let ReactionKeyView { key, position, lag, attempts, takeovers, owner, fence, .. } = view;
        let (due_at, lease_expires_at) = (view.due, view.until);
        let blocked_at = view.blocked.as_ref().map(|blocked| blocked.since);
        let error = view.blocked.map(|blocked| blocked.reason).or(view.last_error);
        let lag = LagLine::of(lag);
        Self {
            key,
            position,
            lag,
            due_at,
            attempts,
            takeovers,
            error,
            blocked_at,
            owner,
            lease_expires_at,
            fence,
        }
    }

    /// Returns the state in one word.
    fn state(&self) -> &'static str {
        match (self.blocked_at, &self.owner, self.due_at) {
            (Some(_), ..) => "blocked",
            (None, Some(_), _) => "leased",
            (None, None, Some(_)) => "due",
            (None, None, None) => "idle",
        }
    }

    /// Returns the time of the block, the holder and expiry of the lease, or the due time.
    fn more(&self) -> String {
        match (self.blocked_at, &self.owner, self.lease_expires_at, self.due_at) {
            (Some(since), ..) => output::instant(since),
            (None, Some(owner), Some(until), _) => {
                let fence = self.fence.map(|fence| format!(", fence {fence}")).unwrap_or_default();
                format!("{} until {}{fence}", output::escaped(owner.as_str()), output::instant(until))
            }
            (None, _, _, due) => due.map(output::instant).unwrap_or_default(),
        }
    }
}

/// Returns keys as a table.
pub(super) fn table(keys: &[KeyLine]) -> Table {
    let header = ["key", "position", "waiting", "behind", "attempts", "state", "when", "error"];
    let mut table = output::table(&header, &[1, 2, 3, 4]);
    for line in keys {
        table.add_row([
            output::key(&line.key),
            line.position.map(|position| position.to_string()).unwrap_or_default(),
            line.lag.events(),
            line.lag.behind(),
            line.attempts.to_string(),
            line.state().to_owned(),
            line.more(),
            output::flat(line.error.as_deref().unwrap_or_default()),
        ]);
    }
    output::one_line(&mut table);
    table
}

/// A reaction as it is printed.
#[derive(Debug, Serialize)]
struct ReactionLine {
    name: String,
    queue: QueueName,
    types: Vec<EventType>,
    chooses_keys: bool,
    keys: u64,
    blocked_keys: u64,
    position: Position,
    head: Position,
    lag: LagLine,
    error: Option<String>,
    blocked_at: Option<Timestamp>,
    owner: Option<Owner>,
    lease_expires_at: Option<Timestamp>,
    fence: Option<Fence>,
}

impl ReactionLine {
    fn of(view: ReactionView) -> Self {
        let ReactionView { name, queue, types, chooses_keys, keys, blocked_keys, position, head, .. } = view;
        // The last events may have been removed: an inbox is emptied after it was handled.
        let head = head.max(position);
        let (lag, owner, fence) = (LagLine::of(view.lag), view.owner, view.fence);
        let lease_expires_at = view.until;
        let blocked_at = view.blocked.as_ref().map(|blocked| blocked.since);
        let error = view.blocked.map(|blocked| blocked.reason);
        Self {
            name,
            queue,
            types,
            chooses_keys,
            keys,
            blocked_keys,
            position,
            head,
            lag,
            error,
            blocked_at,
            owner,
            lease_expires_at,
            fence,
        }
    }
}

/// Lists all reactions.
pub(super) async fn list(options: &ReactionsList) -> Result<Exit> {
    render::listing(&options.look, &options.pages, async |store, ask| {
        let mut views = Operator::new(SharedStore::clone(store)).reactions().await?;
        views.sort_by(|one, other| one.name.cmp(&other.name));
        let (views, next) = ask.of(views, |view| &view.name);
        let lines: Vec<ReactionLine> = views.into_iter().map(ReactionLine::of).collect();
        Ok(Listing::new("reactions", lines, table_of_reactions)
            .or("no reaction has run on this store")
            .next(next))
    })
    .await
}

fn table_of_reactions(lines: &[ReactionLine]) -> Table {
    let header = ["reaction", "position", "of", "waiting", "behind", "keys", "blocked", "routed by", "error"];
    let mut table = output::table(&header, &[1, 2, 3, 4, 5, 6]);
    for line in lines {
        table.add_row([
            output::escaped(&line.name),
            line.position.to_string(),
            line.head.to_string(),
            line.lag.events(),
            line.lag.behind(),
            output::number(line.keys),
            output::number(line.blocked_keys),
            line.owner.as_ref().map(|owner| output::escaped(owner.as_str())).unwrap_or_default(),
            output::flat(line.error.as_deref().unwrap_or_default()),
        ]);
    }
    output::one_line(&mut table);
    table
}
