//! An event on one line: complete for programs, truncated for human readers.

use serde::ser::{Serialize, Serializer};
use tidelock::events::EventJson;
use tidelock::payload::text;
use tidelock::store::Event;

use crate::output::{self, Tone};

/// An event in its form for programs.
#[derive(Debug)]
pub(super) struct Line(pub(super) Event);

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        EventJson::of(&self.0).serialize(serializer)
    }
}

/// Returns a payload on one line.
pub(super) fn payload(event: &Event) -> String {
    output::harmless(&text::compact(event.payload.as_str()))
}

/// Returns an event for human readers of `tail`, as wide as the terminal.
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
