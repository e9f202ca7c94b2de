//! `tidelock streams status` and `parked`: how far reactions are, and what they have set aside. Nothing is leased.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::reactions::{KeyView, Lag, Operator, Parked, ReactionView};

use super::reaction::{never_seen, which};
use crate::args::{Format, StreamsParked, StreamsStatus};
use crate::exit::Exit;
use crate::output;

/// Shows reactions, or the keys of one.
pub(in crate::streams) async fn run(options: &StreamsStatus) -> Result<Exit> {
    let opened = options.place.open().await?;
    let operator = Operator::new(opened.shared());
    let ended = match &options.reaction {
        Some(reaction) => keys(&operator, reaction, options).await,
        None => reactions(&operator, options.place.output).await,
    };
    opened.close().await;
    ended
}

/// How far behind something is, for programs.
#[derive(Debug, Serialize)]
struct LagLine {
    events: u64,
    /// Whether there may be more of them.
    at_least: bool,
    /// How long the oldest of them has waited.
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

    /// What it is doing, in a word.
    fn state(&self) -> &'static str {
        match (self.blocked_since, &self.owner, self.due) {
            (Some(_), ..) => "blocked",
            (None, Some(_), _) => "held",
            (None, None, Some(_)) => "due",
            (None, None, None) => "rests",
        }
    }

    /// Since when, by whom until when, or when it is due.
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

/// What `status REACTION` prints.
#[derive(Debug, Serialize)]
struct Keys<'a> {
    reaction: &'a str,
    keys: Vec<KeyLine>,
    /// Where to go on; `None` when these are all.
    next: Option<Key>,
}

async fn keys(operator: &Operator, reaction: &str, options: &StreamsStatus) -> Result<Exit> {
    let named = options.keys.iter().map(|key| key.parse()).collect::<Result<Vec<Key>, _>>()?;
    let after = options.after.as_deref().map(str::parse).transpose()?;
    let mut which = which(reaction, &named, options.like.as_deref());
    if options.blocked {
        which = which.that_are_blocked();
    }
    let page = operator.keys(&which, Page { after, limit: options.limit }).await?;
    let keys: Vec<KeyLine> = page.rows.into_iter().map(KeyLine::of).collect();
    let listing = Keys { reaction, keys, next: page.next };
    match options.place.output {
        Format::Json => output::json(&listing)?,
        Format::Table if listing.keys.is_empty() && named.is_empty() => eprintln!("no such keys"),
        Format::Table if listing.keys.is_empty() => {}
        Format::Table => {
            table(&listing.keys)?;
            go_on(listing.next.as_ref());
        }
    }
    let missing = named.iter().find(|key| listing.keys.iter().all(|line| line.key != **key));
    Ok(missing.filter(|_| !options.blocked).map_or(Exit::Well, |key| never_seen(reaction, key)))
}

fn go_on(next: Option<&Key>) {
    if let Some(next) = next {
        eprintln!("hint: there are more; go on with --after {}", output::quoted(&output::key(next)));
    }
}

/// Keys as a table.
pub(super) fn table(keys: &[KeyLine]) -> Result<()> {
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
    output::say(table)
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
        // The last events may be gone: an inbox is emptied when it was handled.
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

async fn reactions(operator: &Operator, format: Format) -> Result<Exit> {
    let lines: Vec<ReactionLine> = operator.reactions().await?.into_iter().map(ReactionLine::of).collect();
    match format {
        Format::Json => output::json(&lines)?,
        Format::Table if lines.is_empty() => eprintln!("no reaction has run on this store"),
        Format::Table => {
            let header =
                ["reaction", "position", "of", "waiting", "behind", "keys", "blocked", "routed by", "error"];
            let mut table = output::table(&header, &[1, 2, 3, 4, 5, 6]);
            for line in &lines {
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
            output::say(table)?;
        }
    }
    Ok(Exit::Well)
}

/// What `parked` prints.
#[derive(Debug, Serialize)]
struct Listing {
    events: Vec<Parked>,
    /// Where to go on; `None` when these are all.
    next: Option<Key>,
}

/// Lists what a reaction has set aside.
pub(in crate::streams) async fn parked(options: &StreamsParked) -> Result<Exit> {
    let after = options.after.as_deref().map(str::parse).transpose()?;
    let opened = options.place.open().await?;
    let page = Page { after, limit: options.limit };
    let found = Operator::new(opened.shared()).parked(&options.reaction, page).await;
    opened.close().await;
    let found = found?;
    let listing = Listing { events: found.rows, next: found.next };
    match options.place.output {
        Format::Json => output::json(&listing)?,
        Format::Table if listing.events.is_empty() => eprintln!("nothing is parked"),
        Format::Table => {
            let header = ["key", "position", "type", "parked", "attempts", "replays", "error"];
            let mut table = output::table(&header, &[1, 4, 5]);
            for parked in &listing.events {
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
            output::say(table)?;
            go_on(listing.next.as_ref());
        }
    }
    Ok(Exit::Well)
}
