//! Operator actions on schedules. The schedule engine commits the audit event together with its own change.

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
use crate::app_state::{App, AppState};
use crate::audit::AuditEntry;
use crate::request::{Answered, Body, PathName, json as answer};
use crate::token::Caller;

/// Returns the schedule engine for one change, which commits this audit event with it.
fn schedules(app: &AppState, audit_entry: &AuditEntry<'_>) -> Result<Schedules, InvalidInput> {
    Ok(Schedules::new(SharedStore::clone(&app.store)).with_batch(audit_entry.batch()?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Empty {}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Triggered {
    schedule: String,
    /// The key of the requested tick.
    tick: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ScheduleName {
    schedule: String,
}

/// Triggers a run now.
pub(crate) async fn run(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathName(schedule): PathName,
    Body(Empty {}): Body<Empty>,
) -> Answered {
    let audit_entry = AuditEntry::new(&caller, "run", &schedule, json!({}));
    let tick = schedules(&app, &audit_entry)?.run_now(&schedule).await?;
    answer(StatusCode::ACCEPTED, &Triggered { schedule, tick })
}

/// Pauses a schedule.
pub(crate) async fn pause(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathName(schedule): PathName,
    Body(Reason { reason }): Body<Reason>,
) -> Answered {
    let audit_entry = AuditEntry::new(&caller, "pause", &schedule, json!({"reason": reason}));
    schedules(&app, &audit_entry)?.pause(&schedule, &reason).await?;
    answer(StatusCode::ACCEPTED, &ScheduleName { schedule })
}

/// Resumes a schedule.
pub(crate) async fn resume(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathName(schedule): PathName,
    Body(Empty {}): Body<Empty>,
) -> Answered {
    let audit_entry = AuditEntry::new(&caller, "resume", &schedule, json!({}));
    schedules(&app, &audit_entry)?.resume(&schedule).await?;
    answer(StatusCode::ACCEPTED, &ScheduleName { schedule })
}
