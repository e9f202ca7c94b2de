//! `tidelock streams export`: everything up to the last event that is there, in the order of the log.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;
use tempfile::NamedTempFile;
use tidelock::prelude::*;
use tidelock::store::{Direction, EventFilter, StreamInfo, limits};

use super::format::{ClosedLine, EventLine, Head, written};
use crate::args::{Format, StreamsExport};
use crate::exit::Exit;
use crate::output;
use crate::progress::Progress;
use crate::streams::range;
use crate::target::directory_of;

/// How many events are read at once.
const PAGE: usize = 1_000;

/// What is printed when a file was written.
#[derive(Debug, Default, Serialize)]
struct Report {
    events: u64,
    closed: u64,
}

/// Writes an export.
pub(in crate::streams) async fn run(options: &StreamsExport) -> Result<Exit> {
    let prefix = range(options.prefix.as_deref())?;
    let opened = options.place.open().await?;
    let store = opened.shared();
    let report = match &options.file {
        None => {
            let mut out = BufWriter::new(io::stdout());
            let report = write(&*store, &prefix, &mut out).await?;
            out.flush()?;
            report
        }
        Some(path) => to_file(&*store, &prefix, path).await?,
    };
    opened.close().await;
    match (&options.file, options.place.output) {
        (Some(_), Format::Json) => output::json(&report)?,
        // Standard output is the export itself, or nobody needs it.
        _ => eprintln!(
            "{} events, {} closed streams",
            output::number(report.events),
            output::number(report.closed)
        ),
    }
    Ok(Exit::Well)
}

/// Writes a file that has its name only once it is whole.
async fn to_file(store: &dyn Store, prefix: &KeyPrefix, path: &Path) -> Result<Report> {
    let name = || format!("{} cannot be written", path.display());
    let mut file = NamedTempFile::new_in(directory_of(path)).with_context(name)?;
    let mut out = BufWriter::new(file.as_file_mut());
    let report = write(store, prefix, &mut out).await?;
    out.flush().with_context(name)?;
    drop(out);
    file.as_file().sync_all().with_context(name)?;
    file.persist(path).with_context(name)?;
    Ok(report)
}

async fn write(store: &dyn Store, prefix: &KeyPrefix, out: &mut impl Write) -> Result<Report> {
    writeln!(out, "{}", written(&Head::new(store.now().await?))?)?;
    // Closed streams first: they have all their events by now, so these are below the end that is looked up next.
    let closed = closed(store, prefix).await?;
    let last = LogQuery { direction: Direction::Backward, ..LogQuery::all(1) };
    let end = store.read_log(last).await?.events.first().map(|event| event.position);
    let mut report = Report { closed: closed.len() as u64, ..Report::default() };
    if let Some(end) = end {
        report.events = events(store, prefix, end, out).await?;
    }
    for StreamInfo { key, head, closed_at } in &closed {
        if let Some(closed_at) = *closed_at {
            writeln!(out, "{}", written(&ClosedLine { stream: key, head: *head, closed_at })?)?;
        }
    }
    Ok(report)
}

async fn closed(store: &dyn Store, prefix: &KeyPrefix) -> Result<Vec<StreamInfo>> {
    let mut closed = Vec::new();
    let mut page = Page::first(limits::PAGE_ROWS);
    loop {
        let found = store.streams(prefix, page).await?;
        closed.extend(found.rows.into_iter().filter(|info| info.closed_at.is_some()));
        let Some(next) = found.next else { return Ok(closed) };
        page = Page::after(&next, limits::PAGE_ROWS);
    }
}

async fn events(store: &dyn Store, prefix: &KeyPrefix, end: Position, out: &mut impl Write) -> Result<u64> {
    let progress = Progress::new(end.0);
    let filter = EventFilter { streams: Some(prefix.clone()), ..EventFilter::default() };
    let mut query = LogQuery { filter, ..LogQuery::all(PAGE) };
    let mut count = 0;
    loop {
        let page = store.read_log(query.clone()).await?;
        for event in page.events.iter().filter(|event| event.position <= end) {
            writeln!(out, "{}", written(&EventLine::of(event))?)?;
            count += 1;
        }
        let scanned = page.scanned_to.max(query.after);
        let before = query.after.map_or(0, |after| after.0);
        progress.done(scanned.map_or(0, |scanned| scanned.0.min(end.0).saturating_sub(before)));
        progress.say(format!("{} events", output::number(count)));
        if page.end || scanned.is_none_or(|scanned| scanned >= end) {
            return Ok(count);
        }
        query.after = scanned;
    }
}
