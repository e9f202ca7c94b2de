//! `tidelock state list`: which records there are.

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::store::Document;

use crate::args::{Format, StateList};
use crate::exit::Exit;
use crate::output;

/// What is printed.
#[derive(Debug, Serialize)]
struct Listing<'a> {
    records: Vec<Line<'a>>,
    /// Where to go on; `None` when these are all.
    next: Option<&'a Key>,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    key: &'a Key,
    version: DocVersion,
    /// The length of the value's text, in bytes.
    size: usize,
    updated_at: Timestamp,
    expires_at: Option<Timestamp>,
}

impl<'a> Line<'a> {
    fn of(document: &'a Document) -> Self {
        let Document { key, version, value, updated_at, expires_at } = document;
        Self { key, version: *version, size: value.len(), updated_at: *updated_at, expires_at: *expires_at }
    }
}

/// Lists one page.
pub(super) async fn run(options: &StateList) -> Result<Exit> {
    let prefix = options.prefix.as_deref().map_or_else(|| Ok(KeyPrefix::all()), str::parse)?;
    let after = options.after.as_deref().map(str::parse).transpose()?;
    let opened = options.place.open().await?;
    let page = opened.shared().documents(&prefix, Page { after, limit: options.limit }).await?;
    opened.close().await;
    let records = page.rows.iter().map(Line::of).collect();
    let listing = Listing { records, next: page.next.as_ref() };
    match options.place.output {
        Format::Json => output::json(&listing)?,
        Format::Table => table(&listing)?,
    }
    Ok(Exit::Well)
}

fn table(listing: &Listing<'_>) -> Result<()> {
    if listing.records.is_empty() {
        eprintln!("no records");
        return Ok(());
    }
    let mut table = output::table(&["key", "version", "size", "updated", "expires"], &[1, 2]);
    for line in &listing.records {
        table.add_row([
            output::key(line.key),
            line.version.to_string(),
            output::bytes(line.size as u64),
            output::instant(line.updated_at),
            line.expires_at.map(output::instant).unwrap_or_default(),
        ]);
    }
    output::say(table)?;
    if let Some(next) = listing.next {
        eprintln!("hint: there are more; go on with --after {}", output::quoted(&output::key(next)));
    }
    Ok(())
}
