//! Documents, written with optimistic concurrency. A write names the version that it replaces, so that it overwrites no change of another
//! writer. If the document has a history, the write is recorded there.

mod history;

pub(crate) use history::{At, Conflicts, Listing as History, at, conflicts, list as history};

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidelock_core::clock::{Due, Timestamp};
use tidelock_core::id::DocVersion;
use tidelock_core::key::Key;
use tidelock_core::key::reserved::check_document;
use tidelock_core::payload::Payload;
use tidelock_core::state::{HistoryChange, history_batch, history_key};
use tidelock_core::store::{Batch, DocumentFound, Expect, Refusal, Store, StoreErrorKind, StoredDocument};

use super::leases::{Shown, ShownQuery, under, with_lease};
use crate::app_state::App;
use crate::audit::AuditEntry;
use crate::error::ServerError;
use crate::openapi::shape;
use crate::problem::Problem;
use crate::request::{Answered, Body, PathName, QueryParams, header_text, ok, page, range, unreadable};
use crate::token::Caller;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    prefix: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RecordLine")]
pub(crate) struct Line {
    #[schemars(with = "shape::Key")]
    key: Key,
    #[schemars(with = "u64")]
    version: DocVersion,
    /// The length of the value as JSON text, in bytes.
    size: usize,
    #[schemars(with = "shape::Timestamp")]
    updated_at: Timestamp,
    #[schemars(with = "Option<shape::Timestamp>")]
    expires_at: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Records")]
pub(crate) struct Listing {
    records: Vec<Line>,
    #[schemars(with = "Option<shape::Key>")]
    next: Option<Key>,
}

/// Returns one page of documents.
pub(crate) async fn list(State(app): State<App>, QueryParams(asked): QueryParams<ListQuery>) -> Answered {
    let prefix = range(asked.prefix.as_deref())?;
    let found = app.store().documents(&prefix, page(asked.cursor.as_deref(), asked.limit)?).await?;
    let line = |document: StoredDocument| {
        let StoredDocument { key, version, value, updated_at, expires_at } = document;
        Line { key, version, size: value.len(), updated_at, expires_at }
    };
    ok(&Listing { records: found.rows.into_iter().map(line).collect(), next: found.next })
}

/// Returns a document, or 304 if the caller already has its current version.
pub(crate) async fn show(State(app): State<App>, headers: HeaderMap, name: PathName) -> Answered {
    let key = name.key()?;
    let document = app.store().document(&key).await?.ok_or_else(|| absent(&key))?;
    let seen = header_text(&headers, header::IF_NONE_MATCH, "If-None-Match")?;
    if seen.is_some_and(|seen| seen == tag(document.version)) {
        return tagged(StatusCode::NOT_MODIFIED.into_response(), document.version);
    }
    tagged(ok(&document)?, document.version)
}

fn absent(key: &Key) -> ServerError {
    ServerError::NotFound { what: "document", name: key.to_string() }
}

fn tag(version: DocVersion) -> String {
    format!("\"{version}\"")
}

fn tagged(mut response: Response, version: DocVersion) -> Answered {
    let value = HeaderValue::from_str(&tag(version));
    let value = value.map_err(|error| unreadable("the version", &error.to_string()))?;
    response.headers_mut().insert(header::ETAG, value);
    Ok(response)
}

/// Parses the condition of a write from `If-Match` or `If-None-Match`.
fn condition(headers: &HeaderMap, key: &Key) -> Result<Expect<DocVersion>, ServerError> {
    let replaced = header_text(headers, header::IF_MATCH, "If-Match")?;
    let created = header_text(headers, header::IF_NONE_MATCH, "If-None-Match")?;
    match (replaced.as_deref(), created.as_deref()) {
        (Some("*"), None) => Ok(Expect::Exists),
        (Some(seen), None) => {
            let version = seen.strip_prefix('"').and_then(|seen| seen.strip_suffix('"'));
            let version = version.and_then(|version| version.parse().ok());
            let reason = || unreadable("If-Match", &format!("{seen} is none of our ETags"));
            Ok(Expect::Exact(DocVersion(version.ok_or_else(reason)?)))
        }
        (None, Some("*")) => Ok(Expect::Absent),
        (None, Some(_)) => Err(unreadable("If-None-Match", "a write takes * only")),
        (None, None) => Err(ServerError::NoCondition { key: key.to_string() }),
        (Some(_), Some(_)) => Err(unreadable("the condition", "If-Match and If-None-Match are both given")),
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Value {
    #[schemars(with = "serde_json::Value")]
    value: Payload,
}

/// Writes a document and keeps its expiry.
pub(crate) async fn write(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    name: PathName,
    QueryParams(asked): QueryParams<ShownQuery>,
    Body(body): Body<Value>,
) -> Answered {
    let write = Write { expect: &headers, lease: asked.shown()?, change: HistoryChange::Put(body.value) };
    change(&app, &caller, name.key()?, write).await
}

/// Deletes a document.
pub(crate) async fn remove(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    name: PathName,
    QueryParams(asked): QueryParams<ShownQuery>,
) -> Answered {
    let write = Write { expect: &headers, lease: asked.shown()?, change: HistoryChange::Delete };
    change(&app, &caller, name.key()?, write).await
}

/// A write to a document.
struct Write<'a> {
    /// The headers with the condition of the write.
    expect: &'a HeaderMap,
    /// The lease that fences the write.
    lease: Option<Shown>,
    change: HistoryChange,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Written {
    #[schemars(with = "shape::Key")]
    key: Key,
    #[schemars(with = "u64")]
    version: DocVersion,
    #[schemars(with = "shape::Timestamp")]
    at: Timestamp,
}

async fn change(app: &App, caller: &Caller, key: Key, write: Write<'_>) -> Answered {
    check_document(&key)?;
    let Write { expect, lease, change } = write;
    let expect = condition(expect, &key)?;
    let before = app.store().document(&key).await?;
    let expect = match seen(&key, expect, before.as_ref()) {
        Ok(expect) => expect,
        Err(problem) => {
            // A caller that has lost its lease gets that error, rather than a version conflict that it would retry.
            if lease.is_some() {
                app.store().apply(under(lease.as_ref())?).await?;
            }
            return Err(problem);
        }
    };
    let deletes = change == HistoryChange::Delete;
    let details = json!({"before": before.as_ref().map(|before| before.version)});
    let did = if deletes { "delete" } else { "put" };
    let audit_entry = AuditEntry::new(caller, did, &key, with_lease(details, lease.as_ref()));
    let expires = before.as_ref().and_then(|before| before.expires_at);
    let batch = under(lease.as_ref())?.and(batch(&key, expect, &change, expires));
    let batch = batch.and(in_history(app.store(), &key, change).await?);
    let receipt = app.store().apply(audit_entry.with(batch)?).await?;
    let Some(written) = receipt.documents.first() else { return Err(absent(&key).into()) };
    let (version, at) = (written.version, receipt.at);
    let response = ok(&Written { key, version, at })?;
    if deletes { Ok(response) } else { tagged(response, version) }
}

/// Checks the condition and returns the exact version to replace. The write keeps parts of that version, such as its expiry.
fn seen(
    key: &Key,
    expect: Expect<DocVersion>,
    before: Option<&StoredDocument>,
) -> Result<Expect<DocVersion>, Problem> {
    let holds = match (expect, before) {
        (Expect::Exact(version), Some(before)) => before.version == version,
        (Expect::Exact(_) | Expect::Exists, None) | (Expect::Absent, Some(_)) => false,
        _ => true,
    };
    if !holds {
        let found = before.map_or(DocumentFound::Absent, |before| DocumentFound::Present(before.clone()));
        return Err(Refusal::Document {
            index: 0,
            key: key.clone(),
            expected: expect,
            found: Box::new(found),
        }
        .into());
    }
    Ok(before.map_or(Expect::Absent, |before| Expect::Exact(before.version)))
}

fn batch(key: &Key, expect: Expect<DocVersion>, change: &HistoryChange, expires: Option<Timestamp>) -> Batch {
    let batch = Batch::new();
    match (change, expires) {
        (HistoryChange::Put(value), None) => batch.put(key, expect, value.clone()),
        (HistoryChange::Put(value), Some(at)) => batch.put_until(key, expect, value.clone(), Due::At(at)),
        (HistoryChange::Merge(deltas), _) => batch.merge(key, deltas.clone()),
        (HistoryChange::Delete, _) => batch.delete(key, expect),
    }
}

/// Returns the history part of the batch: the history event, or a guard that the document still has no history.
async fn in_history(store: &dyn Store, key: &Key, change: HistoryChange) -> Result<Batch, Problem> {
    // A key that is too long for a history stream has no history.
    let Ok(stream) = history_key(key) else { return Ok(Batch::new()) };
    match store.stream(&stream).await {
        Ok(Some(found)) if found.head.is_some() => Ok(history_batch(key, change, 1)?),
        Ok(_) => Ok(Batch::new().guard_stream(&stream, Expect::Absent)),
        Err(error) if error.kind == StoreErrorKind::Unsupported => Ok(Batch::new()),
        Err(error) => Err(error.into()),
    }
}
