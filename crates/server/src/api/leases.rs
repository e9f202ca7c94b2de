//! Leases over HTTP. Clients renew them. They are the leases of the library, so a client and a program exclude each other.
//!
//! An acquisition is a claim, not a batch. Its audit event is written under the new fence before the response is sent. If that write
//! fails, or the response does not reach the connection, the lease is released. If the process dies in between, no client knows the
//! fence, and the lease expires.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidelock_core::clock::Timestamp;
use tidelock_core::error::InvalidInput;
use tidelock_core::id::{Fence, Owner};
use tidelock_core::key::Key;
use tidelock_core::key::reserved::check_name;
use tidelock_core::lease::{self, LeaseError, LeaseView, MIN_TTL};
use tidelock_core::store::{Batch, Claim, ClaimDenied, Grant, Lease, LeaseRow, Operation, Selection};
use tokio::sync::oneshot;

use crate::app_state::{App, AppState};
use crate::audit::AuditEntry;
use crate::delivery::reported;
use crate::error::ServerError;
use crate::openapi::shape;
use crate::problem::Problem;
use crate::request::{Answered, Body, PathName, QueryParams, ok, page, unreadable};
use crate::request_id;
use crate::sanitize::escaped;
use crate::token::Caller;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    cursor: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Leases")]
pub(crate) struct Listing {
    #[schemars(with = "Vec<shape::Lease>")]
    leases: Vec<LeaseView>,
    #[schemars(with = "Option<shape::Key>")]
    next: Option<Key>,
}

/// One page of leases.
pub(crate) async fn list(State(app): State<App>, QueryParams(asked): QueryParams<ListQuery>) -> Answered {
    let found = lease::list(&app.store, page(asked.cursor.as_deref(), asked.limit)?).await?;
    ok(&Listing { leases: found.rows, next: found.next })
}

