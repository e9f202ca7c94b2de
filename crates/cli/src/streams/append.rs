//! `tidelock streams append`: appends one event at the expected version.

use anyhow::Result;
use serde::Serialize;
use tidelock::key::reserved::{check_event_type, check_stream};
use tidelock::prelude::*;
use tidelock::store::{Appended, StreamFound};

use super::{conflict, ends, expected};
use crate::args::{Layout, StreamsAppend};
use crate::exit::Exit;
use crate::{input, output};

/// The printed report.
#[derive(Debug, Serialize)]
struct Report<'a> {
    stream: &'a Key,
    version: StreamVersion,
    position: Position,
    id: EventId,
    at: Timestamp,
}

/// Appends an event.
pub(super) async fn run(options: &StreamsAppend) -> Result<Exit> {
    let key = options.key.parse()?;
    check_stream(&key)?;
    let event = event(options)?;
    let opened = options.place.open().await?;
    let ended = append(&*opened.shared(), &key, event, options).await;
    opened.close().await;
    ended
}

fn event(options: &StreamsAppend) -> Result<NewEvent> {
    let event_type: EventType = options.event_type.parse()?;
    check_event_type(&event_type)?;
    let event = NewEvent::new(event_type, input::typed(&options.payload)?);
    Ok(NewEvent { correlation: options.correlation.clone(), ..event })
}

async fn append(store: &dyn Store, key: &Key, event: NewEvent, options: &StreamsAppend) -> Result<Exit> {
    let expect = match (options.if_version, options.if_absent) {
        (Some(version), _) => Expect::Exact(StreamVersion(version)),
        (None, true) => Expect::Absent,
        (None, false) => {
            let head = store.stream(key).await?.and_then(|info| info.head);
            head.map_or(Expect::Absent, Expect::Exact)
        }
    };
    let id = event.id;
    match store.apply(Batch::new().append(key, expect, [event])).await {
        Ok(receipt) => print(&receipt, id, options.place.output),
        Err(error) => match error.refusal() {
            Some(Refusal::Stream { found, .. }) => {
                let head = match found {
                    StreamFound::Absent => None,
                    StreamFound::At(version) => Some(*version),
                };
                Ok(conflict(key, &ends(head), &expected(expect)))
            }
            _ => Err(explained(key, error)),
        },
    }
}

/// Returns the error, and prints a hint when it is unknown whether the event was appended.
fn explained(key: &Key, error: ApplyError) -> anyhow::Error {
    if matches!(error.outcome(), Outcome::Unknown(_)) {
        let key = output::quoted(&output::key(key));
        eprintln!("hint: `tidelock streams show {key} --backward --limit 1` shows whether it was appended");
    }
    error.into()
}

fn print(receipt: &Receipt, id: EventId, layout: Layout) -> Result<Exit> {
    let Some(Appended { stream, last_version, last_position, .. }) = receipt.appended.first() else {
        return Err(anyhow::anyhow!("the store returned no position of the event"));
    };
    let (version, position) = (*last_version, *last_position);
    let new = if version.0 == 0 { "; it is new" } else { "" };
    let sentence = format!("{} is at version {version} now{new}; position {position}", output::key(stream));
    output::print_report(layout, &Report { stream, version, position, id, at: receipt.at }, sentence)
}
