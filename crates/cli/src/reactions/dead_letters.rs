//! `tidelock reactions dead-letters`: the parked events of a reaction.

use anyhow::Result;
use comfy_table::Table;
use tidelock::prelude::*;
use tidelock::reactions::{Operator, ParkedEvent};

use crate::args::ReactionsDeadLetters;
use crate::exit::Exit;
use crate::output;
use crate::render::{self, Listing};

/// Lists the dead letters of a reaction.
pub(super) async fn list(options: &ReactionsDeadLetters) -> Result<Exit> {
    render::listing(&options.look, &options.pages, async |store, ask| {
        let operator = Operator::new(SharedStore::clone(store));
        let found = operator.parked(&options.reaction, ask.page()?).await?;
        let listing = Listing::new("events", found.rows, table).or("no dead letters");
        Ok(listing.next(found.next.map(|key| key.to_string())))
    })
    .await
}

fn table(events: &[ParkedEvent]) -> Table {
    let header = ["key", "position", "type", "parked", "attempts", "replays", "error"];
    let mut table = output::table(&header, &[1, 4, 5]);
    for parked in events {
        table.add_row([
            output::key(&parked.key),
            parked.event.position.to_string(),
            output::escaped(parked.event.event_type.as_str()),
            output::instant(parked.at),
            parked.attempts.to_string(),
            parked.replays.to_string(),
            output::flat(&parked.error),
        ]);
    }
    output::one_line(&mut table);
    table
}
