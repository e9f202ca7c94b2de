//! `tidelock streams show`: the events of one stream.

use anyhow::Result;
use comfy_table::Table;
use tidelock::prelude::*;
use tidelock::store::{Direction, Event, StreamInfo};

use super::row::{Line, payload};
use super::{absent, types};
use crate::args::{Pages, StreamsShow};
use crate::exit::Exit;
use crate::output;
use crate::render::{self, Listing, PageRequest};

/// The number of events read in one page.
const PAGE: usize = 500;

/// Prints the selected events.
pub(super) async fn run(options: &StreamsShow) -> Result<Exit> {
    let (key, types): (Key, _) = (options.key.parse()?, types(&options.types)?);
    let pages = Pages { limit: options.limit, cursor: options.from.map(|from| from.to_string()) };
    render::listing(&options.look, &pages, async |store, ask| {
        let Some(info) = store.stream(&key).await? else { return Ok(missing(&key)) };
        let found = read(&**store, &key, &types, options.backward, &ask).await?;
        let rows = found.events.into_iter().map(Line).collect();
        let next = found.next.map(|next| next.to_string());
        let listing = Listing::new("events", rows, table).or("no such events").next(next);
        Ok(notes(&info).into_iter().fold(listing.fact("stream", key.to_string()), Listing::note))
    })
    .await
}

/// Returns the listing for a stream that does not exist.
fn missing(key: &Key) -> Listing<Line> {
    let mut listing = Listing::new("events", Vec::new(), table).or("");
    listing.notes = absent(key);
    listing.exit = Exit::NotFound;
    listing
}

/// Returns notes about facts that the events do not carry.
fn notes(info: &StreamInfo) -> Vec<String> {
    let removed = match (info.first, info.head) {
        (Some(first), _) if first.0 > 0 => Some(format!("the events before version {first} were removed")),
        (None, Some(head)) => Some(format!("all events up to version {head} were removed")),
        _ => None,
    };
    let closed = info.closed_at.map(|at| format!("closed {}", output::instant(at)));
    removed.into_iter().chain(closed).collect()
}

/// Events, and the version to continue with.
struct Found {
    events: Vec<Event>,
    next: Option<StreamVersion>,
}

/// Reads until the page is full. Types are filtered here: a page of the store without matching events does not report
/// where it ends.
async fn read(
    store: &dyn Store,
    key: &Key,
    types: &[EventType],
    backward: bool,
    ask: &PageRequest,
) -> Result<Found> {
    let direction = if backward { Direction::Backward } else { Direction::Forward };
    let mut query = StreamQuery { direction, ..StreamQuery::forward(key, PAGE) };
    query.from = ask.cursor.as_deref().and_then(|from| from.parse().ok()).map(StreamVersion);
    let mut events = Vec::new();
    loop {
        let page = store.read_stream(query.clone()).await?;
        let last = page.events.last().map(|event| event.version);
        for event in page.events {
            if !types.is_empty() && !types.contains(&event.event_type) {
                continue;
            }
            if events.len() == ask.limit {
                return Ok(Found { events, next: Some(event.version) });
            }
            events.push(event);
        }
        let next = last.and_then(|last| following(last, direction)).filter(|_| !page.end);
        let Some(next) = next else { return Ok(Found { events, next: None }) };
        query.from = Some(next);
    }
}

fn following(version: StreamVersion, direction: Direction) -> Option<StreamVersion> {
    match direction {
        Direction::Forward => Some(version.next()),
        Direction::Backward => version.0.checked_sub(1).map(StreamVersion),
    }
}

fn table(events: &[Line]) -> Table {
    let header = ["version", "position", "at", "type", "correlation", "payload"];
    let mut table = output::table(&header, &[0, 1]);
    for Line(event) in events {
        table.add_row([
            event.version.to_string(),
            event.position.to_string(),
            output::instant(event.at),
            output::escaped(event.event_type.as_str()),
            event.correlation.as_deref().map(output::escaped).unwrap_or_default(),
            payload(event),
        ]);
    }
    output::one_line(&mut table);
    table
}
