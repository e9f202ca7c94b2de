//! Liveness and readiness checks.

use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use tidelock_core::id::Position;
use tidelock_core::store::{Direction, LogQuery};

use crate::app_state::{App, AppState};
use crate::error::ServerError;
use crate::problem::Problem;
use crate::request::{Answered, ok};
use crate::sanitize::escaped;

/// Answers the liveness check.
pub(crate) async fn lives() -> &'static str {
    "ok\n"
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Ready {
    ready: bool,
    backend: String,
    schema: u32,
    engine: String,
    /// The position of the last event.
    #[schemars(with = "Option<u64>")]
    position: Option<Position>,
}

/// Checks that the store responds, its log is readable, its schema version is unchanged, and all probes of the program succeed.
pub(crate) async fn ready(State(app): State<App>) -> Answered {
    let info = app.store().info().await?;
    let position = head(&app).await?;
    let known = *app.schema.get_or_init(|| info.schema);
    if info.schema != known {
        let reason =
            format!("its schema is {} by now, and this program works with {known}; update it", info.schema);
        return Err(ServerError::NotReady { what: "store".to_owned(), reason }.into());
    }
    if let Some((what, reason)) = app.inspected.failing() {
        return Err(ServerError::NotReady { what, reason: escaped(&reason) }.into());
    }
    ok(&Ready { ready: true, backend: info.backend, schema: info.schema, engine: info.engine, position })
}

/// The position of the last event.
pub(crate) async fn head(app: &AppState) -> Result<Option<Position>, Problem> {
    let last = LogQuery { direction: Direction::Backward, ..LogQuery::all(1) };
    Ok(app.store().read_log(last).await?.events.first().map(|event| event.position))
}
