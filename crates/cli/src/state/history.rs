//! `tidelock state history`: the previous writes of a record.

use anyhow::Result;
use comfy_table::Table;
use tidelock::prelude::*;
use tidelock::state::{HistoryChange, HistoryEntry, history, history_key};

use crate::args::{Pages, StateHistory};
use crate::exit::Exit;
use crate::output;
use crate::render::{self, Listing};

/// The maximum number of characters of a value shown in a table.
const SHOWN_CHARACTERS: usize = 200;

/// The default number of writes printed.
const WRITES: usize = 20;

/// Prints the last writes.
pub(super) async fn run(options: &StateHistory) -> Result<Exit> {
    let key: Key = options.key.parse()?;
    let pages = Pages { limit: options.limit, cursor: options.cursor.map(|number| number.to_string()) };
    render::listing_of(WRITES, &options.look, &pages, async |store, ask| {
        let before = ask.cursor.as_deref().and_then(|number| number.parse().ok()).map(StreamVersion);
        let writes = history(&**store, &key, before, ask.limit).await?;
        if writes.is_empty() && store.stream(&history_key(&key)?).await?.is_none() {
            return Ok(not_kept(&key));
        }
        let next = writes.last().map(|past| past.number).filter(|number| number.0 > 0);
        let listing = Listing::new("writes", writes, table).or("no writes before that");
        Ok(listing.fact("key", key.to_string()).next(next.map(|number| number.to_string())))
    })
    .await
}

/// Returns the listing for a record without a history.
fn not_kept(key: &Key) -> Listing<HistoryEntry> {
    let mut listing = Listing::new("writes", Vec::new(), table).or("");
    listing.notes = vec![
        format!("error: no history of {} is kept", output::key(key)),
        "hint: a program begins one by making its state from `StateRegistry::with_history`".to_owned(),
    ];
    listing.exit = Exit::NotFound;
    listing
}

fn table(writes: &[HistoryEntry]) -> Table {
    let mut table = output::table(&["number", "at", "what", "mutations", "value or deltas"], &[0, 3]);
    for HistoryEntry { number, at, mutations, change } in writes {
        let (what, content) = match change {
            HistoryChange::Put(value) => ("put", value.to_string()),
            HistoryChange::Merge(deltas) => {
                ("merge", deltas.iter().map(delta).collect::<Vec<_>>().join(", "))
            }
            HistoryChange::Delete => ("delete", String::new()),
        };
        table.add_row([
            number.to_string(),
            output::instant(*at),
            what.to_owned(),
            mutations.to_string(),
            output::harmless(&output::cut(&content, SHOWN_CHARACTERS)),
        ]);
    }
    table
}

/// Returns a delta in a few words.
fn delta(delta: &Delta) -> String {
    match delta {
        Delta::Inc { path, by } => format!("inc {path} {by}"),
        Delta::Push { path, value } => format!("push {path} {value}"),
        Delta::Set { path, value } => format!("set {path} {value}"),
        Delta::Remove { path } => format!("remove {path}"),
    }
}
