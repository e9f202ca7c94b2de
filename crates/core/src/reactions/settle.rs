//! Whether anything is left to do.

use std::sync::Arc;

use super::decide::Routing;
use super::definition::{Definition, Noted};
use super::error::ReactionsError;
use super::names::{self, Row};
use crate::id::Position;
use crate::store::{LogQuery, Page, SharedStore, WorkFilter, WorkRow};

/// How many rows or events are read at once.
const PAGE: usize = 1_000;

/// What is left when nothing is pending: what waits for an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Rows that are blocked: of keys, and of routers.
    pub blocked: u64,
    /// Events that are parked.
    pub parked: u64,
}

/// What is left, if nothing is pending. `None` when something is.
///
/// Three looks, because they do not happen at one instant: every event is routed; then no row is pending; then no event has
/// come since the first look. So at the second look there was neither an event nor a row with something to do.
pub(super) async fn look(
    store: &SharedStore,
    definitions: &[Arc<Definition>],
) -> Result<Option<Settled>, ReactionsError> {
    let mut settled = Settled::default();
    let mut looked_to = Vec::with_capacity(definitions.len());
    for definition in definitions {
        let Some(from) = router_at(store, definition).await? else {
            settled.blocked += 1;
            looked_to.push(None);
            continue;
        };
        match routed_from(store, definition, from).await? {
            Some(to) => looked_to.push(Some(to)),
            None => return Ok(None),
        }
    }
    for definition in definitions {
        let Some(blocked) = blocked_rows(store, definition).await? else { return Ok(None) };
        settled.blocked += blocked;
        settled.parked += parked(store, definition).await?;
    }
    for (definition, to) in definitions.iter().zip(looked_to) {
        if let Some(to) = to
            && routed_from(store, definition, to).await?.is_none()
        {
            return Ok(None);
        }
    }
    Ok(Some(settled))
}

/// Where the router is; `None` when it is blocked.
async fn router_at(store: &SharedStore, definition: &Definition) -> Result<Option<Position>, ReactionsError> {
    let row = store.work(&names::router(&definition.name)?).await?;
    Ok(match row {
        Some(row) if row.blocked.is_some() => None,
        Some(row) => Some(row.position.unwrap_or(Position(0))),
        None => Some(Position(0)),
    })
}

/// Up to where the log was looked at, if there is no event for the reaction after `from`.
async fn routed_from(
    store: &SharedStore,
    definition: &Definition,
    from: Position,
) -> Result<Option<Position>, ReactionsError> {
    let noted = store.document(&names::definition(&definition.name)?).await?;
    let generation = noted.as_ref().map(Noted::read).transpose()?.map_or(0, |noted| noted.generation);
    let routing: Routing<'_> = definition.routing(generation);
    let mut position = from;
    loop {
        let query = LogQuery { filter: definition.interest.filter(), ..LogQuery::after(position, PAGE) };
        let page = store.read_log(query).await?;
        // What cannot be routed is pending, too: the router has not come to it yet.
        if page.events.iter().any(|event| !matches!(routing.key(event), Ok(None))) {
            return Ok(None);
        }
        position = page.scanned_to.map_or(position, |to| to.max(position));
        if page.end {
            return Ok(Some(position));
        }
    }
}

/// How many rows are blocked, if no other row has anything to do.
async fn blocked_rows(store: &SharedStore, definition: &Definition) -> Result<Option<u64>, ReactionsError> {
    let filter = WorkFilter { lane: Some(definition.lane.clone()), ..WorkFilter::default() };
    let (mut blocked, mut page) = (0, Page::first(PAGE));
    loop {
        let found = store.works(&filter, page).await?;
        for row in found.rows.iter().filter(|row| is_of(row, &definition.name)) {
            match row {
                WorkRow { blocked: Some(_), .. } => blocked += 1,
                WorkRow { due: None, lease: None, .. } => {}
                _ => return Ok(None),
            }
        }
        let Some(next) = found.next else { return Ok(Some(blocked)) };
        page = Page::after(&next, PAGE);
    }
}

fn is_of(row: &WorkRow, name: &str) -> bool {
    match Row::read(&row.key) {
        Some(Row::Key { reaction, .. } | Row::Replay { reaction, .. }) => reaction == name,
        None => false,
    }
}

async fn parked(store: &SharedStore, definition: &Definition) -> Result<u64, ReactionsError> {
    let (mut count, mut page) = (0, Page::first(PAGE));
    loop {
        let found = store.documents(&names::all_parked(&definition.name), page).await?;
        count += found.rows.len() as u64;
        let Some(next) = found.next else { return Ok(count) };
        page = Page::after(&next, PAGE);
    }
}
