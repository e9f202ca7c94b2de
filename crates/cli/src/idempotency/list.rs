//! `tidelock idempotency list`: which keys there are, and how they stand.

use anyhow::Result;
use serde::Serialize;
use tidelock::edge::{Idempotency, KeyState, KeyView};
use tidelock::prelude::*;

use super::words;
use crate::args::{Format, IdempotencyList};
use crate::exit::Exit;
use crate::output::{self, Tone};

/// What is printed.
#[derive(Debug, Serialize)]
struct Listing {
    keys: Vec<KeyView>,
    /// The key to go on after; `None` when these are all.
    next: Option<Next>,
}

#[derive(Debug, Serialize)]
struct Next {
    scope: String,
    key: String,
}

/// Lists one page.
pub(super) async fn run(keys: &Idempotency, options: &IdempotencyList) -> Result<Exit> {
    let after = match &options.after {
        Some(key) => {
            let scope = options.after_scope.as_deref().or(options.scope.as_deref()).unwrap_or_default();
            Some(Idempotency::page_key(scope, key)?)
        }
        None => None,
    };
    let page = keys.list(options.scope.as_deref(), Page { after, limit: options.limit }).await?;
    let last = page.rows.last().filter(|_| page.next.is_some());
    let next = last.map(|view| Next { scope: view.scope.clone(), key: view.key.clone() });
    let listing = Listing { keys: page.rows, next };
    match options.place.output {
        Format::Json => output::json(&listing)?,
        Format::Table => table(&listing)?,
    }
    Ok(Exit::Well)
}

fn table(listing: &Listing) -> Result<()> {
    if listing.keys.is_empty() {
        eprintln!("no keys");
    } else {
        let mut table = output::table(&["scope", "key", "state", "since", "expires"], &[]);
        for view in &listing.keys {
            let (tone, since, expires) = match &view.state {
                KeyState::Stored { at, expires_at, .. } => (Tone::Good, *at, *expires_at),
                KeyState::InFlight { since, .. } => (Tone::Caution, *since, None),
            };
            table.add_row([
                output::flat(&view.scope).into(),
                output::flat(&view.key).into(),
                output::cell(&words(&view.state), tone),
                output::instant(since).into(),
                expires.map(output::instant).unwrap_or_default().into(),
            ]);
        }
        output::say(table)?;
    }
    if let Some(Next { scope, key }) = &listing.next {
        let (scope, key) = (output::quoted(&output::flat(scope)), output::quoted(&output::flat(key)));
        eprintln!("hint: there may be more; go on with --after {key} --after-scope {scope}");
    }
    Ok(())
}
