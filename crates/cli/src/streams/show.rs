//! `tidelock streams show`: the events of one stream.

use anyhow::Result;
use tidelock::events::EventLine;
use tidelock::prelude::*;
use tidelock::store::{Direction, Event, StreamInfo};

use super::line::payload;
use super::{not_found, types};
use crate::args::{Format, StreamsShow};
use crate::exit::Exit;
use crate::output;

/// How many events are read at once.
const PAGE: usize = 500;

/// Prints the events that are meant.
pub(super) async fn run(options: &StreamsShow) -> Result<Exit> {
    let (key, types): (Key, _) = (options.key.parse()?, types(&options.types)?);
    let opened = options.place.open().await?;
    let store = opened.shared();
    let info = store.stream(&key).await?;
    let found = read(&*store, &key, &types, options).await?;
    opened.close().await;
    let Some(info) = info else { return Ok(not_found(&key)) };
    match options.place.output {
        Format::Json => found.events.iter().try_for_each(|event| output::json_line(&EventLine::of(event)))?,
        Format::Table => table(&found.events)?,
    }
    if options.place.output == Format::Table {
        notes(&info);
    }
    if let Some(next) = found.next {
        eprintln!("hint: there are more; go on with --from {next}");
    }
    Ok(Exit::Well)
}

/// What the events do not tell.
fn notes(info: &StreamInfo) {
    match (info.first, info.head) {
        (Some(first), _) if first.0 > 0 => eprintln!("the events before version {first} were removed"),
        (None, Some(head)) => eprintln!("all events up to version {head} were removed"),
        _ => {}
    }
    if let Some(at) = info.closed_at {
        eprintln!("closed {}", output::instant(at));
    }
}

/// Events, and the version to go on with.
struct Found {
    events: Vec<Event>,
    next: Option<StreamVersion>,
}

/// Reads until there are enough. Types are compared here: a page of the store that holds none does not say where it ends.
async fn read(store: &dyn Store, key: &Key, types: &[EventType], options: &StreamsShow) -> Result<Found> {
    let direction = if options.backward { Direction::Backward } else { Direction::Forward };
    let mut query = StreamQuery { direction, ..StreamQuery::forward(key, PAGE) };
    query.from = options.from.map(StreamVersion);
    let mut events = Vec::new();
    loop {
        let page = store.read_stream(query.clone()).await?;
        let last = page.events.last().map(|event| event.version);
        for event in page.events {
            if !types.is_empty() && !types.contains(&event.event_type) {
                continue;
            }
            if events.len() == options.limit {
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

fn table(events: &[Event]) -> Result<()> {
    if events.is_empty() {
        eprintln!("no such events");
        return Ok(());
    }
    let header = ["version", "position", "at", "type", "correlation", "payload"];
    let mut table = output::table(&header, &[0, 1]);
    for event in events {
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
    output::say(table)
}
