//! Quiescence check of reactions.

use std::sync::Arc;

use super::definition::Definition;
use super::error::ReactionsError;
use super::keys;
use super::stored::{DefinitionState, State, Stored, StoredAt};
use crate::id::Position;
use crate::store::{LogQuery, Page, Pattern, SharedStore, WorkFilter, WorkRow};

/// The number of rows or events that are read at once.
const PAGE: usize = 1_000;

/// The work that waits for an operator when nothing else is pending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quiescence {
    /// Blocked rows of keys, replays and routers.
    pub blocked: u64,
    /// Parked events.
    pub parked: u64,
}

/// Returns the work that waits for an operator; `None` when other work is pending.
///
/// It needs three reads, because they do not happen at one instant. First every event is routed, then no row is pending,
/// then no event has arrived since the first read. So no event and no row was pending at the second read.
pub(super) async fn remaining(
    store: &SharedStore,
    definitions: &[Arc<Definition>],
) -> Result<Option<Quiescence>, ReactionsError> {
    let mut settled = Quiescence::default();
    let mut looked_to = Vec::with_capacity(definitions.len());
    for definition in definitions {
        let Some(StoredAt { stored, .. }) = StoredAt::read(store, &definition.name).await? else { continue };
        match stored.state {
            State::Active if stored.is_complete() => {}
            State::Ended => continue,
            _ => return Ok(None),
        }
        let Some(from) = router_at(store, definition).await? else {
            settled.blocked += 1;
            looked_to.push((definition, stored, None));
            continue;
        };
        match routed_from(store, definition, &stored, from).await? {
            Some(to) => looked_to.push((definition, stored, Some(to))),
            None => return Ok(None),
        }
    }
    for (definition, ..) in &looked_to {
        let Some(blocked) = blocked_rows(store, definition).await? else { return Ok(None) };
        settled.blocked += blocked;
        settled.parked += parked(store, definition).await?;
    }
    for (definition, stored, to) in looked_to {
        // Another definition may want events that were skipped.
        let now = StoredAt::read(store, &definition.name).await?;
        if now.is_none_or(|now| *now.stored != *stored) {
            return Ok(None);
        }
        if let Some(to) = to
            && routed_from(store, definition, &stored, to).await?.is_none()
        {
            return Ok(None);
        }
    }
    Ok(Some(settled))
}

/// Returns the position of the router; `None` when it is blocked.
async fn router_at(store: &SharedStore, definition: &Definition) -> Result<Option<Position>, ReactionsError> {
    let row = store.work(&keys::router(&definition.name)?).await?;
    Ok(match row {
        Some(row) if row.blocked.is_some() => None,
        Some(row) => Some(row.position.unwrap_or(Position(0))),
        None => Some(Position(0)),
    })
}

/// Returns the position up to which the log was read, if no event after `from` is for the reaction.
async fn routed_from(
    store: &SharedStore,
    definition: &Definition,
    stored: &Stored,
    from: Position,
) -> Result<Option<Position>, ReactionsError> {
    let routing = definition.routing(stored);
    // The key function of another definition is not available here.
    let mine = stored.standing_of(&definition.facts) == DefinitionState::Current;
    let mut position = from;
    loop {
        let query = LogQuery { filter: stored.filter(), ..LogQuery::after(position, PAGE) };
        let page = store.read_log(query).await?;
        // An event that cannot be routed is pending as well, because the router has not reached it yet.
        let mut wanted = page.events.iter().filter(|event| stored.wants(event));
        if wanted.any(|event| !mine || !matches!(routing.choose(event), Ok(None))) {
            return Ok(None);
        }
        position = page.scanned_to.map_or(position, |to| to.max(position));
        if page.end {
            return Ok(Some(position));
        }
    }
}

/// Returns the number of blocked rows, if no other row has pending work.
async fn blocked_rows(store: &SharedStore, definition: &Definition) -> Result<Option<u64>, ReactionsError> {
    let name = &definition.name;
    let mut blocked = 0;
    // Selects rows by key, because a row may be in any queue.
    for pattern in [keys::rows_matching(Some(name), None), keys::replays_matching(name)] {
        let filter = WorkFilter { pattern: Some(Pattern::new(&pattern)?), ..WorkFilter::default() };
        let mut page = Page::first(PAGE);
        loop {
            let found = store.works(&filter, page).await?;
            for row in &found.rows {
                match row {
                    WorkRow { blocked: Some(_), .. } => blocked += 1,
                    WorkRow { due: None, lease: None, .. } => {}
                    _ => return Ok(None),
                }
            }
            let Some(next) = found.next else { break };
            page = Page::after(&next, PAGE);
        }
    }
    Ok(Some(blocked))
}

async fn parked(store: &SharedStore, definition: &Definition) -> Result<u64, ReactionsError> {
    let (mut count, mut page) = (0, Page::first(PAGE));
    loop {
        let found = store.documents(&keys::all_parked(&definition.name), page).await?;
        count += found.rows.len() as u64;
        let Some(next) = found.next else { return Ok(count) };
        page = Page::after(&next, PAGE);
    }
}
