//! Blocked work: listing and unblocking.

use axum::Extension;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidelock_core::key::Key;
use tidelock_core::store::{Batch, Operation, Page, Pattern, Selection, WorkFilter, WorkRow, limits};

use crate::api::rows::{Operated, confirmed, named};
use crate::audit::{self, Told};
use crate::openapi::shape;
use crate::problem::Problem;
use crate::request::{Answered, Asked, Body, ok, page, unreadable};
use crate::shared::{App, Shared};
use crate::token::Caller;

/// The number of rows in a read.
const PAGE: usize = 5_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlockedQuery {
    lane: Option<String>,
    like: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Blocked {
    /// The total number of blocked rows that match.
    blocked: u64,
    #[schemars(with = "Vec<shape::WorkRow>")]
    rows: Vec<WorkRow>,
    #[schemars(with = "Option<shape::Key>")]
    next: Option<Key>,
}

/// Returns one page of blocked rows.
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

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unblock {
    /// Restricts the selection to these rows. `lane` and `like` apply as well.
    #[schemars(with = "Option<Vec<shape::Key>>", length(max = 1_000))]
    keys: Option<Vec<Key>>,
    lane: Option<String>,
    like: Option<String>,
    /// Returns only the number of selected rows, and changes nothing.
    #[serde(default)]
    dry_run: bool,
    /// The number of rows that the caller expects to change.
    confirm: Option<u64>,
}

/// Unblocks rows. The batch names exactly the rows that were counted, so the store does not select them a second time.
pub(crate) async fn unblock(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Body(body): Body<Unblock>,
) -> Answered {
    let filter = filter(body.lane.as_deref(), body.like.as_deref())?;
    let meant = match body.keys {
        Some(keys) => {
            let rows = named(&app, keys).await?;
            rows.into_iter().filter(|row| filter.matches(row)).map(|row| row.key).collect()
        }
        None => meant(&app, &filter).await?,
    };
    let found = meant.len() as u64;
    if body.dry_run {
        return ok(&Operated { would: found, changed: 0 });
    }
    confirmed(body.confirm, found)?;
    let (lane, like) = (body.lane.as_deref(), body.like.as_deref());
    let details = json!({"lane": lane, "like": like, "meant": audit::keys(meant.iter().cloned())});
    let told = Told::new(&caller, "unblock", "work", details);
    let batch = Batch::new().operate(Selection::Keys(meant), Operation::Unblock);
    let receipt = app.store().apply(told.with(batch)?).await?;
    ok(&Operated { would: found, changed: receipt.operated.first().copied().unwrap_or_default() })
}

/// Returns the keys of all rows that match. Fails if there are more than one batch may change.
async fn meant(app: &Shared, filter: &WorkFilter) -> Result<Vec<Key>, Problem> {
    let (mut meant, mut page) = (Vec::new(), Page::first(PAGE));
    loop {
        let found = app.store().works(filter, page).await?;
        meant.extend(found.rows.into_iter().map(|row| row.key));
        if meant.len() > limits::OPERATE_ROWS {
            let most = limits::OPERATE_ROWS;
            let reason =
                format!("more than {most} rows are meant, the most at once; narrow them with lane or like");
            return Err(unreadable("the selection", &reason).into());
        }
        let Some(next) = found.next else { return Ok(meant) };
        page = Page::after(&next, PAGE);
    }
}
