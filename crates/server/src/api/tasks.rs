//! What operators ask of tasks. The engine of schedules does it in batches of its own, so the audit event is written before.

use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use tidelock::schedule::Schedules;
use tidelock::store::SharedStore;

use crate::audit::Told;
use crate::request::{Answered, Body, Named, json as answer};
use crate::shared::App;
use crate::token::Caller;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// Asks for a run of a task now.
pub(crate) async fn run(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(task): Named,
    Body(Nothing {}): Body<Nothing>,
) -> Answered {
    Told::new(&caller, "run", &task, json!({})).asked(&app).await?;
    let fire = Schedules::new(SharedStore::clone(&app.store)).run_now(&task).await?;
    answer(StatusCode::ACCEPTED, &json!({"task": task, "fire": fire}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reason {
    reason: String,
}

/// Lets a task rest.
pub(crate) async fn pause(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(task): Named,
    Body(Reason { reason }): Body<Reason>,
) -> Answered {
    Told::new(&caller, "pause", &task, json!({"reason": reason})).asked(&app).await?;
    Schedules::new(SharedStore::clone(&app.store)).pause(&task, &reason).await?;
    answer(StatusCode::ACCEPTED, &json!({"task": task}))
}

/// Lets a task go on.
pub(crate) async fn resume(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(task): Named,
    Body(Nothing {}): Body<Nothing>,
) -> Answered {
    Told::new(&caller, "resume", &task, json!({})).asked(&app).await?;
    Schedules::new(SharedStore::clone(&app.store)).resume(&task).await?;
    answer(StatusCode::ACCEPTED, &json!({"task": task}))
}
