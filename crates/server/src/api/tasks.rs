//! Operator actions on scheduled tasks. The schedule engine commits the audit event together with its own change.

use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidelock_core::error::InvalidInput;
use tidelock_core::schedule::Schedules;
use tidelock_core::store::SharedStore;

use crate::api::runs::Reason;
use crate::audit::Told;
use crate::request::{Answered, Body, Named, json as answer};
use crate::shared::{App, Shared};
use crate::token::Caller;

/// Returns the schedule engine for one change, which commits this audit event with it.
fn tasks(app: &Shared, told: &Told<'_>) -> Result<Schedules, InvalidInput> {
    Ok(Schedules::new(SharedStore::clone(&app.store)).beside(told.batch()?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

#[derive(Serialize, JsonSchema)]
pub(crate) struct TaskRun {
    task: String,
    fire: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct TaskName {
    task: String,
}

/// Triggers a run of a task now.
pub(crate) async fn run(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(task): Named,
    Body(Nothing {}): Body<Nothing>,
) -> Answered {
    let told = Told::new(&caller, "run", &task, json!({}));
    let fire = tasks(&app, &told)?.run_now(&task).await?;
    answer(StatusCode::ACCEPTED, &TaskRun { task, fire })
}

/// Pauses a task.
pub(crate) async fn pause(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(task): Named,
    Body(Reason { reason }): Body<Reason>,
) -> Answered {
    let told = Told::new(&caller, "pause", &task, json!({"reason": reason}));
    tasks(&app, &told)?.pause(&task, &reason).await?;
    answer(StatusCode::ACCEPTED, &TaskName { task })
}

/// Resumes a task.
pub(crate) async fn resume(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(task): Named,
    Body(Nothing {}): Body<Nothing>,
) -> Answered {
    let told = Told::new(&caller, "resume", &task, json!({}));
    tasks(&app, &told)?.resume(&task).await?;
    answer(StatusCode::ACCEPTED, &TaskName { task })
}
