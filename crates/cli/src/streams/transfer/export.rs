//! `tidelock streams export`: writes all events up to the current end of the log, in log order.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;
use tempfile::NamedTempFile;
use tidelock::key::reserved::is_own_stream;
use tidelock::prelude::*;
use tidelock::store::{Direction, Event, EventFilter, StreamInfo, limits};

use super::format::{BeginsLine, ClosedLine, EventJson, Head, written};
use crate::args::StreamsExport;
use crate::exit::{Conflict, Exit};
use crate::filesystem::directory_of;
use crate::output;
use crate::progress::Progress;
use crate::streams::range;

/// The number of events read in one page.
const PAGE: usize = 1_000;

/// The report printed after a file was written.
#[derive(Debug, Default, Serialize)]
struct Report {
    events: u64,
    streams: u64,
    /// Streams noted as closed.
    closed: u64,
    /// Streams whose first events were removed.
    truncated: u64,
}

/// Writes an export.
pub(in crate::streams) async fn run(options: &StreamsExport) -> Result<Exit> {
    let prefix = range(options.prefix.as_deref())?;
    let opened = options.place.open().await?;
    let written = match &options.file {
        None => to_stdout(&*opened.shared(), &prefix).await,
        Some(path) => to_file(&*opened.shared(), &prefix, path).await,
    };
    opened.close().await;
    let report = written?;
    match (&options.file, options.place.output) {
        (Some(_), layout) => drop(output::print_report(layout, &report, summary(&report))?),
        // Standard output is the export itself.
        (None, _) => eprintln!("{}", summary(&report)),
    }
    if report.truncated > 0 {
        let count = output::number(report.truncated);
        eprintln!(
            "warning: {count} of the streams were truncated; an import makes them only with --begin-later"
        );
    }
    Ok(Exit::Well)
}

fn summary(report: &Report) -> String {
    let Report { events, streams, closed, truncated } = report;
    let number = |value: &u64| output::number(*value);
    let (events, streams) = (number(events), number(streams));
    format!(
        "{events} events of {streams} streams; {} closed, {} truncated",
        number(closed),
        number(truncated)
    )
}

async fn to_stdout(store: &dyn Store, prefix: &KeyPrefix) -> Result<Report> {
    Writer::new(BufWriter::new(io::stdout())).run(store, prefix).await
}

/// Writes a file that gets its name only once it is complete.
async fn to_file(store: &dyn Store, prefix: &KeyPrefix, path: &Path) -> Result<Report> {
    let name = || format!("{} cannot be written", path.display());
    let mut file = NamedTempFile::new_in(directory_of(path)).with_context(name)?;
    let report = Writer::new(BufWriter::new(file.as_file_mut())).run(store, prefix).await?;
    file.as_file().sync_all().with_context(name)?;
    file.persist(path).with_context(name)?;
    Ok(report)
}

/// An export in progress.
struct Writer<W> {
    out: W,
    /// The next expected version of each stream.
    next: HashMap<Key, StreamVersion>,
    report: Report,
}

impl<W: Write> Writer<W> {
    fn new(out: W) -> Self {
        Self { out, next: HashMap::new(), report: Report::default() }
    }

    async fn run(mut self, store: &dyn Store, prefix: &KeyPrefix) -> Result<Report> {
        self.line(&Head::new(store.now().await?))?;
        let last = LogQuery { direction: Direction::Backward, ..LogQuery::all(1) };
        let end = store.read_log(last).await?.events.first().map(|event| event.position);
        if let Some(end) = end {
            self.events(store, prefix, end).await?;
        }
        self.report.streams = self.next.len() as u64;
        self.ends(store, prefix).await?;
        self.out.flush()?;
        Ok(self.report)
    }

    fn line(&mut self, line: &impl Serialize) -> Result<()> {
        Ok(writeln!(self.out, "{}", written(line)?)?)
    }

    async fn events(&mut self, store: &dyn Store, prefix: &KeyPrefix, end: Position) -> Result<()> {
        let progress = Progress::new(end.0);
        let filter = EventFilter { streams: Some(prefix.clone()), ..EventFilter::default() };
        let mut query = LogQuery { filter, ..LogQuery::all(PAGE) };
        loop {
            let page = store.read_log(query.clone()).await?;
            for event in
                page.events.iter().filter(|event| event.position <= end && !is_own_stream(&event.stream))
            {
                self.event(event)?;
            }
            let scanned = page.scanned_to.max(query.after);
            let before = query.after.map_or(0, |after| after.0);
            progress.done(scanned.map_or(0, |scanned| scanned.0.min(end.0).saturating_sub(before)));
            progress.say(format!("{} events", output::number(self.report.events)));
            if page.end || scanned.is_none_or(|scanned| scanned >= end) {
                return Ok(());
            }
            query.after = scanned;
        }
    }

