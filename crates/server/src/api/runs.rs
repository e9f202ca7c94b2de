//! Workflow runs. The server executes none of them; only workers have the workflow code.
//!
//! The workflow engine carries out each request and commits the audit event together with its own change.

mod fork;

pub(crate) use fork::{Fork, Forked, fork};

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidelock_core::clock::parse_duration;
use tidelock_core::id::Priority;
use tidelock_core::payload::Payload;
use tidelock_core::workflow::{
    RunCursor, RunFilter, RunPage, RunStatus, RunView, StepView, Workflow, WorkflowError,
};

use crate::app_state::App;
use crate::audit::AuditEntry;
use crate::error::ServerError;
use crate::openapi::shape;
use crate::request::{
    Answered, Body, PathName, QueryParams, json as answer, ok, rows, traceparent, unreadable,
};
use crate::route_policy::LONGEST_WAIT;
use crate::token::Caller;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    workflow: Option<String>,
    status: Option<RunStatus>,
    prefix: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Runs")]
pub(crate) struct Listing {
    #[schemars(with = "Vec<shape::Run>")]
    runs: Vec<RunView>,
    /// The cursor of the next page, which may be empty. `null` on the last page.
    #[schemars(with = "Option<String>")]
    next: Option<RunCursor>,
}

/// Returns one page of runs, newest first.
pub(crate) async fn list(State(app): State<App>, QueryParams(asked): QueryParams<ListQuery>) -> Answered {
    let ListQuery { workflow, status, prefix, cursor, limit } = asked;
    let cursor = cursor.map(|cursor| cursor.parse::<RunCursor>()).transpose()?;
    let filter = RunFilter { workflow, status, prefix, ..RunFilter::default() };
    let RunPage { runs, next } = app.runs.list(&filter, cursor.as_ref(), rows(limit)?).await?;
    ok(&Listing { runs, next })
}

