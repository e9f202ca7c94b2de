//! Import batches. Events that are already present are left alone; events that differ stop the import.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::store::{Event, StreamInfo};

use super::format::Imported;
use super::import_error::{Refused, Why};

/// The maximum number of attempts per batch when other callers write to the same streams.
const ATTEMPTS: usize = 10;

/// The number of events read in one page.
const PAGE: usize = 1_000;
/// The maximum number of placeholder events that one batch appends and removes.
const STEP: u64 = 5_000;
/// The maximum number of skipped streams reported with a reason.
const TOLD: usize = 100;

/// The progress so far.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Counts {
    /// Events that were appended.
    pub(super) imported: u64,
    /// Events that were already present.
    pub(super) there: u64,
    /// Events of skipped streams.
    pub(super) skipped: u64,
    /// Skipped streams.
    pub(super) skipped_streams: u64,
    /// Streams that were closed.
    pub(super) closed: u64,
    /// Streams that begin after version 0.
    pub(super) begun_later: u64,
    /// The first skipped streams.
    pub(super) left_out: Vec<LeftOut>,
}

/// A skipped stream.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LeftOut {
    pub(super) line: u64,
    pub(super) stream: Key,
    pub(super) reason: String,
}

/// The policy for streams that cannot be imported as they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways {
    /// Whether streams that conflict with the store are skipped.
    pub(super) skip_conflicts: bool,
    /// Whether truncated streams are created to begin at the same version as in the file.
    pub(super) begin_later: bool,
}

/// An import in progress.
pub(super) struct Importer<'a> {
    store: &'a dyn Store,
    ways: Ways,
    skipped: HashSet<Key>,
    pub(super) counts: Counts,
}

impl<'a> Importer<'a> {
    pub(super) fn new(store: &'a dyn Store, ways: Ways) -> Self {
        Self { store, ways, skipped: HashSet::new(), counts: Counts::default() }
    }

