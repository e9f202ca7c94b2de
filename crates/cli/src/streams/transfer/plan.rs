//! Batches of an import: what is there already is left alone, what is something else stops it.

use std::collections::{HashMap, HashSet};
use std::fmt;

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::store::{Event, StreamInfo};

use super::format::Imported;
use crate::output;

/// How often a batch is put together again because somebody else writes to the same streams.
const ATTEMPTS: usize = 10;

/// What has been done so far.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Counts {
    /// Events that were appended.
    pub(super) imported: u64,
    /// Events that were there.
    pub(super) there: u64,
    /// Events of streams that were left out.
    pub(super) skipped: u64,
    /// Streams that were left out.
    pub(super) skipped_streams: u64,
    /// Streams that were closed.
    pub(super) closed: u64,
}

/// Why a line is not imported.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) line: u64,
    pub(super) stream: Key,
    pub(super) why: Why,
}

#[derive(Debug)]
pub(super) enum Why {
    /// The stream has another event at this version.
    Other { version: StreamVersion, there: Option<Box<Event>> },
    /// The stream is closed before this version.
    Closed { version: StreamVersion },
    /// The stream is closed after another version.
    End { file: Option<StreamVersion>, here: Option<StreamVersion> },
    /// Versions are missing in between.
    Gap { version: StreamVersion, head: Option<StreamVersion> },
    /// The file has a version twice.
    Twice { version: StreamVersion },
    /// The id is another event's.
    Id(String),
}

impl Refused {
    /// Whether the store is in the way, and not the file.
    pub(super) fn is_conflict(&self) -> bool {
        !matches!(self.why, Why::Gap { .. } | Why::Twice { .. })
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, stream) = (self.line, output::key(&self.stream));
        let at = |head: &Option<StreamVersion>| match head {
            Some(head) => format!("version {head}"),
            None => "no event".to_owned(),
        };
        match &self.why {
            Why::Other { version, there: Some(there) } => {
                let (id, name) = (there.id, output::escaped(there.event_type.as_str()));
                write!(f, "line {line}: {stream} has another event at version {version} here: {name} {id}")
            }
            Why::Other { version, there: None } => {
                write!(
                    f,
                    "line {line}: the event stands elsewhere in {stream} here, and version {version} was expected"
                )
            }
            Why::Closed { version } => {
                write!(f, "line {line}: {stream} is closed here, so version {version} cannot be appended")
            }
            Why::End { file, here } => {
                let (file, here) = (at(file), at(here));
                write!(
                    f,
                    "line {line}: {stream} is closed after {file} in the file, and here it ends with {here}"
                )
            }
            Why::Gap { version, head: None } => write!(
                f,
                "line {line}: {stream} begins with version {version} in the file, and versions must begin with 0: \
                 the events before are neither in the file nor here"
            ),
            Why::Gap { version, head: Some(head) } => write!(
                f,
                "line {line}: {stream} goes on with version {version}, and here it ends with {head}: \
                 the events in between are missing"
            ),
            Why::Twice { version } => {
                write!(f, "line {line}: version {version} of {stream} came before in the file")
            }
            Why::Id(message) => write!(f, "line {line}: {}", output::escaped(message)),
        }
    }
}

impl std::error::Error for Refused {}

/// An import that is going on.
pub(super) struct Importer<'a> {
    store: &'a dyn Store,
    skip_existing: bool,
    skipped: HashSet<Key>,
    pub(super) counts: Counts,
}

impl<'a> Importer<'a> {
    pub(super) fn new(store: &'a dyn Store, skip_existing: bool) -> Self {
        Self { store, skip_existing, skipped: HashSet::new(), counts: Counts::default() }
    }

    /// Imports events: all that are missing, or none.
    pub(super) async fn add(&mut self, mut events: Vec<Imported>) -> Result<()> {
        for attempt in 1.. {
            events.retain(|event| {
                let left_out = self.skipped.contains(&event.stream);
                self.counts.skipped += u64::from(left_out);
                !left_out
            });
            if events.is_empty() {
                break;
            }
            // Most of the time nothing is there, or everything.
            let refused = match self.store.apply(batch(&events)).await {
                Ok(receipt) if !receipt.repeated => {
                    self.counts.imported += events.len() as u64;
                    break;
                }
                Ok(_) => None,
                Err(error) if may_be_there(&error) => Some(error),
                Err(error) => return Err(error.into()),
            };
            let before = events.len();
            let skipped = self.skipped.len();
            events = self.missing(events).await?;
            let stuck = events.len() == before && self.skipped.len() == skipped;
            if stuck || attempt == ATTEMPTS {
                return Err(unexplained(&events, refused));
            }
        }
        Ok(())
    }

    /// Leaves out what is there already. What is there and is something else stops the import, or its stream is left out.
    async fn missing(&mut self, events: Vec<Imported>) -> Result<Vec<Imported>> {
        let mut here = self.look(&events).await?;
        let mut rest = Vec::new();
        for event in events {
            if self.skipped.contains(&event.stream) {
                self.counts.skipped += 1;
                continue;
            }
            let Some(stream) = here.get_mut(&event.stream) else { continue };
            match stream.judge(&event) {
                Ok(true) => self.counts.there += 1,
                Ok(false) => rest.push(event),
                Err(why) => {
                    self.refuse(Refused { line: event.line, stream: event.stream, why })?;
                    self.counts.skipped += 1;
                }
            }
        }
        Ok(rest)
    }

