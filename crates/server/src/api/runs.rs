//! Runs of workflows. The server drives none: that is for the workers, which have the code.
//!
//! What is asked of a run is done by the engine of runs, which commits the audit event together with its own change.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidelock::id::Priority;
use tidelock::key::{Arg, Key};
use tidelock::payload::Payload;
use tidelock::workflow::{RunFilter, RunView, Status, StepView, Workflow, WorkflowError};

use crate::audit::Told;
use crate::error::ServerError;
use crate::guard::LONGEST_WAIT;
use crate::request::{Answered, Asked, Body, Named, json as answer, ok, rows, traceparent, unreadable};
use crate::shared::App;
use crate::token::Caller;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    workflow: Option<String>,
    status: Option<Status>,
    prefix: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Listing {
    runs: Vec<RunView>,
    /// The run to go on after; there may be more.
    next: Option<String>,
}

/// One page of runs.
pub(crate) async fn list(State(app): State<App>, Asked(asked): Asked<ListQuery>) -> Answered {
    let ListQuery { workflow, status, prefix, after, limit } = asked;
    let after = after.map(|after| Key::new("tidelock.run", [after])).transpose()?;
    let filter = RunFilter { workflow, status, prefix, ..RunFilter::default() };
    let found = app.runs.list(&filter, after.as_ref(), rows(limit)?).await?;
    let next = found.next.and_then(|key| match key.args().into_iter().next() {
        Some(Arg::Str(run)) => Some(run),
        _ => None,
    });
    ok(&Listing { runs: found.runs, next })
}

/// A run.
pub(crate) async fn show(State(app): State<App>, Named(run): Named) -> Answered {
    ok(&app.runs.show(&run).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepsQuery {
    from: Option<usize>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Steps<'a> {
    run: &'a str,
    steps: &'a [StepView],
    /// How many there are.
    count: usize,
    /// The number of the first one of the next page; there are more.
    next: Option<usize>,
}

/// What a run has asked for: all of it, or a page.
pub(crate) async fn steps(
    State(app): State<App>,
    Named(run): Named,
    Asked(asked): Asked<StepsQuery>,
) -> Answered {
    let steps = app.runs.steps(&run).await?;
    let from = asked.from.unwrap_or(0).min(steps.len());
    // Whoever names neither a beginning nor a limit wants all.
    let limit = match (asked.from, asked.limit) {
        (None, None) => steps.len(),
        (_, limit) => rows(limit)?,
    };
    let page = steps.get(from..).unwrap_or_default();
    let page = page.get(..limit).unwrap_or(page);
    let end = from + page.len();
    ok(&Steps { run: &run, steps: page, count: steps.len(), next: (end < steps.len()).then_some(end) })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Start {
    workflow: String,
    id: Option<String>,
    queue: Option<String>,
    priority: Option<u8>,
    #[serde(default)]
    input: Payload,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

/// Starts a run. Started again with the same id and input, it is the same run.
pub(crate) async fn start(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Body(body): Body<Start>,
) -> Answered {
    let id = body.id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let told = Told::new(&caller, "start", &id, json!({"workflow": body.workflow}));
    let runs = app.runs.beside(told.batch()?);
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
    answer(StatusCode::CREATED, &json!({"run": handle.run(), "workflow": body.workflow}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Signal {
    name: String,
    id: Option<String>,
    #[serde(default)]
    value: Payload,
}

/// Sends a signal. With an id, it is heard once, however often it is sent.
pub(crate) async fn signal(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(run): Named,
    Body(body): Body<Signal>,
) -> Answered {
    let Signal { name, id, value } = body;
    let told = Told::new(&caller, "signal", &run, json!({"name": name, "id": id}));
    app.runs.beside(told.batch()?).signal_named(&run, &name, id.as_deref(), value).await?;
    accepted(&run)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reason {
    reason: String,
}

/// Asks a run to stop.
pub(crate) async fn cancel(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(run): Named,
    Body(Reason { reason }): Body<Reason>,
) -> Answered {
    let told = Told::new(&caller, "cancel", &run, json!({"reason": reason}));
    app.runs.beside(told.batch()?).cancel(&run, &reason).await?;
    accepted(&run)
}

/// Lets a run go on.
pub(crate) async fn resume(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(run): Named,
    Body(Reason { reason }): Body<Reason>,
) -> Answered {
    let told = Told::new(&caller, "resume", &run, json!({"reason": reason}));
    app.runs.beside(told.batch()?).resume(&run, &reason).await?;
    accepted(&run)
}

fn accepted(run: &str) -> Answered {
    answer(StatusCode::ACCEPTED, &json!({"run": run}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResultQuery {
    wait: Option<String>,
}

#[derive(Serialize)]
struct Ended {
    run: String,
    status: Status,
    output: Option<Payload>,
    failure: Option<String>,
}

/// Any workflow: the handle of a run does not look at it.
const ANY: Workflow<Value, Value> = Workflow::new("any");

/// How a run ended, if it does so in time.
pub(crate) async fn result(
    State(app): State<App>,
    Named(run): Named,
    Asked(asked): Asked<ResultQuery>,
) -> Answered {
    let wait = asked.wait.as_deref().map_or(Ok(Duration::ZERO), span)?;
    if !wait.is_zero() {
        let mut ending = app.ending.subscribe();
        let handle = app.runs.handle(ANY, &run);
        let ended = tokio::select! {
            ended = tokio::time::timeout(wait, handle.result()) => ended,
            _ = ending.wait_for(|ending| *ending) => Ok(Ok(Value::Null)),
        };
        match ended {
            // The run itself says below how it ended, with all digits of what it brought.
            Err(_) | Ok(Ok(_) | Err(WorkflowError::Failed { .. } | WorkflowError::Cancelled { .. })) => {}
            Ok(Err(error)) => return Err(error.into()),
        }
    }
    let RunView { run, status, output, failure, .. } = app.runs.show(&run).await?;
    let over = if status.is_over() { StatusCode::OK } else { StatusCode::ACCEPTED };
    answer(over, &Ended { run, status, output, failure })
}

/// `30s`, `500ms`, or a number of seconds.
fn span(text: &str) -> Result<Duration, ServerError> {
    let wrong = || unreadable("wait", "it is no span like 30s or 500ms, or longer than 30s");
    let span = match text.strip_suffix("ms") {
        Some(millis) => Duration::from_millis(millis.parse().map_err(|_| wrong())?),
        None => Duration::from_secs(text.strip_suffix('s').unwrap_or(text).parse().map_err(|_| wrong())?),
    };
    if span > LONGEST_WAIT { Err(wrong()) } else { Ok(span) }
}
