//! `tidelock streams import`: imports the events that an export holds and the store lacks.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use super::format::{Head, Imported, Read, read};
use super::import_error::Refused;
use super::plan::{Counts, Importer, Ways};
use crate::args::{Layout, StreamsImport};
use crate::confirm;
use crate::exit::{Exit, UsageError, explained};
use crate::input::unreadable;
use crate::output;
use crate::progress::Progress;

/// The maximum number of events in one batch, and the approximate maximum of bytes.
const BATCH_EVENTS: usize = 500;
const BATCH_BYTES: usize = 8 << 20;
/// The maximum length of a line: a payload and notes, with each character written as six.
const LINE_BYTES: u64 = 64 << 20;

/// The maximum number of skipped streams shown to human readers.
const SHOWN: usize = 10;

/// The printed report.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    counts: &'a Counts,
    /// The number of the last line read.
    lines: u64,
    /// The line to resume from; `None` when the import is complete.
    from_line: Option<u64>,
}

/// Imports a file.
pub(in crate::streams) async fn run(options: &StreamsImport) -> Result<Exit> {
    let (source, length) = source(options)?;
    let opened = options.place.open().await?;
    if let Some(ended) = counted(options)? {
        opened.close().await;
        return Ok(ended);
    }
    let store = opened.shared();
    let ways = Ways { skip_conflicts: options.skip_conflicts, begin_later: options.begin_later };
    let importer = Importer::new(&*store, ways);
    let mut reading = Reading { lines: Lines { source, line: 0 }, importer, waiting: Vec::new(), bytes: 0 };
    let progress = length.map(Progress::new);
    let ended = reading.run(options.from_line, progress.as_ref()).await;
    drop(progress);
    let from = reading.waiting.first().map_or(reading.lines.line, |event| event.line);
    let (lines, counts) = (reading.lines.line, reading.importer.counts);
    opened.close().await;
    let from_line = ended.is_err().then_some(from.max(2));
    let report = Report { counts: &counts, lines, from_line };
    match ended {
        Ok(()) => print(&report, options.place.output),
        Err(error) => stopped(error, &report, options.place.output),
    }
}

/// A file being imported.
struct Reading<'a> {
    lines: Lines,
    importer: Importer<'a>,
    /// Events that are not yet imported.
    waiting: Vec<Imported>,
    bytes: usize,
}

