//! `tidelock idempotency list`: the idempotency keys and their states.

use anyhow::Result;
use comfy_table::Table;
use tidelock::idempotency::{Idempotency, IdempotencyKeyState, IdempotencyKeyView};

use super::words;
use crate::args::IdempotencyList;
use crate::exit::Exit;
use crate::output::{self, Tone};
use crate::render::{self, Listing};

/// Lists one page.
pub(super) async fn run(options: &IdempotencyList) -> Result<Exit> {
    render::listing(&options.look, &options.pages, async |store, ask| {
        let page = Idempotency::new(store).list(options.scope.as_deref(), ask.page()?).await?;
        let last = page.rows.last().filter(|_| page.next.is_some());
        let next = last.map(|view| Idempotency::page_key(&view.scope, &view.key)).transpose()?;
        let next = next.map(|key| key.to_string());
        Ok(Listing::new("keys", page.rows, table).or("no keys").next(next))
    })
    .await
}

fn table(keys: &[IdempotencyKeyView]) -> Table {
    let mut table = output::table(&["scope", "key", "state", "since", "expires"], &[]);
    for view in keys {
        let (tone, since, expires) = match &view.state {
            IdempotencyKeyState::Stored { at, expires_at, .. } => (Tone::Good, *at, *expires_at),
            IdempotencyKeyState::InFlight { since, .. } => (Tone::Caution, *since, None),
        };
        table.add_row([
            output::flat(&view.scope).into(),
            output::flat(&view.key).into(),
            output::cell(&words(&view.state), tone),
            output::instant(since).into(),
            expires.map(output::instant).unwrap_or_default().into(),
        ]);
    }
    table
}
