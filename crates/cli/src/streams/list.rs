//! `tidelock streams list`: the streams of a store.

use anyhow::Result;
use comfy_table::Table;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::store::StreamInfo;

use super::range;
use crate::args::StreamsList;
use crate::exit::Exit;
use crate::output;
use crate::render::{self, Listing};

#[derive(Debug, Serialize)]
struct Line {
    key: Key,
    /// The version of the last event; `None` when a stream was closed before it had any.
    head: Option<StreamVersion>,
    /// The version of the oldest remaining event; `None` when none remains.
    first: Option<StreamVersion>,
    closed_at: Option<Timestamp>,
    last_type: Option<EventType>,
    last_at: Option<Timestamp>,
}

/// Lists one page.
pub(super) async fn run(options: &StreamsList) -> Result<Exit> {
    let prefix = range(options.prefix.as_deref())?;
    render::listing(&options.look, &options.pages, async |store, ask| {
        let page = store.streams(&prefix, ask.page()?).await?;
        let mut rows = Vec::with_capacity(page.rows.len());
        for info in page.rows {
            rows.push(line(&**store, info).await?);
        }
        Ok(Listing::new("streams", rows, table).or("no streams").next(page.next.map(|key| key.to_string())))
    })
    .await
}

/// Returns the stream with its last event, which is read by its version. Events appended since then appear with the next
/// call.
async fn line(store: &dyn Store, info: StreamInfo) -> Result<Line> {
    let StreamInfo { key, head, first, closed_at } = info;
    let last = match head {
        Some(head) => store.read_stream(StreamQuery::backward(&key, 1).from(head)).await?.events.pop(),
        None => None,
    };
    let last_at = last.as_ref().map(|event| event.at);
    Ok(Line { key, head, first, closed_at, last_type: last.map(|event| event.event_type), last_at })
}

fn table(lines: &[Line]) -> Table {
    let mut table = output::table(&["key", "first", "version", "last event", "at", "closed"], &[1, 2]);
    for line in lines {
        table.add_row([
            output::key(&line.key),
            // Most streams are complete, and their first version is not shown.
            line.first.filter(|first| first.0 > 0).map(|first| first.to_string()).unwrap_or_default(),
            line.head.map(|head| head.to_string()).unwrap_or_default(),
            line.last_type.as_ref().map(|name| output::escaped(name.as_str())).unwrap_or_default(),
            line.last_at.map(output::instant).unwrap_or_default(),
            line.closed_at.map(output::instant).unwrap_or_default(),
        ]);
    }
    table
}