    /// Imports all missing events in one batch, or none of them.
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
            // In most cases the store has none of the events or all of them.
            let refused = match self.store.apply(batch(&events)).await {
                Ok(receipt) if !receipt.repeated => {
                    self.counts.imported += events.len() as u64;
                    break;
                }
                Ok(receipt) if matches_receipt(&events, &receipt) => {
                    self.counts.there += events.len() as u64;
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

    /// Returns the events that are missing. An event that differs stops the import, or its stream is skipped.
    async fn missing(&mut self, events: Vec<Imported>) -> Result<Vec<Imported>> {
        let mut here = self.read_streams(&events).await?;
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

    /// Stops the import, or skips the stream if the policy allows it.
    fn refuse(&mut self, refused: Refused) -> Result<()> {
        if !self.ways.skip_conflicts || !refused.is_conflict() {
            return Err(refused.into());
        }
        if self.counts.left_out.len() < TOLD {
            let (line, stream) = (refused.line, refused.stream.clone());
            self.counts.left_out.push(LeftOut { line, stream, reason: refused.to_string() });
        }
        self.skipped.insert(refused.stream);
        self.counts.skipped_streams += 1;
        Ok(())
    }

    /// Reads the streams, with the versions that the events cover.
    async fn read_streams(&self, events: &[Imported]) -> Result<HashMap<Key, Here>> {
        let mut ranges: HashMap<&Key, (StreamVersion, StreamVersion)> = HashMap::new();
        for event in events {
            let range = ranges.entry(&event.stream).or_insert((event.version, event.version));
            *range = (range.0.min(event.version), range.1.max(event.version));
        }
        let mut here = HashMap::new();
        for (stream, (first, last)) in ranges {
            here.insert(stream.clone(), Here::read(self.store, stream, first, last).await?);
        }
        Ok(here)
    }

    /// Handles a stream whose first events were removed in the source. The store must have the oldest remaining event, or
    /// else nothing shows that it is the same stream. Where the stream has no events, it is created to begin later if the
    /// policy allows it.
    pub(super) async fn begin(&mut self, line: u64, stream: Key, at: StreamVersion) -> Result<()> {
        if self.skipped.contains(&stream) {
            return Ok(());
        }
        let info = self.store.stream(&stream).await?;
        let (head, first) = info.map_or((None, None), |info| (info.head, info.first));
        let next = head.map_or(StreamVersion(0), StreamVersion::next);
        // The oldest event comes with the next line, and is compared then. Without any event, the same version is next.
        if next > at || (next == at && first.is_none()) {
            return Ok(());
        }
        if first.is_some() || !self.ways.begin_later {
            let may_begin = first.is_none();
            return self.refuse(Refused { line, stream, why: Why::Truncated { at, head, may_begin } });
        }
        self.pass_over(&stream, head, at).await?;
        self.counts.begun_later += 1;
        Ok(())
    }

    /// Advances a stream without events to a version. The placeholder events are appended and removed in the same batch,
    /// so no reader ever sees them.
    async fn pass_over(
        &self,
        stream: &Key,
        mut head: Option<StreamVersion>,
        at: StreamVersion,
    ) -> Result<()> {
        let name: EventType = "tidelock.passed-over".parse()?;
        loop {
            let next = head.map_or(StreamVersion(0), StreamVersion::next);
            let count = at.0.saturating_sub(next.0).min(STEP);
            if count == 0 {
                return Ok(());
            }
            let expect = head.map_or(Expect::Absent, Expect::Exact);
            let events = (0..count).map(|_| NewEvent::new(name.clone(), Payload::null()));
            let before = StreamVersion(next.0.saturating_add(count));
            let batch = Batch::new().append(stream, expect, events).truncate(stream, before);
            self.store.apply(batch).await?;
            head = before.0.checked_sub(1).map(StreamVersion);
        }
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

/// The stored state of a stream.
struct Here {
    head: Option<StreamVersion>,
    /// The oldest remaining version.
    first: Option<StreamVersion>,
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
    ) -> Result<Self> {
        let wanted = usize::try_from(last.0.saturating_sub(first.0)).unwrap_or(PAGE);
        let limit = wanted.saturating_add(1).min(PAGE);
        let info = store.stream(stream).await?;
        let closed = info.as_ref().is_some_and(|info: &StreamInfo| info.closed_at.is_some());
        let (head, oldest) = info.map_or((None, None), |info| (info.head, info.first));
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
        Ok(Self {
            head,
            first: oldest,
            closed,
            events,
            next: head.map_or(StreamVersion(0), StreamVersion::next),
        })
    }

    /// Returns whether the event is already present. If it is not, it must be the next one.
    fn judge(&mut self, event: &Imported) -> Result<bool, Why> {
        let version = event.version;
        if self.head.is_some_and(|head| version <= head) {
            let first = self.first;
            return match self.events.get(&version) {
                None if first.is_none_or(|first| version < first) => Err(Why::Removed { version, first }),
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

/// Groups consecutive events of the same stream. Each group is one append.
fn appends(events: &[Imported]) -> impl Iterator<Item = &[Imported]> {
    events.chunk_by(|a, b| a.stream == b.stream && a.version.next() == b.version)
}

/// Returns the events as one batch.
fn batch(events: &[Imported]) -> Batch {
    appends(events).fold(Batch::new(), |batch, run| {
        let Some(first) = run.first() else { return batch };
        let expect = match first.version.0.checked_sub(1) {
            None => Expect::Absent,
            Some(before) => Expect::Exact(StreamVersion(before)),
        };
        batch.append(&first.stream, expect, run.iter().map(|event| event.event.clone()))
    })
}

/// Returns whether the receipt of a repeated batch shows all events at the expected versions. The store has compared the
/// rest.
fn matches_receipt(events: &[Imported], receipt: &Receipt) -> bool {
    let wanted = appends(events).filter_map(|run| run.first()).map(|first| (&first.stream, first.version));
    let found = receipt.appended.iter().map(|appended| (&appended.stream, appended.first_version));
    receipt.repeated && wanted.eq(found)
}

/// Returns whether the rejection may be caused by events that are already present.
fn may_be_there(error: &ApplyError) -> bool {
    use Refusal::{EventIdReused, Stream, StreamClosed};
    matches!(error.refusal(), Some(Stream { .. } | EventIdReused { .. } | StreamClosed { .. }))
}

/// Returns the error for a rejection that the streams do not explain: ids that are used elsewhere.
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
