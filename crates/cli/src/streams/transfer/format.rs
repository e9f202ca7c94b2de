//! The line format of an export: a head, events, and notes about truncated or closed streams.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tidelock::key::reserved::check_stream;
use tidelock::payload::text;
use tidelock::prelude::*;
use tidelock::store::Event;

use crate::output;

/// The name of the format in the first line.
const FORMAT: &str = "tidelock-streams";
/// The version of the format that is written, and the newest that is read.
const VERSION: u32 = 1;
/// The note with the commit time of an event in its first store.
const ORIGINAL_AT: &str = "original_at";

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Head {
    format: String,
    version: u32,
    exported_at: Timestamp,
}

impl Head {
    pub(super) fn new(exported_at: Timestamp) -> Self {
        Self { format: FORMAT.to_owned(), version: VERSION, exported_at }
    }

    /// Validates a first line.
    pub(super) fn check(line: &str) -> Result<()> {
        let head: Self = serde_json::from_str(line)
            .context("line 1 is not the first line of an export, which names the format and its version")?;
        if head.format != FORMAT {
            bail!("line 1: the format is {:?}, and {FORMAT:?} was expected", head.format);
        }
        if head.version != VERSION {
            let version = head.version;
            bail!(
                "line 1: the file has version {version} of the format, and this program reads version {VERSION}"
            );
        }
        Ok(())
    }
}

/// An event as a line of the export.
#[derive(Debug, Serialize)]
pub(super) struct EventJson<'a> {
    stream: &'a Key,
    version: StreamVersion,
    id: EventId,
    #[serde(rename = "type")]
    event_type: &'a EventType,
    #[serde(rename = "recorded_at")]
    at: Timestamp,
    payload: &'a Payload,
    meta: &'a Payload,
    correlation: Option<&'a str>,
}

impl<'a> EventJson<'a> {
    pub(super) fn of(event: &'a Event) -> Self {
        let Event { stream, version, id, event_type, at, payload, meta, correlation, .. } = event;
        let (version, id, at, correlation) = (*version, *id, *at, correlation.as_deref());
        Self { stream, version, id, event_type, at, payload, meta, correlation }
    }
}

/// The note about a stream whose first events were removed. It precedes the first remaining event.
#[derive(Debug, Serialize)]
pub(super) struct BeginsLine<'a> {
    pub(super) stream: &'a Key,
    pub(super) begins_at: StreamVersion,
}

/// The note about a closed stream. It follows the last event.
#[derive(Debug, Serialize)]
pub(super) struct ClosedLine<'a> {
    pub(super) stream: &'a Key,
    pub(super) head: Option<StreamVersion>,
    pub(super) closed_at: Timestamp,
}

/// Returns a line as text.
pub(super) fn written(line: &impl Serialize) -> Result<String> {
    Ok(output::harmless(&text::compact(&serde_json::to_string(line)?)))
}

/// A decoded line.
pub(super) enum Read {
    /// An event, ready to be appended.
    Event(Imported),
    /// A stream whose events below this version were removed.
    Begins { stream: Key, at: StreamVersion },
    /// A stream that is closed after its last event.
    Closed { stream: Key, head: Option<StreamVersion> },
}

/// An event to import.
#[derive(Clone, Debug)]
pub(super) struct Imported {
    pub(super) line: u64,
    pub(super) stream: Key,
    pub(super) version: StreamVersion,
    pub(super) event: NewEvent,
    /// Its notes as they are in the file.
    meta: Payload,
}

impl Imported {
    /// Returns whether this event equals the stored one. The stored notes may lack the original time: an import into the
    /// source store finds them without it.
    pub(super) fn is(&self, there: &Event) -> bool {
        there.id == self.event.id
            && there.event_type == self.event.event_type
            && same(&there.payload, &self.event.payload)
            && there.correlation == self.event.correlation
            && (same(&there.meta, &self.event.meta) || same(&there.meta, &self.meta))
    }
}

/// Returns whether two payloads are equal as values, or as text without whitespace. Integers with many digits are compared
/// as text.
fn same(a: &Payload, b: &Payload) -> bool {
    a == b || text::compact(a.as_str()) == text::compact(b.as_str())
}

