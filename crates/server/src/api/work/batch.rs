//! Operator actions on many rows of work. The batch names exactly the rows that were counted, so the store does not select them a second
//! time.

use std::collections::BTreeSet;

use axum::Extension;
use axum::extract::State;
use futures_util::future::try_join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidelock_core::key::Key;
use tidelock_core::reactions::clear_backoff;
use tidelock_core::store::{Batch, Operation, Page, Pattern, Selection, WorkFilter, WorkRow, limits};

use crate::app_state::{App, AppState};
use crate::audit::{self, AuditEntry};
use crate::error::ServerError;
use crate::openapi::shape;
use crate::problem::Problem;
use crate::request::{Answered, Body, PAGE_ROWS, ok, unreadable};
use crate::token::Caller;

/// The number of rows in a read.
const PAGE: usize = 5_000;
/// The number of rows that are read concurrently.
const READ_AT_ONCE: usize = 16;

/// An operator action on rows.
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
    /// Restricts the selection to these rows. `queue` and `pattern` apply as well. `retry` requires them; without them, `unblock` selects
    /// all blocked rows that match.
    #[schemars(with = "Option<Vec<shape::Key>>", length(max = 1_000))]
    keys: Option<Vec<Key>>,
    queue: Option<String>,
    pattern: Option<String>,
    /// Returns only the number of selected rows, and changes nothing.
    #[serde(default)]
    dry_run: bool,
    /// The number of rows that the caller expects to change.
    confirm: Option<u64>,
}

/// The number of selected rows or keys that would change, and the number of changed ones.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Operated {
    pub(crate) would_change: u64,
    pub(crate) changed: u64,
}

/// Unblocks rows, or makes them due at once. Reset and park exist only for reactions, which define their meaning.
pub(crate) async fn batch(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Body(body): Body<Operate>,
) -> Answered {
    let rows = selected(&app, &body).await?;
    let found = rows.len() as u64;
    if body.dry_run {
        return ok(&Operated { would_change: found, changed: 0 });
    }
    confirmed(body.confirm, found)?;
    let keys: Vec<Key> = rows.iter().map(|row| row.key.clone()).collect();
    let (queue, pattern) = (body.queue.as_deref(), body.pattern.as_deref());
    let details = json!({"queue": queue, "pattern": pattern, "selected": audit::keys(keys.iter().cloned())});
    let audit_entry = AuditEntry::new(&caller, body.verb.word(), "work", details);
    let mut batch = Batch::new();
    if matches!(body.verb, Verb::Retry) {
        let now = app.store().now().await?;
        batch = rows.iter().fold(batch, |batch, row| clear_backoff(batch, row, now));
    }
    let batch = batch.operate(Selection::Keys(keys), body.verb.operation());
    let receipt = app.store().apply(audit_entry.with(batch)?).await?;
    let changed = receipt.operated.first().copied().unwrap_or_default();
    ok(&Operated { would_change: found, changed })
}

impl Verb {
    const fn word(self) -> &'static str {
        match self {
            Self::Unblock => "unblock",
            Self::Retry => "retry",
        }
    }

    const fn operation(self) -> Operation {
        match self {
            Self::Unblock => Operation::Unblock,
            Self::Retry => Operation::RetryNow,
        }
    }
}

/// Returns the rows that the request selects and that its action changes.
async fn selected(app: &AppState, body: &Operate) -> Result<Vec<WorkRow>, Problem> {
    let filter = WorkFilter {
        queue: body.queue.as_deref().map(str::parse).transpose()?,
        pattern: body.pattern.as_deref().map(Pattern::new).transpose()?,
        ..WorkFilter::default()
    };
    match (&body.keys, body.verb) {
        (Some(keys), verb) => {
            if matches!(verb, Verb::Retry) {
                keys.iter().try_for_each(may_be_retried)?;
            }
            let mut rows = named(app, keys.clone()).await?;
            rows.retain(|row| filter.matches(row) && counts(verb, row));
            Ok(rows)
        }
        (None, Verb::Unblock) => matching(app, &WorkFilter { blocked: Some(true), ..filter }).await,
        (None, Verb::Retry) => Err(unreadable("keys", "a retry names its rows").into()),
    }
}

/// Returns all rows that match. Fails if there are more than one batch may change.
async fn matching(app: &AppState, filter: &WorkFilter) -> Result<Vec<WorkRow>, Problem> {
    let (mut rows, mut page) = (Vec::new(), Page::first(PAGE));
    loop {
        let found = app.store().works(filter, page).await?;
        rows.extend(found.rows);
        if rows.len() > limits::OPERATE_ROWS {
            let most = limits::OPERATE_ROWS;
            let reason =
                format!("more than {most} rows match, the limit of one request; use queue or pattern");
            return Err(unreadable("the selection", &reason).into());
        }
        let Some(next) = found.next else { return Ok(rows) };
        page = Page::after(&next, PAGE);
    }
}

/// Returns the existing rows with these keys, without duplicates.
async fn named(app: &AppState, keys: Vec<Key>) -> Result<Vec<WorkRow>, Problem> {
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
        "tidelock.task" | "tidelock.fire" => "POST /api/v1/schedules/{schedule}/run",
        "tidelock.lease" => "DELETE /api/v1/leases/{key}",
        "tidelock.router" => "POST /api/v1/reactions/{reaction}/keys:batch",
        "tidelock.reaction" | "tidelock.replay" | "tidelock.outbox" => return Ok(()),
        own if own.starts_with("tidelock.") => "the verbs of its engine",
        _ => return Ok(()),
    };
    Err(unreadable("keys", &format!("{key} is an internal row; use {route}")))
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
        None => Err(unreadable("confirm", "it is missing; request the number with dry_run")),
    }
}
