//! Event streams and their events.

use axum::Extension;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidelock_core::clock::Timestamp;
use tidelock_core::events::EventJson;
use tidelock_core::id::{EventId, EventType, StreamVersion};
use tidelock_core::key::Key;
use tidelock_core::key::reserved::{check_event_type, check_stream};
use tidelock_core::payload::Payload;
use tidelock_core::store::{Appended, Expect, NewEvent, StreamInfo, StreamQuery};

use super::leases::{Shown, under, with_lease};
use crate::app_state::App;
use crate::audit::AuditEntry;
use crate::error::ServerError;
use crate::openapi::shape;
use crate::problem::Problem;
use crate::request::{
    Answered, Body, PathName, QueryParams, json as answer, ok, page, range, rows, traceparent, unreadable,
};
use crate::token::Caller;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    prefix: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Streams")]
pub(crate) struct Listing {
    #[schemars(with = "Vec<shape::Stream>")]
    streams: Vec<StreamInfo>,
    #[schemars(with = "Option<shape::Key>")]
    next: Option<Key>,
}

/// Returns one page of streams.
pub(crate) async fn list(State(app): State<App>, QueryParams(asked): QueryParams<ListQuery>) -> Answered {
    let prefix = range(asked.prefix.as_deref())?;
    let found = app.store().streams(&prefix, page(asked.cursor.as_deref(), asked.limit)?).await?;
    ok(&Listing { streams: found.rows, next: found.next })
}

/// Returns a stream.
pub(crate) async fn show(State(app): State<App>, name: PathName) -> Answered {
    let key = name.key()?;
    let found = app.store().stream(&key).await?;
    ok(&found.ok_or_else(|| absent(&key))?)
}

fn absent(key: &Key) -> ServerError {
    ServerError::NotFound { what: "stream", name: key.to_string() }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    from: Option<u64>,
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Events<'a> {
    #[schemars(with = "Vec<shape::Event>")]
    events: Vec<EventJson<'a>>,
    /// The value of `from` for the next page.
    #[schemars(with = "Option<u64>")]
    next: Option<StreamVersion>,
    /// Whether the page reaches the current end of the stream.
    end: bool,
}

/// Returns one page of a stream's events.
pub(crate) async fn events(
    State(app): State<App>,
    name: PathName,
    QueryParams(asked): QueryParams<EventsQuery>,
) -> Answered {
    let key = name.key()?;
    let from = asked.from.map(StreamVersion);
    let query = StreamQuery { from, ..StreamQuery::forward(&key, rows(asked.limit)?) };
    let found = app.store().read_stream(query).await?;
    if found.events.is_empty() && app.store().stream(&key).await?.is_none() {
        return Err(absent(&key).into());
    }
    let next = found.events.last().map(|event| event.version.next()).or(from);
    ok(&Events { events: found.events.iter().map(EventJson::of).collect(), next, end: found.end })
}

/// The expected state of the stream, for optimistic concurrency: a version, or `any`, `absent` or `exists`.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Expected {
    Version(u64),
    Word(#[schemars(with = "shape::ExpectedState")] String),
}

impl Expected {
    fn condition(&self) -> Result<Expect<StreamVersion>, ServerError> {
        match self {
            Self::Version(version) => Ok(Expect::Exact(StreamVersion(*version))),
            Self::Word(word) => match word.as_str() {
                "any" => Ok(Expect::Any),
                "absent" => Ok(Expect::Absent),
                "exists" => Ok(Expect::Exists),
                other => {
                    let reason = format!("{other:?} is no version, and not any, absent or exists");
                    Err(unreadable("expected", &reason))
                }
            },
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewEvent")]
pub(crate) struct Said {
    #[schemars(with = "Option<shape::Id>")]
    id: Option<EventId>,
    #[serde(rename = "type")]
    #[schemars(with = "String", length(min = 1))]
    event_type: EventType,
    #[serde(default)]
    #[schemars(with = "serde_json::Value")]
    payload: Payload,
    #[serde(default)]
    #[schemars(with = "serde_json::Value")]
    meta: Payload,
    correlation: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Append {
    expected: Expected,
    #[schemars(length(min = 1))]
    events: Vec<Said>,
    /// The lease that fences the append.
    lease: Option<Shown>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Appended")]
pub(crate) struct Receipt<'a> {
    #[serde(flatten)]
    #[schemars(with = "shape::Appended")]
    appended: &'a Appended,
    #[schemars(with = "Vec<shape::Id>")]
    ids: &'a [EventId],
    #[schemars(with = "shape::Timestamp")]
    recorded_at: Timestamp,
    /// Whether the same events had been appended before, so that this request changed nothing.
    repeated: bool,
}

/// Appends events. A repeated request with the same ids returns the positions of the existing events.
pub(crate) async fn append(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    name: PathName,
    Body(body): Body<Append>,
) -> Answered {
    let key = name.key()?;
    check_stream(&key)?;
    let expect = body.expected.condition()?;
    let chosen = body.events.iter().all(|said| said.id.is_some());
    let trace = traceparent(&headers);
    let made = |said| event(said, trace.as_deref());
    let events = body.events.into_iter().map(made).collect::<Result<Vec<NewEvent>, _>>()?;
    if events.is_empty() {
        return Err(unreadable("events", "there are none").into());
    }
    let ids: Vec<EventId> = events.iter().map(|event| event.id).collect();
    let lease = body.lease.as_ref();
    let details = json!({"expected": format!("{expect:?}"), "events": ids.len(), "first": ids.first()});
    let audit_entry = AuditEntry::new(&caller, "append", &key, with_lease(details, lease));
    let batch = under(lease)?.append(&key, expect, events);
    let batch = if chosen { audit_entry.with_repeatable(batch, &ids)? } else { audit_entry.with(batch)? };
    let receipt = app.store().apply(batch).await?;
    let Some(appended) = receipt.appended.first() else {
        return Err(unreadable("events", "the store returned no positions").into());
    };
    let body = Receipt { appended, ids: &ids, recorded_at: receipt.at, repeated: receipt.repeated };
    answer(StatusCode::CREATED, &body)
}

fn event(said: Said, trace: Option<&str>) -> Result<NewEvent, Problem> {
    let Said { id, event_type, payload, mut meta, correlation } = said;
    check_event_type(&event_type)?;
    // A retry of an event with an id may run in another trace, and must send the same event. Such an event gets no trace.
    if let (None, Some(trace)) = (id, trace)
        && meta == Payload::null()
    {
        meta = Payload::of(&json!({"trace": trace}))?;
    }
    let id = id.unwrap_or_else(EventId::new);
    Ok(NewEvent { id, event_type, payload, meta, correlation })
}