    fn event(&mut self, event: &Event) -> Result<()> {
        let Event { stream, version, .. } = event;
        match self.next.get(stream) {
            Some(next) if next < version => return Err(torn(stream, *next, *version)),
            None if version.0 > 0 => self.begins(stream, *version)?,
            _ => {}
        }
        self.line(&EventJson::of(event))?;
        self.next.insert(stream.clone(), version.next());
        self.report.events += 1;
        Ok(())
    }

    fn begins(&mut self, stream: &Key, begins_at: StreamVersion) -> Result<()> {
        self.report.truncated += 1;
        self.line(&BeginsLine { stream, begins_at })
    }

    /// Notes the facts that events do not carry: streams without remaining events, and closed
    /// streams.
    async fn ends(&mut self, store: &dyn Store, prefix: &KeyPrefix) -> Result<()> {
        let mut page = Page::first(limits::PAGE_ROWS);
        loop {
            let found = store.streams(prefix, page).await?;
            for info in found.rows.iter().filter(|info| !is_own_stream(&info.key)) {
                self.end(info)?;
            }
            let Some(next) = found.next else { return Ok(()) };
            page = Page::after(&next, limits::PAGE_ROWS);
        }
    }

    fn end(&mut self, info: &StreamInfo) -> Result<()> {
        let StreamInfo { key, head, first, closed_at } = info;
        let after = head.map_or(StreamVersion(0), StreamVersion::next);
        let oldest = first.unwrap_or(after);
        let written = self.next.get(key).copied();
        match written {
            Some(next) if next < oldest => return Err(torn(key, next, oldest)),
            None if oldest.0 > 0 => self.begins(key, oldest)?,
            _ => {}
        }
        // A stream that was appended to and closed during the export is still open at the end of the
        // file.
        let whole = written.unwrap_or(oldest) == after;
        if let Some(closed_at) = closed_at.filter(|_| whole) {
            self.report.closed += 1;
            self.line(&ClosedLine { stream: key, head: *head, closed_at })?;
        }
        Ok(())
    }
}

/// Returns the error for events that were removed before they were exported.
fn torn(stream: &Key, next: StreamVersion, oldest: StreamVersion) -> anyhow::Error {
    let stream = output::key(stream);
    let reason = format!(
        "{stream} was truncated while it was exported: version {next} was next, and the oldest that is left is {oldest}; \
         what was written is not whole, export it again"
    );
    Conflict(reason).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(version: u64) -> Event {
        Event {
            position: Position(version + 1),
            stream: Key::single("a").unwrap(),
            version: StreamVersion(version),
            id: EventId::new(),
            event_type: "T".parse().unwrap(),
            at: Timestamp::EPOCH,
            payload: Payload::null(),
            meta: Payload::null(),
            correlation: None,
        }
    }

    /// Returns a stream after its events were read: closed, with these versions.
    fn info(first: Option<u64>, head: u64) -> StreamInfo {
        let (key, head) = (Key::single("a").unwrap(), Some(StreamVersion(head)));
        StreamInfo { key, head, first: first.map(StreamVersion), closed_at: Some(Timestamp::EPOCH) }
    }

    fn with(versions: &[u64]) -> Writer<Vec<u8>> {
        let mut writer = Writer::new(Vec::new());
        versions.iter().for_each(|version| writer.event(&event(*version)).unwrap());
        writer
    }

    #[test]
    fn a_truncation_during_an_export_is_reported() {
        let gap = with(&[0, 1]).event(&event(5)).unwrap_err();
        assert!(gap.is::<Conflict>() && gap.to_string().contains("version 2 was next"), "{gap}");
        for (first, head) in [(Some(5), 6), (None, 4)] {
            assert!(with(&[0, 1]).end(&info(first, head)).unwrap_err().is::<Conflict>(), "{first:?}");
        }
        with(&[0, 1]).end(&info(Some(2), 3)).unwrap();
        with(&[0, 1]).end(&info(None, 1)).unwrap();
    }

    #[test]
    fn a_stream_is_noted_as_closed_when_its_last_event_is_in_the_file() {
        for (versions, first, head, closed) in [
            (&[0, 1][..], Some(0), 1, 1),
            (&[0, 1], Some(0), 2, 0),
            (&[3, 4], Some(3), 4, 1),
            (&[], None, 4, 1),
            (&[], Some(0), 0, 0),
        ] {
            let mut writer = with(versions);
            writer.end(&info(first, head)).unwrap();
            assert_eq!(writer.report.closed, closed, "{versions:?} of {first:?} to {head}");
        }
    }
}
