//! Rows of work, and the operator actions on them.

mod batch;

pub(crate) use batch::{Operate, Operated, batch, confirmed};

use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidelock_core::clock::Timestamp;
use tidelock_core::key::Key;
use tidelock_core::reactions::reaction_row;
use tidelock_core::store::{Pattern, WorkFilter, WorkRow};

use crate::app_state::App;
use crate::error::ServerError;
use crate::openapi::shape;
use crate::problem::Problem;
use crate::request::{Answered, PathName, QueryParams, ok, page};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Restricts the result to this row, if it exists.
    key: Option<Key>,
    queue: Option<String>,
    pattern: Option<String>,
    blocked: Option<bool>,
    leased: Option<bool>,
    cursor: Option<String>,
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
    /// The total number of blocked rows that match, if only blocked rows were requested.
    blocked: Option<u64>,
    rows: Vec<Shown>,
    #[schemars(with = "Option<shape::Key>")]
    next: Option<Key>,
    #[schemars(with = "shape::Timestamp")]
    now: Timestamp,
}

fn filter(asked: &ListQuery) -> Result<WorkFilter, Problem> {
    Ok(WorkFilter {
        queue: asked.queue.as_deref().map(str::parse).transpose()?,
        pattern: asked.pattern.as_deref().map(Pattern::new).transpose()?,
        blocked: asked.blocked,
        leased: asked.leased,
    })
}

/// Returns one page of rows.
pub(crate) async fn list(State(app): State<App>, QueryParams(asked): QueryParams<ListQuery>) -> Answered {
    let now = app.store().now().await?;
    if let Some(key) = &asked.key {
        let rows = app.store().work(key).await?.into_iter().map(Shown::of).collect();
        return ok(&Listing { blocked: None, rows, next: None, now });
    }
    let filter = filter(&asked)?;
    let found = app.store().works(&filter, page(asked.cursor.as_deref(), asked.limit)?).await?;
    let blocked = match filter.blocked {
        Some(true) => Some(app.store().count_work(&filter).await?),
        _ => None,
    };
    ok(&Listing { blocked, rows: found.rows.into_iter().map(Shown::of).collect(), next: found.next, now })
}

/// Returns a row.
pub(crate) async fn show(State(app): State<App>, name: PathName) -> Answered {
    let key = name.key()?;
    let absent = || ServerError::NotFound { what: "row of work", name: key.to_string() };
    ok(&Shown::of(app.store().work(&key).await?.ok_or_else(absent)?))
}
