//! Work that is stuck, and how it goes on.

use axum::Extension;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidelock::key::Key;
use tidelock::store::{Batch, Operation, Page, Pattern, Selection, WorkFilter, WorkRow};

use crate::audit::Told;
use crate::error::ServerError;
use crate::problem::Problem;
use crate::request::{Answered, Asked, Body, PAGE_ROWS, ok, page};
use crate::shared::{App, Shared};
use crate::token::Caller;

/// How many rows are unblocked at once.
const MOST: usize = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlockedQuery {
    lane: Option<String>,
    like: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Blocked {
    /// How many are blocked in all.
    blocked: u64,
    rows: Vec<WorkRow>,
    next: Option<Key>,
}

/// One page of what is blocked.
pub(crate) async fn blocked(State(app): State<App>, Asked(asked): Asked<BlockedQuery>) -> Answered {
    let filter = filter(asked.lane.as_deref(), asked.like.as_deref())?;
    let found = app.store().works(&filter, page(asked.after.as_deref(), asked.limit)?).await?;
    let blocked = app.store().count_work(&filter).await?;
    ok(&Blocked { blocked, rows: found.rows, next: found.next })
}

fn filter(lane: Option<&str>, like: Option<&str>) -> Result<WorkFilter, Problem> {
    let lane = lane.map(str::parse).transpose()?;
    let pattern = like.map(Pattern::new).transpose()?;
    Ok(WorkFilter { lane, pattern, blocked: Some(true), leased: None })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unblock {
    keys: Option<Vec<Key>>,
    lane: Option<String>,
    like: Option<String>,
    /// How many rows the caller means.
    confirm: u64,
}

/// Lets blocked rows go on. Those that are counted are those that are changed: they are named to the store, and not looked for
/// again.
pub(crate) async fn unblock(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Body(body): Body<Unblock>,
) -> Answered {
    let filter = filter(body.lane.as_deref(), body.like.as_deref())?;
    let mut meant = meant(&app, &filter).await?;
    if let Some(keys) = &body.keys {
        meant.retain(|key| keys.contains(key));
    }
    let found = meant.len() as u64;
    if found != body.confirm {
        return Err(ServerError::OtherCount { confirmed: body.confirm, found }.into());
    }
    let (lane, like) = (body.lane.as_deref(), body.like.as_deref());
    let details = json!({"rows": found, "lane": lane, "like": like, "first": meant.first()});
    let told = Told::new(&caller, "unblock", "work", details);
    let batch = Batch::new().operate(Selection::Keys(meant), Operation::Unblock);
    let receipt = app.store().apply(told.with(batch)?).await?;
    ok(&json!({"changed": receipt.operated.first().copied().unwrap_or_default()}))
}

async fn meant(app: &Shared, filter: &WorkFilter) -> Result<Vec<Key>, Problem> {
    let (mut meant, mut page) = (Vec::new(), Page::first(PAGE_ROWS));
    loop {
        let found = app.store().works(filter, page).await?;
        meant.extend(found.rows.into_iter().map(|row| row.key));
        match found.next {
            Some(next) if meant.len() < MOST => page = Page::after(&next, PAGE_ROWS),
            _ => return Ok(meant),
        }
    }
}