/// Returns a run.
pub(crate) async fn show(State(app): State<App>, PathName(run): PathName) -> Answered {
    ok(&app.runs.show(&run).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepsQuery {
    cursor: Option<usize>,
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Steps<'a> {
    run: &'a str,
    #[schemars(with = "Vec<shape::Step>")]
    steps: &'a [StepView],
    /// The total number of steps.
    count: usize,
    /// The cursor of the next page. `null` on the last page.
    next: Option<usize>,
}

/// Returns the steps of a run: all of them, or one page.
pub(crate) async fn steps(
    State(app): State<App>,
    PathName(run): PathName,
    QueryParams(asked): QueryParams<StepsQuery>,
) -> Answered {
    let steps = app.runs.steps(&run).await?;
    let from = asked.cursor.unwrap_or(0).min(steps.len());
    // Without a start and a limit, the response contains all steps.
    let limit = match (asked.cursor, asked.limit) {
        (None, None) => steps.len(),
        (_, limit) => rows(limit)?,
    };
    let page = steps.get(from..).unwrap_or_default();
    let page = page.get(..limit).unwrap_or(page);
    let end = from + page.len();
    ok(&Steps { run: &run, steps: page, count: steps.len(), next: (end < steps.len()).then_some(end) })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Start {
    #[schemars(length(min = 1))]
    workflow: String,
    id: Option<String>,
    queue: Option<String>,
    priority: Option<u8>,
    #[serde(default)]
    #[schemars(with = "serde_json::Value")]
    input: Payload,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Started {
    run: String,
    workflow: String,
}

/// Starts a run. A repeated start with the same id and input returns the same run.
pub(crate) async fn start(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Body(body): Body<Start>,
) -> Answered {
    let id = body.id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let audit_entry = AuditEntry::new(&caller, "start", &id, json!({"workflow": body.workflow}));
    let runs = app.runs.with_batch(audit_entry.batch()?);
    let mut start = runs.start_named(&body.workflow, body.input).await?.id(id);
    if let Some(trace) = traceparent(&headers) {
        start = start.trace(trace);
    }
    if let Some(queue) = body.queue {
        start = start.queue(queue);
    }
    if let Some(priority) = body.priority {
        start = start.priority(Priority::new(priority)?);
    }
    for (name, value) in body.attributes {
        start = start.attribute(name, value);
    }
    let handle = start.await?;
    answer(StatusCode::CREATED, &Started { run: handle.run().to_owned(), workflow: body.workflow })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Signal {
    #[schemars(length(min = 1))]
    name: String,
    id: Option<String>,
    #[serde(default)]
    #[schemars(with = "serde_json::Value")]
    value: Payload,
}

/// Sends a signal to a run. A signal with an id is delivered once, even if it is sent repeatedly.
pub(crate) async fn signal(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathName(run): PathName,
    Body(body): Body<Signal>,
) -> Answered {
    let Signal { name, id, value } = body;
    let audit_entry = AuditEntry::new(&caller, "signal", &run, json!({"name": name, "id": id}));
    app.runs.with_batch(audit_entry.batch()?).signal_named(&run, &name, id.as_deref(), value).await?;
    accepted(&run)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reason {
    pub(crate) reason: String,
}

/// Requests the cancellation of a run.
pub(crate) async fn cancel(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathName(run): PathName,
    Body(Reason { reason }): Body<Reason>,
) -> Answered {
    let audit_entry = AuditEntry::new(&caller, "cancel", &run, json!({"reason": reason}));
    app.runs.with_batch(audit_entry.batch()?).cancel(&run, &reason).await?;
    accepted(&run)
}

/// Resumes a run that has failed or is suspended, or makes a waiting run due at once.
pub(crate) async fn resume(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathName(run): PathName,
    Body(Reason { reason }): Body<Reason>,
) -> Answered {
    let audit_entry = AuditEntry::new(&caller, "resume", &run, json!({"reason": reason}));
    app.runs.with_batch(audit_entry.batch()?).resume(&run, &reason).await?;
    accepted(&run)
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct RunId {
    run: String,
}

fn accepted(run: &str) -> Answered {
    answer(StatusCode::ACCEPTED, &RunId { run: run.to_owned() })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResultQuery {
    wait: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Result")]
pub(crate) struct Ended {
    run: String,
    #[schemars(with = "shape::Status")]
    status: RunStatus,
    #[schemars(with = "serde_json::Value")]
    output: Option<Payload>,
    failure: Option<String>,
}

/// A placeholder workflow. The handle of a run does not use it.
const ANY: Workflow<Value, Value> = Workflow::new("any");

/// Returns the result of a run. Waits for its end up to the requested time, and returns 202 if the run has not ended.
pub(crate) async fn result(
    State(app): State<App>,
    PathName(run): PathName,
    QueryParams(asked): QueryParams<ResultQuery>,
) -> Answered {
    let wait = asked.wait.as_deref().map_or(Ok(Duration::ZERO), waited)?;
    if !wait.is_zero() {
        let mut ending = app.ending.subscribe();
        let handle = app.runs.handle(ANY, &run);
        let ended = tokio::select! {
            ended = tokio::time::timeout(wait, handle.result()) => ended,
            _ = ending.wait_for(|ending| *ending) => Ok(Ok(Value::Null)),
        };
        match ended {
            // The view of the run below has the result. Its output is unparsed JSON, so numbers keep all their digits.
            Err(_) | Ok(Ok(_) | Err(WorkflowError::Failed { .. } | WorkflowError::Cancelled { .. })) => {}
            Ok(Err(error)) => return Err(error.into()),
        }
    }
    let RunView { run, status, output, failure, .. } = app.runs.show(&run).await?;
    let over = if status.is_over() { StatusCode::OK } else { StatusCode::ACCEPTED };
    answer(over, &Ended { run, status, output, failure })
}

/// Parses the time for which the caller waits, such as `30s` or `500ms`.
fn waited(text: &str) -> Result<Duration, ServerError> {
    let wait = parse_duration(text).map_err(|error| unreadable("wait", &error.to_string()))?;
    if wait > LONGEST_WAIT {
        let reason = format!("{text} is longer than {LONGEST_WAIT:?}; wait again after that");
        return Err(unreadable("wait", &reason));
    }
    Ok(wait)
}