/// All fields that a line may have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnyLine {
    stream: Key,
    begins_at: Option<StreamVersion>,
    version: Option<StreamVersion>,
    id: Option<EventId>,
    #[serde(rename = "type")]
    event_type: Option<EventType>,
    #[serde(rename = "recorded_at")]
    at: Option<Timestamp>,
    payload: Option<Box<RawValue>>,
    meta: Option<Box<RawValue>>,
    correlation: Option<String>,
    head: Option<StreamVersion>,
    closed_at: Option<Timestamp>,
}

/// Decodes a line.
pub(super) fn read(line: u64, text: &str) -> Result<Read> {
    let wrong = || format!("line {line} is neither an event nor a note about a stream");
    let found: AnyLine = serde_json::from_str(text).with_context(wrong)?;
    check_stream(&found.stream).with_context(|| format!("line {line}; remove the line from the file"))?;
    if let Some(at) = found.begins_at {
        return Ok(Read::Begins { stream: found.stream, at });
    }
    if found.closed_at.is_some() {
        return Ok(Read::Closed { stream: found.stream, head: found.head });
    }
    let (Some(version), Some(id), Some(event_type)) = (found.version, found.id, found.event_type) else {
        bail!("{}: it lacks a version, an id or a type", wrong());
    };
    let value =
        |raw: Option<Box<RawValue>>| raw.map_or_else(Payload::null, |raw| Payload::trusted(raw.get()));
    let (payload, meta) = (value(found.payload), value(found.meta));
    let noted = found.at.map_or_else(|| Ok(meta.clone()), |at| noted(&meta, at)).with_context(wrong)?;
    let event = NewEvent { id, event_type, payload, meta: noted, correlation: found.correlation };
    Ok(Read::Event(Imported { line, stream: found.stream, version, event, meta }))
}

type Fields = BTreeMap<String, Box<RawValue>>;

/// Returns the notes of an event with the time in its first store, unless an earlier import has recorded it. Notes that are
/// not an object stay as they are.
fn noted(meta: &Payload, at: Timestamp) -> Result<Payload> {
    let fields: Option<Fields> = match meta.as_str() {
        "null" => Some(Fields::new()),
        text => serde_json::from_str(text).ok(),
    };
    let Some(mut fields) = fields else { return Ok(meta.clone()) };
    let notes: Option<Fields> = match fields.get("notes") {
        None => Some(Fields::new()),
        Some(notes) => serde_json::from_str(notes.get()).ok(),
    };
    let Some(mut notes) = notes else { return Ok(meta.clone()) };
    if notes.contains_key(ORIGINAL_AT) {
        return Ok(meta.clone());
    }
    notes.insert(ORIGINAL_AT.to_owned(), to_raw_value(&at)?);
    fields.insert("notes".to_owned(), to_raw_value(&notes)?);
    Ok(Payload::of(&fields)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(text: &str) -> String {
        noted(&Payload::from_json(text).unwrap(), Timestamp::from_micros(7)).unwrap().to_string()
    }

    #[test]
    fn the_first_time_is_noted_and_no_note_is_lost() {
        assert_eq!(meta("null"), r#"{"notes":{"original_at":"1970-01-01T00:00:00.000007Z"}}"#);
        assert_eq!(meta(r#"{"notes":{"original_at":3}}"#), r#"{"notes":{"original_at":3}}"#);
        let wide = r#"{"n":123456789012345678901,"notes":{"by":"ann"}}"#;
        assert_eq!(
            meta(wide),
            r#"{"n":123456789012345678901,"notes":{"by":"ann","original_at":"1970-01-01T00:00:00.000007Z"}}"#
        );
        for other in ["[1]", "5", r#"{"notes":5}"#] {
            assert_eq!(meta(other), other);
        }
    }

    #[test]
    fn a_first_line_says_what_it_is() {
        Head::check(&written(&Head::new(Timestamp::EPOCH)).unwrap()).unwrap();
        for wrong in ["", "{}", r#"{"format":"x","version":1,"exported_at":"1970-01-01T00:00:00Z"}"#] {
            assert!(Head::check(wrong).unwrap_err().to_string().contains("line 1"), "{wrong}");
        }
        let newer = r#"{"format":"tidelock-streams","version":2,"exported_at":"1970-01-01T00:00:00Z"}"#;
        assert!(Head::check(newer).unwrap_err().to_string().contains("reads version 1"));
    }
}
