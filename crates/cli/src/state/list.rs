//! `tidelock state list`: the records of a store.

use anyhow::Result;
use comfy_table::Table;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::store::StoredDocument;

use crate::args::StateList;
use crate::exit::Exit;
use crate::output;
use crate::render::{self, Listing};

/// A record as it is printed.
#[derive(Debug, Serialize)]
struct Line {
    key: Key,
    version: DocVersion,
    /// The length of the value's text, in bytes.
    size: usize,
    updated_at: Timestamp,
    expires_at: Option<Timestamp>,
}

impl Line {
    fn of(document: StoredDocument) -> Self {
        let StoredDocument { key, version, value, updated_at, expires_at } = document;
        Self { key, version, size: value.len(), updated_at, expires_at }
    }
}

/// Lists one page.
pub(super) async fn run(options: &StateList) -> Result<Exit> {
    let prefix = options.prefix.as_deref().map_or_else(|| Ok(KeyPrefix::all()), str::parse)?;
    render::listing(&options.look, &options.pages, async |store, ask| {
        let page = store.documents(&prefix, ask.page()?).await?;
        let rows = page.rows.into_iter().map(Line::of).collect();
        Ok(Listing::new("records", rows, table).or("no records").next(page.next.map(|key| key.to_string())))
    })
    .await
}

fn table(lines: &[Line]) -> Table {
    let mut table = output::table(&["key", "version", "size", "updated", "expires"], &[1, 2]);
    for line in lines {
        table.add_row([
            output::key(&line.key),
            line.version.to_string(),
            output::bytes(line.size as u64),
            output::instant(line.updated_at),
            line.expires_at.map(output::instant).unwrap_or_default(),
        ]);
    }
    table
}
