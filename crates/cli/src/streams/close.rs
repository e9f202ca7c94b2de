//! `tidelock streams close`: closes a stream, which then rejects further events.

use anyhow::Result;
use serde::Serialize;
use tidelock::key::reserved::check_stream;
use tidelock::prelude::*;
use tidelock::store::{StreamFound, StreamInfo};

use super::{conflict, ends, expected, not_found};
use crate::args::{Layout, StreamsClose};
use crate::confirm;
use crate::exit::Exit;
use crate::output;

/// The printed report.
#[derive(Debug, Serialize)]
struct Report<'a> {
    stream: &'a Key,
    head: Option<StreamVersion>,
    closed_at: Option<Timestamp>,
    /// Whether it was open before.
    changed: bool,
    dry_run: bool,
}

/// Closes a stream.
pub(super) async fn run(options: &StreamsClose) -> Result<Exit> {
    let key: Key = options.key.parse()?;
    check_stream(&key)?;
    let opened = options.place.open().await?;
    let ended = close(&*opened.shared(), &key, options).await;
    opened.close().await;
    ended
}

async fn close(store: &dyn Store, key: &Key, options: &StreamsClose) -> Result<Exit> {
    let Some(StreamInfo { head, closed_at, .. }) = store.stream(key).await? else {
        return Ok(not_found(key));
    };
    let asked = options.if_version.map(StreamVersion);
    if asked.is_some() && asked != head {
        let expect = asked.map_or(Expect::Any, Expect::Exact);
        return Ok(conflict(key, &ends(head), &expected(expect)));
    }
    if closed_at.is_some() {
        let report = Report { stream: key, head, closed_at, changed: false, dry_run: false };
        return print(&report, options.place.output);
    }
    if options.consent.dry_run {
        let report = Report { stream: key, head, closed_at: None, changed: false, dry_run: true };
        return print(&report, options.place.output);
    }
    let question = format!("{} {}. Close it permanently?", output::key(key), ends(head));
    if !confirm::agreed(&question, options.consent.yes)? {
        return Ok(Exit::Failed);
    }
    // Only the confirmed version is closed: another caller may have appended since.
    let expect = head.map_or(Expect::Absent, Expect::Exact);
    match store.apply(Batch::new().close(key, expect)).await {
        Ok(receipt) => {
            let report =
                Report { stream: key, head, closed_at: Some(receipt.at), changed: true, dry_run: false };
            print(&report, options.place.output)
        }
        Err(error) => match error.refusal() {
            Some(Refusal::Stream { found: StreamFound::At(version), .. }) => {
                Ok(conflict(key, &ends(Some(*version)), &expected(expect)))
            }
            _ => Err(error.into()),
        },
    }
}

fn print(report: &Report<'_>, layout: Layout) -> Result<Exit> {
    let (key, head) = (output::key(report.stream), report.head);
    let last = head.map_or_else(|| "it has no events".to_owned(), |head| format!("its last event is {head}"));
    let sentence = match report.closed_at {
        None => format!("{key} would be closed; {last}"),
        Some(_) if report.changed => format!("{key} is closed now; {last}"),
        Some(at) => format!("{key} has been closed since {}; {last}", output::instant(at)),
    };
    output::print_report(layout, report, sentence)
}
