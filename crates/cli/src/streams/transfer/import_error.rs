//! Import errors.

use std::fmt;

use tidelock::prelude::*;
use tidelock::store::Event;

use crate::output;

/// A rejected line, with the reason.
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
    /// The stored stream was truncated here, so it is unknown whether it held this event.
    Removed { version: StreamVersion, first: Option<StreamVersion> },
    /// The stream was truncated in its source.
    Truncated { at: StreamVersion, head: Option<StreamVersion>, may_begin: bool },
    /// The stream is closed before this version.
    Closed { version: StreamVersion },
    /// The stream is closed after another version.
    End { file: Option<StreamVersion>, here: Option<StreamVersion> },
    /// Versions are missing in between.
    Gap { version: StreamVersion, head: Option<StreamVersion> },
    /// The file has a version twice.
    Twice { version: StreamVersion },
    /// The id belongs to another event.
    Id(String),
}

impl Refused {
    /// Returns whether the event conflicts with the store; otherwise the file itself is invalid.
    pub(super) fn is_conflict(&self) -> bool {
        !matches!(self.why, Why::Twice { .. })
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stream = output::key(&self.stream);
        write!(f, "line {}: ", self.line)?;
        match &self.why {
            Why::Other { version, there: Some(there) } => {
                let (id, name) = (there.id, output::escaped(there.event_type.as_str()));
                write!(f, "{stream} has another event at version {version} here: {name} {id}")
            }
            Why::Other { version, there: None } => {
                write!(
                    f,
                    "{stream} has the event at another version here, and version {version} was expected"
                )
            }
            Why::Removed { version, first } => {
                write!(f, "version {version} of {stream} was removed here: ")?;
                match first {
                    Some(first) => write!(f, "the oldest event that is left is {first}")?,
                    None => write!(f, "no event is left")?,
                }
                write!(f, ", so it cannot be compared and is not brought back")
            }
            Why::Truncated { at, head, may_begin } => truncated(f, &stream, *at, *head, *may_begin),
            Why::Closed { version } => {
                write!(f, "{stream} is closed here, so version {version} cannot be appended")
            }
            Why::End { file, here } => {
                let (file, here) = (ending(*file), ending(*here));
                write!(f, "{stream} is closed after {file} in the file, and here it ends with {here}")
            }
            Why::Gap { version, head: None } => write!(
                f,
                "{stream} begins with version {version} in the file, and versions must begin with 0: the events before are \
                 neither in the file nor here"
            ),
            Why::Gap { version, head: Some(head) } => write!(
                f,
                "{stream} continues with version {version}, and here it ends with {head}: the events in between are missing"
            ),
            Why::Twice { version } => write!(f, "version {version} of {stream} came before in the file"),
            Why::Id(message) => write!(f, "{}", output::escaped(message)),
        }
    }
}

fn truncated(
    f: &mut fmt::Formatter<'_>,
    stream: &str,
    at: StreamVersion,
    head: Option<StreamVersion>,
    may_begin: bool,
) -> fmt::Result {
    write!(f, "{stream} was truncated where it comes from: it begins with version {at}, ")?;
    match (may_begin, head) {
        (true, None) => write!(f, "and there is none here; --begin-later makes one that begins there"),
        (true, Some(head)) => {
            write!(f, "and here it has no events up to version {head}; --begin-later makes it begin there")
        }
        (false, _) => {
            let here = ending(head);
            write!(f, "and here it ends with {here}: nothing shows that they are the same stream")
        }
    }
}

fn ending(head: Option<StreamVersion>) -> String {
    head.map_or_else(|| "no event".to_owned(), |head| format!("version {head}"))
}

impl std::error::Error for Refused {}
