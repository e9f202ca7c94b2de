//! `tidelock streams status` and `parked`: the progress and the parked events of reactions. The commands lease
//! nothing.

use std::time::Duration;

use anyhow::Result;
use comfy_table::Table;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::reactions::{KeyView, Lag, Operator, Parked, ReactionView};

use super::reaction::{unseen, which};
use crate::args::{StreamsParked, StreamsStatus};
use crate::exit::Exit;
use crate::output;
use crate::sight::{self, Listing};

/// Shows reactions, or the keys of one.
pub(in crate::streams) async fn run(options: &StreamsStatus) -> Result<Exit> {
    let Some(reaction) = &options.reaction else { return reactions(options).await };
    let named = options.keys.iter().map(|key| key.parse()).collect::<Result<Vec<Key>, _>>()?;
    let mut which = which(reaction, &named, options.like.as_deref());
    if options.blocked {
        which = which.that_are_blocked();
    }
    sight::listing(&options.look, &options.pages, async |store, ask| {
        let page = Operator::new(SharedStore::clone(store)).keys(&which, ask.page()?).await?;
        let keys: Vec<KeyLine> = page.rows.into_iter().map(KeyLine::of).collect();
        let missing = named.iter().find(|key| keys.iter().all(|line| line.key != **key));
        let missing = missing.filter(|_| !options.blocked).map(|key| unseen(reaction, key));
        let none = if named.is_empty() { "no such keys" } else { "none of these" };
        let mut listing = Listing::new("keys", keys, table).or(none).fact("reaction", reaction.as_str());
        if let Some(notes) = missing {
            (listing.notes, listing.exit) = (notes, Exit::NotFound);
        }
        Ok(listing.next(page.next.map(|key| key.to_string())))
    })
    .await
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
    fn of(lag: Lag) -> Self {
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
    due: Option<Timestamp>,
    attempts: u32,
    takeovers: u32,
    error: Option<String>,
    blocked_since: Option<Timestamp>,
    owner: Option<Owner>,
    until: Option<Timestamp>,
    fence: Option<Fence>,
}

impl KeyLine {
    pub(super) fn of(view: KeyView) -> Self {
        let KeyView { key, position, lag, due, attempts, takeovers, owner, until, fence, .. } = view;
        let blocked_since = view.blocked.as_ref().map(|blocked| blocked.since);
        let error = view.blocked.map(|blocked| blocked.reason).or(view.last_error);
        let lag = LagLine::of(lag);
        Self { key, position, lag, due, attempts, takeovers, error, blocked_since, owner, until, fence }
    }

    /// Returns the state in one word.
    fn state(&self) -> &'static str {
        match (self.blocked_since, &self.owner, self.due) {
            (Some(_), ..) => "blocked",
            (None, Some(_), _) => "held",
            (None, None, Some(_)) => "due",
            (None, None, None) => "rests",
        }
    }

    /// Returns the time of the block, the holder and expiry of the lease, or the due time.
    fn more(&self) -> String {
        match (self.blocked_since, &self.owner, self.until, self.due) {
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
    lane: Lane,
    types: Vec<EventType>,
    chooses_keys: bool,
    keys: u64,
    blocked_keys: u64,
    position: Position,
    head: Position,
    lag: LagLine,
    error: Option<String>,
    blocked_since: Option<Timestamp>,
    owner: Option<Owner>,
    until: Option<Timestamp>,
    fence: Option<Fence>,
}

impl ReactionLine {
    fn of(view: ReactionView) -> Self {
        let ReactionView { name, lane, types, chooses_keys, keys, blocked_keys, position, head, .. } = view;
        // The last events may have been removed: an inbox is emptied after it was handled.
        let head = head.max(position);
        let (lag, owner, until, fence) = (LagLine::of(view.lag), view.owner, view.until, view.fence);
        let blocked_since = view.blocked.as_ref().map(|blocked| blocked.since);
        let error = view.blocked.map(|blocked| blocked.reason);
        Self {
            name,
            lane,
            types,
            chooses_keys,
            keys,
            blocked_keys,
            position,
            head,
            lag,
            error,
            blocked_since,
            owner,
            until,
            fence,
        }
    }
}

async fn reactions(options: &StreamsStatus) -> Result<Exit> {
    sight::listing(&options.look, &options.pages, async |store, ask| {
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

/// Lists the parked events of a reaction.
pub(in crate::streams) async fn parked(options: &StreamsParked) -> Result<Exit> {
    sight::listing(&options.look, &options.pages, async |store, ask| {
        let operator = Operator::new(SharedStore::clone(store));
        let found = operator.parked(&options.reaction, ask.page()?).await?;
        let listing = Listing::new("events", found.rows, table_of_parked).or("nothing is parked");
        Ok(listing.next(found.next.map(|key| key.to_string())))
    })
    .await
}

fn table_of_parked(events: &[Parked]) -> Table {
    let header = ["key", "position", "type", "parked", "attempts", "replays", "error"];
    let mut table = output::table(&header, &[1, 4, 5]);
    for parked in events {
        table.add_row([
            output::key(&parked.key),
            parked.event.position.to_string(),
            output::escaped(parked.event.event_type.as_str()),
            output::instant(parked.at),
            parked.attempts.to_string(),
            parked.replays.to_string(),
            output::flat(&parked.error),
        ]);
    }
    output::one_line(&mut table);
    table
}