    /// Stops the import, or leaves the stream out if that was asked for.
    fn refuse(&mut self, refused: Refused) -> Result<()> {
        if !self.skip_existing || !refused.is_conflict() {
            return Err(refused.into());
        }
        self.skipped.insert(refused.stream);
        self.counts.skipped_streams += 1;
        Ok(())
    }

    /// The streams as they are, with the versions that the events are about.
    async fn look(&self, events: &[Imported]) -> Result<HashMap<Key, Here>> {
        let mut ranges: HashMap<&Key, (StreamVersion, StreamVersion)> = HashMap::new();
        for event in events {
            let range = ranges.entry(&event.stream).or_insert((event.version, event.version));
            *range = (range.0.min(event.version), range.1.max(event.version));
        }
        let mut here = HashMap::new();
        for (stream, (first, last)) in ranges {
            here.insert(stream.clone(), Here::read(self.store, stream, first, last, events.len()).await?);
        }
        Ok(here)
    }

    /// Closes a stream after its last event.
    pub(super) async fn close(&mut self, line: u64, stream: Key, head: Option<StreamVersion>) -> Result<()> {
        if self.skipped.contains(&stream) {
            return Ok(());
        }
        let info = self.store.stream(&stream).await?;
        let here = info.as_ref().and_then(|info| info.head);
        if here != head {
            return self.refuse(Refused { line, stream, why: Why::End { file: head, here } });
        }
        if info.is_none_or(|info| info.closed_at.is_none()) {
            let expect = head.map_or(Expect::Absent, Expect::Exact);
            self.store.apply(Batch::new().close(&stream, expect)).await?;
            self.counts.closed += 1;
        }
        Ok(())
    }
}

/// A stream as it is here.
struct Here {
    head: Option<StreamVersion>,
    closed: bool,
    events: HashMap<StreamVersion, Event>,
    /// The version that the next new event must have.
    next: StreamVersion,
}

impl Here {
    async fn read(
        store: &dyn Store,
        stream: &Key,
        first: StreamVersion,
        last: StreamVersion,
        limit: usize,
    ) -> Result<Self> {
        let info = store.stream(stream).await?;
        let closed = info.as_ref().is_some_and(|info: &StreamInfo| info.closed_at.is_some());
        let head = info.and_then(|info| info.head);
        let mut events = HashMap::new();
        let mut from = Some(first).filter(|first| head.is_some_and(|head| *first <= head));
        while let Some(version) = from {
            let page = store.read_stream(StreamQuery::forward(stream, limit).from(version)).await?;
            from = page
                .events
                .last()
                .map(|event| event.version.next())
                .filter(|next| *next <= last && !page.end);
            events.extend(page.events.into_iter().map(|event| (event.version, event)));
        }
        Ok(Self { head, closed, events, next: head.map_or(StreamVersion(0), StreamVersion::next) })
    }

    /// Whether the event is there already; if not, it must be the next one.
    fn judge(&mut self, event: &Imported) -> Result<bool, Why> {
        let version = event.version;
        if self.head.is_some_and(|head| version <= head) {
            return match self.events.get(&version) {
                Some(there) if event.is(there) => Ok(true),
                there => Err(Why::Other { version, there: there.cloned().map(Box::new) }),
            };
        }
        if self.closed {
            return Err(Why::Closed { version });
        }
        if version != self.next {
            let (head, next) = (self.head, self.next);
            return Err(if version > next { Why::Gap { version, head } } else { Why::Twice { version } });
        }
        self.next = version.next();
        Ok(false)
    }
}

/// The events as one batch: neighbours of the same stream are one append.
fn batch(events: &[Imported]) -> Batch {
    let follow = |a: &Imported, b: &Imported| a.stream == b.stream && a.version.next() == b.version;
    events.chunk_by(follow).fold(Batch::new(), |batch, run| {
        let Some(first) = run.first() else { return batch };
        let expect = match first.version.0.checked_sub(1) {
            None => Expect::Absent,
            Some(before) => Expect::Exact(StreamVersion(before)),
        };
        batch.append(&first.stream, expect, run.iter().map(|event| event.event.clone()))
    })
}

/// Whether the refusal may come from events that are there already.
fn may_be_there(error: &ApplyError) -> bool {
    use Refusal::{EventIdReused, Stream, StreamClosed};
    matches!(error.refusal(), Some(Stream { .. } | EventIdReused { .. } | StreamClosed { .. }))
}

/// What the streams themselves do not explain: ids that are in use elsewhere.
fn unexplained(events: &[Imported], refused: Option<ApplyError>) -> anyhow::Error {
    let id = match refused.as_ref().and_then(ApplyError::refusal) {
        Some(Refusal::EventIdReused { id, .. }) => Some(*id),
        _ => None,
    };
    let used = events.iter().find(|event| id.is_none_or(|id| event.event.id == id));
    match (used, refused) {
        (Some(Imported { line, stream, .. }), Some(error)) if id.is_some() => {
            Refused { line: *line, stream: stream.clone(), why: Why::Id(error.to_string()) }.into()
        }
        (Some(Imported { line, stream, version, .. }), None) => {
            let why = Why::Other { version: *version, there: None };
            Refused { line: *line, stream: stream.clone(), why }.into()
        }
        (_, Some(error)) => error.into(),
        (None, None) => anyhow::anyhow!("the store says that nothing is there twice"),
    }
}
