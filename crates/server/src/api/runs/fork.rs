//! Forks of workflow runs.

use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::app_state::App;
use crate::audit::AuditEntry;
use crate::request::{Answered, Body, PathName, json as answer};
use crate::token::Caller;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fork {
    /// The first step that the new run executes again.
    from: String,
    /// The id of the new run. The default is a new UUID.
    id: Option<String>,
}

/// The new run, and the run that it was forked from.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Forked {
    run: String,
    from: String,
}

/// Starts a run with the results of another run up to a step.
pub(crate) async fn fork(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathName(run): PathName,
    Body(Fork { from, id }): Body<Fork>,
) -> Answered {
    let id = id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let audit_entry = AuditEntry::new(&caller, "fork", &run, json!({"from": from, "new": id}));
    let new = app.runs.with_batch(audit_entry.batch()?).fork(&run, &from, &id).await?;
    answer(StatusCode::CREATED, &Forked { run: new.run().to_owned(), from: run })
}
