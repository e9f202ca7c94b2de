//! Work rows in any state, and the operator actions on them.

use std::collections::BTreeSet;

use axum::Extension;
use axum::extract::State;
use futures_util::future::try_join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidelock_core::clock::Timestamp;
use tidelock_core::key::Key;
use tidelock_core::reactions::{forget_put_off, reaction_row};
use tidelock_core::store::{Batch, Operation, Pattern, Selection, WorkFilter, WorkRow};

use crate::audit::{self, Told};
use crate::error::ServerError;
use crate::openapi::shape;
use crate::problem::Problem;
use crate::request::{Answered, Asked, Body, Named, PAGE_ROWS, ok, page, unreadable};
use crate::shared::{App, Shared};
use crate::token::Caller;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Restricts the result to this row, if it exists.
    key: Option<Key>,
    lane: Option<String>,
    like: Option<String>,
    blocked: Option<bool>,
    leased: Option<bool>,
    after: Option<String>,
    limit: Option<usize>,
}

/// A work row, and the reaction that it belongs to.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Row")]
pub(crate) struct Shown {
    #[serde(flatten)]
    #[schemars(with = "shape::WorkRow")]
    row: WorkRow,
    /// The reaction that the row belongs to, if any. `reaction_key` is the key within the reaction.
    reaction: Option<String>,
    #[schemars(with = "Option<shape::Key>")]
    reaction_key: Option<Key>,
}

impl Shown {
    fn of(row: WorkRow) -> Self {
        let (reaction, reaction_key) = reaction_row(&row.key).unzip();
        Self { row, reaction, reaction_key }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Rows")]
pub(crate) struct Listing {
    rows: Vec<Shown>,
    #[schemars(with = "Option<shape::Key>")]
    next: Option<Key>,
    #[schemars(with = "shape::Timestamp")]
    now: Timestamp,
}

fn filter(asked: &ListQuery) -> Result<WorkFilter, Problem> {
    Ok(WorkFilter {
        lane: asked.lane.as_deref().map(str::parse).transpose()?,
        pattern: asked.like.as_deref().map(Pattern::new).transpose()?,
        blocked: asked.blocked,
        leased: asked.leased,
    })
}

/// Returns one page of rows.
pub(crate) async fn list(State(app): State<App>, Asked(asked): Asked<ListQuery>) -> Answered {
    let now = app.store().now().await?;
    if let Some(key) = &asked.key {
        let rows = app.store().work(key).await?.into_iter().map(Shown::of).collect();
        return ok(&Listing { rows, next: None, now });
    }
    let filter = filter(&asked)?;
    let found = app.store().works(&filter, page(asked.after.as_deref(), asked.limit)?).await?;
    ok(&Listing { rows: found.rows.into_iter().map(Shown::of).collect(), next: found.next, now })
}

/// Returns a row.
pub(crate) async fn show(State(app): State<App>, name: Named) -> Answered {
    let key = name.key()?;
    let absent = || ServerError::NotFound { what: "row of work", name: key.to_string() };
    ok(&Shown::of(app.store().work(&key).await?.ok_or_else(absent)?))
}

/// The number of rows that are read concurrently.
const READ_AT_ONCE: usize = 16;

/// An operator action on named rows.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RowVerb")]
pub(crate) enum Verb {
    Unblock,
    Retry,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OperateRows")]
pub(crate) struct Operate {
    verb: Verb,
    #[schemars(with = "Vec<shape::Key>", length(max = 1_000))]
    keys: Vec<Key>,
    /// Returns only the number of affected rows, and changes nothing.
    #[serde(default)]
    dry_run: bool,
    /// The number of rows that the caller expects to change.
    confirm: Option<u64>,
}

/// The number of selected rows or keys (`would`), and the number of changed ones.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Operated {
    pub(crate) would: u64,
    pub(crate) changed: u64,
}

/// Unblocks rows, or makes them due at once. Reset and park exist only for reactions, which define their meaning.
pub(crate) async fn operate(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Body(body): Body<Operate>,
) -> Answered {
    if matches!(body.verb, Verb::Retry) {
        body.keys.iter().try_for_each(may_be_retried)?;
    }
    let mut meant = named(&app, body.keys).await?;
    meant.retain(|row| counts(body.verb, row));
    let found = meant.len() as u64;
    if body.dry_run {
        return ok(&Operated { would: found, changed: 0 });
    }
    confirmed(body.confirm, found)?;
    let (did, operation) = match body.verb {
        Verb::Unblock => ("unblock", Operation::Unblock),
        Verb::Retry => ("retry", Operation::RetryNow),
    };
    let keys: Vec<Key> = meant.iter().map(|row| row.key.clone()).collect();
    let told = Told::new(&caller, did, "work", json!({"meant": audit::keys(keys.iter().cloned())}));
    let mut batch = Batch::new();
    if operation == Operation::RetryNow {
        let now = app.store().now().await?;
        batch = meant.iter().fold(batch, |batch, row| forget_put_off(batch, row, now));
    }
    let batch = batch.operate(Selection::Keys(keys), operation);
    let receipt = app.store().apply(told.with(batch)?).await?;
    ok(&Operated { would: found, changed: receipt.operated.first().copied().unwrap_or_default() })
}

/// Returns the existing rows with these keys, without duplicates.
pub(crate) async fn named(app: &Shared, keys: Vec<Key>) -> Result<Vec<WorkRow>, Problem> {
    if keys.len() > PAGE_ROWS {
        return Err(unreadable("keys", &format!("there are more than {PAGE_ROWS}")).into());
    }
    let keys: Vec<Key> = keys.into_iter().collect::<BTreeSet<Key>>().into_iter().collect();
    let mut rows = Vec::new();
    for some in keys.chunks(READ_AT_ONCE) {
        let found = try_join_all(some.iter().map(|key| app.store().work(key))).await?;
        rows.extend(found.into_iter().flatten());
    }
    Ok(rows)
}

/// Rejects internal rows, whose engines define the meaning of a retry. Rows of reactions and outboxes wait like user rows and are allowed.
fn may_be_retried(key: &Key) -> Result<(), ServerError> {
    let route = match key.kind().as_str() {
        "tidelock.run" => "POST /api/v1/runs/{run}/resume",
        "tidelock.task" | "tidelock.fire" => "POST /api/v1/schedules/{task}/run",
        "tidelock.lease" => "DELETE /api/v1/leases/{key}",
        "tidelock.router" => "POST /api/v1/reactions/{reaction}/operate",
        "tidelock.reaction" | "tidelock.replay" | "tidelock.outbox" => return Ok(()),
        ours if ours.starts_with("tidelock.") => "the verbs of its engine",
        _ => return Ok(()),
    };
    Err(unreadable("keys", &format!("{key} is a row of Tidelock's own; use {route}")))
}

/// Returns whether the action changes the row.
fn counts(verb: Verb, row: &WorkRow) -> bool {
    match verb {
        Verb::Unblock => row.blocked.is_some(),
        Verb::Retry => row.blocked.is_none() && row.lease.is_none(),
    }
}

/// Checks that the caller has confirmed the number of selected rows.
pub(crate) fn confirmed(confirm: Option<u64>, found: u64) -> Result<(), ServerError> {
    match confirm {
        Some(confirmed) if confirmed == found => Ok(()),
        Some(confirmed) => Err(ServerError::OtherCount { confirmed, found }),
        None => Err(unreadable("confirm", "it is not given; ask with dry_run how many are meant")),
    }
}
