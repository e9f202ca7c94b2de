//! Schemas of the library's types, as they are serialised. The server's own types derive theirs.

#![allow(dead_code, reason = "only the schemas are used")]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::{Map, Value};

/// An object whose fields are those of the library's type.
pub(crate) type Object = Map<String, Value>;

/// A key, such as `order("o-1", 7)`.
#[derive(JsonSchema)]
pub(crate) struct Key(String);

/// An instant in RFC 3339, UTC.
#[derive(JsonSchema)]
pub(crate) struct Timestamp(#[schemars(extend("format" = "date-time"))] String);

/// The id of an event.
#[derive(JsonSchema)]
pub(crate) struct Id(#[schemars(extend("format" = "uuid"))] String);

/// A server-sent event. In the log, the data is an event and the id its position; the first one has an id and no data. A change
/// notification contains the last position of the log and the clock of the store.
#[derive(JsonSchema)]
pub(crate) struct ServerSentEvent {
    #[schemars(default)]
    id: String,
    #[schemars(default)]
    event: String,
    #[schemars(default)]
    data: String,
}

#[derive(JsonSchema)]
pub(crate) struct Stream {
    key: Key,
    head: Option<u64>,
    first: Option<u64>,
    closed_at: Option<Timestamp>,
}

/// A condition on a stream that names no version.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExpectedState {
    Any,
    Absent,
    Exists,
}

#[derive(JsonSchema)]
pub(crate) struct Event {
    position: u64,
    stream: Key,
    version: u64,
    id: Id,
    r#type: String,
    recorded_at: Timestamp,
    payload: Value,
    meta: Value,
    correlation: Option<String>,
}

#[derive(JsonSchema)]
pub(crate) struct Appended {
    stream: Key,
    first_version: u64,
    last_version: u64,
    first_position: u64,
    last_position: u64,
}

#[derive(JsonSchema)]
pub(crate) struct Record {
    key: Key,
    version: u64,
    value: Value,
    updated_at: Timestamp,
    expires_at: Option<Timestamp>,
}

#[derive(JsonSchema)]
pub(crate) struct Holder {
    owner: String,
    fence: u64,
    leased_at: Timestamp,
    expires_at: Timestamp,
}

#[derive(JsonSchema)]
pub(crate) struct Waiter {
    owner: String,
    since: Timestamp,
}

#[derive(JsonSchema)]
pub(crate) struct Lease {
    key: Key,
    holder: Option<Holder>,
    now: Timestamp,
    takeovers: u32,
    note: Option<String>,
    stolen: Option<Object>,
    waiters: Vec<Waiter>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Running,
    Completed,
    Failed,
    Cancelled,
}

#[derive(JsonSchema)]
pub(crate) struct Run {
    run: String,
    workflow: String,
    status: Status,
    doing: String,
    queue: String,
    priority: u8,
    generation: u32,
    input: Value,
    output: Value,
    failure: Option<String>,
    parent: Option<String>,
    signals: Vec<String>,
    attributes: BTreeMap<String, Value>,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
    changed_at: Timestamp,
    suspension: Option<Suspension>,
}

/// Why a suspended run could not be continued, as data.
#[derive(JsonSchema)]
pub(crate) struct Suspension {
    kind: SuspensionKind,
    code: Option<String>,
    detail: Option<String>,
    workflow: Option<String>,
    known: Option<Vec<String>>,
    claims: Option<u32>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SuspensionKind {
    UnfitCode,
    UnknownWorkflow,
    UnfitInput,
    UnreadableJournal,
    Rejected,
    WorkersDied,
    Interrupted,
}

#[derive(JsonSchema)]
pub(crate) struct Step {
    name: String,
    kind: String,
    state: String,
    attempts: Vec<Attempt>,
    value: Value,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
    recorded_at: Timestamp,
}

#[derive(JsonSchema)]
pub(crate) struct Attempt {
    started_at: Timestamp,
    ended_at: Timestamp,
    error: Option<String>,
}

#[derive(JsonSchema)]
pub(crate) struct WorkRow {
    key: Key,
    queue: String,
    attempts: u32,
    takeovers: u32,
    due_at: Option<Timestamp>,
    wake_at: Option<Timestamp>,
    follows: Option<Key>,
    last_error: Option<String>,
    blocked: Option<Object>,
    lease: Option<Holder>,
}
