//! `tidelock streams list`: which streams there are.

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::store::StreamInfo;

use super::range;
use crate::args::{Format, StreamsList};
use crate::exit::Exit;
use crate::output;

/// What is printed.
#[derive(Debug, Serialize)]
struct Listing {
    streams: Vec<Line>,
    /// Where to go on; `None` when these are all.
    next: Option<Key>,
}

#[derive(Debug, Serialize)]
struct Line {
    key: Key,
    /// The version of the last event; `None` when a stream was closed before it had any.
    head: Option<StreamVersion>,
    /// The version of the oldest event that is left; `None` when none is.
    first: Option<StreamVersion>,
    closed_at: Option<Timestamp>,
    last_type: Option<EventType>,
    last_at: Option<Timestamp>,
}

/// Lists one page.
pub(super) async fn run(options: &StreamsList) -> Result<Exit> {
    let prefix = range(options.prefix.as_deref())?;
    let after = options.after.as_deref().map(str::parse).transpose()?;
    let opened = options.place.open().await?;
    let store = opened.shared();
    let page = store.streams(&prefix, Page { after, limit: options.limit }).await?;
    let mut listing = Listing { streams: Vec::with_capacity(page.rows.len()), next: page.next };
    for info in page.rows {
        listing.streams.push(line(&*store, info).await?);
    }
    opened.close().await;
    match options.place.output {
        Format::Json => output::json(&listing)?,
        Format::Table => table(&listing)?,
    }
    Ok(Exit::Well)
}

/// The stream with its last event, which is looked up by its version: what is appended meanwhile comes with the next call.
async fn line(store: &dyn Store, info: StreamInfo) -> Result<Line> {
    let StreamInfo { key, head, first, closed_at } = info;
    let last = match head {
        Some(head) => store.read_stream(StreamQuery::backward(&key, 1).from(head)).await?.events.pop(),
        None => None,
    };
    let last_at = last.as_ref().map(|event| event.at);
    Ok(Line { key, head, first, closed_at, last_type: last.map(|event| event.event_type), last_at })
}

fn table(listing: &Listing) -> Result<()> {
    if listing.streams.is_empty() {
        eprintln!("no streams");
        return Ok(());
    }
    let mut table = output::table(&["key", "first", "version", "last event", "at", "closed"], &[1, 2]);
    for line in &listing.streams {
        table.add_row([
            output::key(&line.key),
            line.first.map(|first| first.to_string()).unwrap_or_default(),
            line.head.map(|head| head.to_string()).unwrap_or_default(),
            line.last_type.as_ref().map(|name| output::escaped(name.as_str())).unwrap_or_default(),
            line.last_at.map(output::instant).unwrap_or_default(),
            line.closed_at.map(output::instant).unwrap_or_default(),
        ]);
    }
    output::say(table)?;
    if let Some(next) = &listing.next {
        eprintln!("hint: there are more; go on with --after {}", output::quoted(&output::key(next)));
    }
    Ok(())
}