impl Reading<'_> {
    async fn run(&mut self, from_line: u64, progress: Option<&Progress>) -> Result<()> {
        self.lines.head()?;
        loop {
            let text = match self.lines.next_line() {
                Ok(Some(text)) => text,
                Ok(None) => return self.flush().await,
                // The lines read before the error are valid, so they are imported.
                Err(error) => return self.flush().await.and(Err(error)),
            };
            if let Some(progress) = progress {
                progress.done(text.len() as u64);
                progress.say(format!("line {}", output::number(self.lines.line)));
            }
            if self.lines.line >= from_line && !text.trim().is_empty() {
                self.take(&text).await?;
            }
        }
    }

    async fn take(&mut self, text: &str) -> Result<()> {
        match read(self.lines.line, text) {
            Ok(Read::Event(event)) => {
                self.bytes += event.event.payload.len() + event.event.meta.len();
                self.waiting.push(event);
                if self.waiting.len() >= BATCH_EVENTS || self.bytes >= BATCH_BYTES {
                    self.flush().await?;
                }
                Ok(())
            }
            Ok(Read::Begins { stream, at }) => {
                self.flush().await?;
                self.importer.begin(self.lines.line, stream, at).await
            }
            Ok(Read::Closed { stream, head }) => {
                self.flush().await?;
                self.importer.close(self.lines.line, stream, head).await
            }
            Err(error) => {
                self.flush().await?;
                Err(unfit(error))
            }
        }
    }

    /// Imports the buffered events. They stay buffered when that fails.
    async fn flush(&mut self) -> Result<()> {
        self.importer.add(self.waiting.clone()).await?;
        self.waiting.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// Returns the source and its length, if known.
fn source(options: &StreamsImport) -> Result<(Box<dyn BufRead>, Option<u64>)> {
    let Some(path) = &options.file else { return Ok((Box::new(io::stdin().lock()), None)) };
    let name = path.display().to_string();
    let file = File::open(path).map_err(|e| unreadable(&name, &e))?;
    let length = file.metadata().map_err(|e| unreadable(&name, &e))?.len();
    Ok((Box::new(BufReader::new(file)), Some(length)))
}

/// The contents of a file.
#[derive(Debug, Default, Serialize)]
struct Census {
    events: u64,
    streams: usize,
    /// Streams that end closed.
    closed: u64,
    /// Streams that begin after version 0.
    begun_later: u64,
    dry_run: bool,
}

/// Counts the contents and asks for confirmation. Returns `Some` when nothing is to be imported.
fn counted(options: &StreamsImport) -> Result<Option<Exit>> {
    let StreamsImport { file, consent, place, from_line, .. } = options;
    if consent.yes && !consent.dry_run {
        return Ok(None);
    }
    if file.is_none() && !consent.dry_run {
        let reason = "what comes on standard input cannot be counted beforehand: add --yes if it is meant";
        return Err(UsageError(reason.to_owned()).into());
    }
    let census = Lines { source: source(options)?.0, line: 0 }.census(*from_line)?;
    let (events, streams) = (output::number(census.events), output::number(census.streams as u64));
    let what = format!("{events} events of {streams} streams");
    let closed = match census.closed {
        0 => String::new(),
        closed => format!(", and {} streams closed for good", output::number(closed)),
    };
    if consent.dry_run {
        let done = format!("{what} would be imported, as far as they are not there{closed}");
        return output::print_report(place.output, &Census { dry_run: true, ..census }, done).map(Some);
    }
    let question = format!("Are {what} to be imported, as far as they are not there{closed}?");
    let nothing = census.events == 0 && census.closed == 0 && census.begun_later == 0;
    Ok(if nothing || confirm::agreed(&question, false)? { None } else { Some(Exit::Failed) })
}

/// A reader of the lines of a file.
struct Lines {
    source: Box<dyn BufRead>,
    /// The number of the last line read.
    line: u64,
}

impl Lines {
    /// Reads and validates the first line.
    fn head(&mut self) -> Result<()> {
        let head = self.next_line()?;
        Ok(Head::check(head.as_deref().unwrap_or_default()).map_err(|e| UsageError(format!("{e:#}")))?)
    }

    /// Counts the contents of the remaining lines.
    fn census(mut self, from_line: u64) -> Result<Census> {
        let (mut census, mut streams) = (Census::default(), HashSet::new());
        self.head()?;
        while let Some(text) = self.next_line()? {
            if self.line < from_line || text.trim().is_empty() {
                continue;
            }
            match read(self.line, &text).map_err(unfit)? {
                Read::Event(event) => {
                    census.events += 1;
                    streams.insert(event.stream);
                }
                Read::Begins { .. } => census.begun_later += 1,
                Read::Closed { .. } => census.closed += 1,
            }
        }
        census.streams = streams.len();
        Ok(census)
    }

    fn next_line(&mut self) -> Result<Option<String>> {
        let mut text = String::new();
        self.line += 1;
        let line = self.line;
        let read = self.source.by_ref().take(LINE_BYTES + 1).read_line(&mut text);
        let length = read.with_context(|| format!("line {line} cannot be read"))?;
        if length as u64 > LINE_BYTES {
            bail!("line {line} has more than {LINE_BYTES} bytes");
        }
        if length == 0 {
            self.line -= 1;
            return Ok(None);
        }
        Ok(Some(text))
    }
}

fn summary(counts: &Counts) -> String {
    let number = output::number;
    let mut text =
        format!("{} events imported, {} were there", number(counts.imported), number(counts.there));
    if counts.skipped_streams > 0 {
        let (events, streams) = (number(counts.skipped), number(counts.skipped_streams));
        text.push_str(&format!(", {events} of {streams} streams left out"));
    }
    if counts.begun_later > 0 {
        text.push_str(&format!(", {} streams begin later", number(counts.begun_later)));
    }
    if counts.closed > 0 {
        text.push_str(&format!(", {} streams closed", number(counts.closed)));
    }
    text
}

/// Prints the skipped streams and the reasons.
fn tell_left_out(counts: &Counts) {
    for left in counts.left_out.iter().take(SHOWN) {
        eprintln!("left out: {}", left.reason);
    }
    let more = counts.skipped_streams.saturating_sub(counts.left_out.len().min(SHOWN) as u64);
    if more > 0 {
        eprintln!("left out: {} streams more", output::number(more));
    }
}

fn print(report: &Report<'_>, layout: Layout) -> Result<Exit> {
    if layout == Layout::Table {
        tell_left_out(report.counts);
    }
    output::print_report(layout, report, summary(report.counts))
}

/// Reports the cause of the stop, the progress, and the line to resume from.
fn stopped(error: anyhow::Error, report: &Report<'_>, layout: Layout) -> Result<Exit> {
    if layout != Layout::Table {
        output::print_report(layout, report, "")?;
    } else {
        tell_left_out(report.counts);
        eprintln!("{}", summary(report.counts));
    }
    let hint = || {
        if let Some(from) = report.from_line.filter(|from| *from > 2) {
            eprintln!(
                "hint: all lines before it are imported; continue with --from-line {from}, or import the file again"
            );
        }
    };
    let Some(refused) = error.downcast_ref::<Refused>() else {
        hint();
        return Err(error);
    };
    let nothing = match report.from_line {
        Some(from) => format!("; nothing from line {from} on was imported"),
        None => String::new(),
    };
    if !refused.is_conflict() {
        eprintln!("error: {refused}{nothing}");
        hint();
        return Ok(Exit::Usage);
    }
    eprintln!("error[TL0201]: {refused}{nothing}");
    hint();
    eprintln!("hint: --skip-conflicts leaves out streams that do not fit what is here");
    Ok(Exit::Conflict)
}

/// Classifies a line that cannot be decoded: an error with a code stays as it is, any other is a usage
/// error.
fn unfit(error: anyhow::Error) -> anyhow::Error {
    if explained(&error).is_some() { error } else { UsageError(format!("{error:#}")).into() }
}