/// A lease.
pub(crate) async fn show(State(app): State<App>, name: PathName) -> Answered {
    let key = name.key()?;
    let absent = || ServerError::NotFound { what: "lease", name: key.to_string() };
    ok(&lease::view(&app.store, &key).await?.ok_or_else(absent)?)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Take {
    #[schemars(length(min = 1))]
    owner: String,
    /// At most an hour, unless the server was set up with another limit.
    #[schemars(range(min = 100))]
    ttl_ms: u64,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct AcquiredLease {
    #[schemars(with = "shape::Key")]
    key: Key,
    #[schemars(with = "String")]
    owner: Owner,
    #[schemars(with = "u64")]
    fence: Fence,
    #[schemars(with = "shape::Timestamp")]
    expires_at: Timestamp,
}

/// The prefix of owners over HTTP. Owners inside programs have other names, so that no client can renew or release the lease of
/// a program.
const OVER_HTTP: &str = "http/";

fn ttl(app: &AppState, millis: u64) -> Result<Duration, ServerError> {
    let (ttl, limit) = (Duration::from_millis(millis), app.options.lease_time);
    if ttl < MIN_TTL {
        return Err(unreadable("ttl_ms", &format!("{millis} is less than {}", MIN_TTL.as_millis())));
    }
    if ttl > limit {
        return Err(ServerError::LeaseTime { asked: ttl, limit });
    }
    Ok(ttl)
}

/// A lease that a client presents as a guard for another write.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ShownLease")]
pub(crate) struct Shown {
    #[schemars(with = "shape::Key")]
    key: Key,
    #[schemars(with = "u64")]
    fence: Fence,
}

impl Shown {
    /// Returns the lease with the key of its row.
    pub(crate) fn lease(&self) -> Result<Lease, InvalidInput> {
        Ok(Lease { key: lease::row_of(&self.key)?, fence: self.fence, owner: None })
    }
}

/// Returns a batch that is rejected when the fence is stale; an empty one without a lease.
pub(crate) fn under(shown: Option<&Shown>) -> Result<Batch, InvalidInput> {
    let Some(shown) = shown else { return Ok(Batch::new()) };
    Ok(Batch::new().guard_lease(&shown.lease()?))
}

/// Adds the presented lease to the audit details of a write.
pub(crate) fn with_lease(mut details: Value, shown: Option<&Shown>) -> Value {
    if let (Value::Object(fields), Some(shown)) = (&mut details, shown) {
        fields.insert("lease".to_owned(), json!(shown));
    }
    details
}

/// A lease presented in the query string.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShownQuery {
    lease: Option<Key>,
    fence: Option<Fence>,
}

impl ShownQuery {
    pub(crate) fn shown(self) -> Result<Option<Shown>, ServerError> {
        match (self.lease, self.fence) {
            (Some(key), Some(fence)) => Ok(Some(Shown { key, fence })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(unreadable("fence", "a lease is named, and its fence is not")),
            (None, Some(_)) => Err(unreadable("lease", "a fence is shown, and its lease is not named")),
        }
    }
}

/// Acquires a free lease without waiters. Its owner may acquire it again, and gets a new fence.
pub(crate) async fn take(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    name: PathName,
    Body(body): Body<Take>,
) -> Answered {
    let key = name.key()?;
    check_name(&key)?;
    let named = Owner::new(body.owner)?;
    let (owner, ttl) = (Owner::new(format!("{OVER_HTTP}{named}"))?, ttl(&app, body.ttl_ms)?);
    let seen = lease::view(&app.store, &key).await?;
    if let Some(LeaseView { waiters, .. }) = seen
        && !waiters.is_empty()
    {
        return Err(LeaseError::Waited { key, waiters }.into());
    }
    let (answer, answered) = oneshot::channel();
    // A broken connection drops this handler at any point, but not the task.
    request_id::spawn(Taking { app, caller, key, owner, ttl }.run(answer));
    let (held, report) = answered.await.map_err(|_| ServerError::Panicked)??;
    Ok(reported(ok(&held)?, report))
}

/// A task that acquires a lease, and releases it again unless the response reaches the connection.
struct Taking {
    app: App,
    caller: Caller,
    key: Key,
    owner: Owner,
    ttl: Duration,
}

impl Taking {
    /// Acquires the lease. Releases it when the client leaves before, during or after the hand-over of the response: a response that
    /// lies in the channel, or in a layer above the handler, is dropped there together with its delivery report.
    async fn run(self, answer: oneshot::Sender<Result<(AcquiredLease, oneshot::Sender<()>), Problem>>) {
        let grant = match claim(&self.app, &self.key, &self.owner, self.ttl).await {
            Ok(grant) => grant,
            Err(problem) => return drop(answer.send(Err(problem))),
        };
        let lease = grant.lease();
        if answer.is_closed() {
            return self.give_back(&lease, None).await;
        }
        let (key, owner, fence) = (self.key.clone(), self.owner.clone(), grant.fence);
        let audit_entry = self.audit_entry("acquire", json!({"owner": owner, "fence": fence}));
        let written = match audit_entry.with(Batch::new().guard_lease(&lease)) {
            Ok(batch) => self.app.store().apply(batch).await.map_err(Problem::from),
            Err(error) => Err(error.into()),
        };
        if let Err(problem) = written {
            self.give_back(&lease, None).await;
            return drop(answer.send(Err(problem)));
        }
        let expires_at = grant.row.lease.map_or(grant.row.enqueued_at, |lease| lease.until);
        let (report, delivered) = oneshot::channel();
        // A refused message is dropped, and its report with it.
        let _ = answer.send(Ok((AcquiredLease { key, owner, fence, expires_at }, report)));
        if delivered.await.is_err() {
            let audit_entry = self.audit_entry(
                "release",
                json!({"fence": fence, "reason": "the client left before the response was read"}),
            );
            self.give_back(&lease, Some(&audit_entry)).await;
        }
    }

    fn audit_entry(&self, did: &'static str, details: Value) -> AuditEntry<'_> {
        AuditEntry::new(&self.caller, did, &self.key, details)
    }

    /// Releases the lease. If that fails, the lease expires.
    async fn give_back(&self, lease: &Lease, audit_entry: Option<&AuditEntry<'_>>) {
        if self.given_back(lease, audit_entry).await.is_err() {
            // The failure was logged already, or another owner has the lease by now.
            let key = escaped(&self.key.to_string());
            tracing::warn!(target: "tidelock::server", %key, "lease release failed");
        }
    }

    async fn given_back(&self, lease: &Lease, audit_entry: Option<&AuditEntry<'_>>) -> Result<(), Problem> {
        let batch = giving_back(&self.app, &self.key, lease).await?;
        let batch = match audit_entry {
            Some(audit_entry) => audit_entry.with(batch)?,
            None => batch,
        };
        self.app.store().apply(batch).await?;
        Ok(())
    }
}

async fn claim(app: &AppState, key: &Key, owner: &Owner, ttl: Duration) -> Result<Grant, Problem> {
    let claimed = app.store().claim(Claim::named(owner, &lease::row_of(key)?, &lease::queue()?, ttl)).await?;
    if let Some(grant) = claimed.grants.into_iter().next() {
        return Ok(grant);
    }
    let key = key.clone();
    Err(match claimed.denied {
        Some(ClaimDenied::Held(holder)) => {
            let (owner, since, until, fence) = (holder.owner, holder.since, holder.until, holder.fence);
            LeaseError::Held { key, owner, since, until, fence }
        }
        Some(ClaimDenied::Blocked(reason)) => LeaseError::Blocked { key, reason },
        Some(ClaimDenied::NotFound) | None => {
            LeaseError::NoKeeper { reason: "the store neither grants nor denies".to_owned() }
        }
    }
    .into())
}

/// Rejects changes of a lease that a program holds. Fences are never reused, so the owner of a fence never changes. The store
/// rejects a stale fence.
async fn held_over_http(app: &AppState, key: &Key, lease: &Lease) -> Result<(), Problem> {
    let held = app.store().work(&lease.key).await?.and_then(|row| row.lease);
    match held {
        Some(LeaseRow { owner, fence, since, until, .. })
            if fence == lease.fence && !owner.as_str().starts_with(OVER_HTTP) =>
        {
            Err(LeaseError::Held { key: key.clone(), owner, since, until, fence }.into())
        }
        _ => Ok(()),
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Renew {
    fence: u64,
    #[schemars(range(min = 100))]
    ttl_ms: u64,
}

/// Renews a lease under its fence.
pub(crate) async fn renew(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    name: PathName,
    Body(body): Body<Renew>,
) -> Answered {
    let key = name.key()?;
    check_name(&key)?;
    let (fence, ttl) = (Fence(body.fence), ttl(&app, body.ttl_ms)?);
    let lease = Lease { key: lease::row_of(&key)?, fence, owner: None };
    held_over_http(&app, &key, &lease).await?;
    let audit_entry = AuditEntry::new(&caller, "renew", &key, json!({"fence": fence, "ttl_ms": body.ttl_ms}));
    app.store().apply(audit_entry.with(Batch::new().renew(&lease, ttl))?).await?;
    let holder = app.store().work(&lease.key).await?.and_then(|row| row.lease);
    match holder.filter(|holder| holder.fence == fence) {
        Some(holder) => ok(&AcquiredLease { key, owner: holder.owner, fence, expires_at: holder.until }),
        // It was renewed, and another owner has acquired it since.
        None => Err(ServerError::NotFound { what: "lease", name: key.to_string() }.into()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseQuery {
    fence: u64,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Released {
    #[schemars(with = "shape::Key")]
    key: Key,
    #[schemars(with = "u64")]
    fence: Fence,
}

/// Releases a lease.
pub(crate) async fn release(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    name: PathName,
    QueryParams(asked): QueryParams<ReleaseQuery>,
) -> Answered {
    let key = name.key()?;
    check_name(&key)?;
    let fence = Fence(asked.fence);
    let lease = Lease { key: lease::row_of(&key)?, fence, owner: None };
    held_over_http(&app, &key, &lease).await?;
    let batch = giving_back(&app, &key, &lease).await?;
    let audit_entry = AuditEntry::new(&caller, "release", &key, json!({"fence": fence}));
    app.store().apply(audit_entry.with(batch)?).await?;
    ok(&Released { key, fence })
}

/// Returns the batch that releases a lease.
async fn giving_back(app: &AppState, key: &Key, lease: &Lease) -> Result<Batch, Problem> {
    let seen = lease::view(&app.store, key).await?;
    // A row with takeovers stays for operators. Other rows are removed, so that a key used once leaves nothing behind.
    let stays = seen.is_some_and(|seen| seen.takeovers > 0 || seen.stolen.is_some());
    Ok(if stays {
        Batch::new().release(lease)
    } else {
        let rows = Selection::Keys(vec![lease.key.clone()]);
        Batch::new().guard_lease(lease).operate(rows, Operation::Remove)
    })
}
