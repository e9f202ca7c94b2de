//! An event on one line: whole for programs, cut for people.

use serde::ser::{Serialize, SerializeStruct as _, Serializer};
use tidelock::payload::text;
use tidelock::store::Event;

use crate::output::{self, Tone};

/// An event as programs get it.
#[derive(Debug)]
pub(super) struct Line(pub(super) Event);

impl Line {
    pub(super) fn of(event: Event) -> Self {
        Self(event)
    }
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Event { position, stream, version, id, event_type, at, payload, meta, correlation } = &self.0;
        let mut line = serializer.serialize_struct("Event", 9)?;
        line.serialize_field("position", position)?;
        line.serialize_field("stream", stream)?;
        line.serialize_field("version", version)?;
        line.serialize_field("id", id)?;
        line.serialize_field("type", event_type)?;
        line.serialize_field("at", at)?;
        line.serialize_field("payload", payload)?;
        line.serialize_field("meta", meta)?;
        line.serialize_field("correlation", correlation)?;
        line.end()
    }
}

/// A payload on one line.
pub(super) fn payload(event: &Event) -> String {
    output::harmless(&text::compact(event.payload.as_str()))
}

/// An event for people who follow the log: as wide as the terminal.
pub(super) fn followed(event: &Event) -> String {
    let Event { position, stream, version, event_type, at, .. } = event;
    let head = format!("{position:>8}  {}  {} {version}  ", output::instant(*at), output::key(stream),);
    let name = output::escaped(event_type.as_str());
    let mut rest = payload(event);
    if let Some(correlation) = &event.correlation {
        rest.push_str(&format!("  ({})", output::escaped(correlation)));
    }
    if let Some(columns) = output::columns() {
        let taken = head.chars().count() + name.chars().count() + 3;
        rest = output::cut(&rest, columns.saturating_sub(taken).max(20));
    }
    format!("{head}{}  {rest}", output::styled(&name, Tone::Bold))
}
