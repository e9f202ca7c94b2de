//! Leases of callers that renew them by themselves. They are the leases of the library: who holds one here holds it there.
//!
//! A take is a claim, and no batch: its audit event is written under the new fence before the caller hears of it. If that
//! fails, the lease is given back; if the process dies in between, nobody knows the fence, and the lease ends by itself.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidelock::clock::Timestamp;
use tidelock::id::{Fence, Owner};
use tidelock::key::Key;
use tidelock::lease::{self, LeaseError, MAX_TTL, MIN_TTL, View};
use tidelock::store::{Batch, Claim, Denied, Grant, Lease, Operation, Selection};

use crate::audit::Told;
use crate::error::ServerError;
use crate::problem::Problem;
use crate::request::{Answered, Asked, Body, Named, ok, page, theirs, unreadable};
use crate::shared::{App, Shared};
use crate::token::Caller;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Listing {
    leases: Vec<View>,
    next: Option<Key>,
}

/// One page of leases.
pub(crate) async fn list(State(app): State<App>, Asked(asked): Asked<ListQuery>) -> Answered {
    let found = lease::list(&app.store, page(asked.after.as_deref(), asked.limit)?).await?;
    ok(&Listing { leases: found.rows, next: found.next })
}

/// A lease.
pub(crate) async fn show(State(app): State<App>, name: Named) -> Answered {
    let key = name.key()?;
    let absent = || ServerError::NotFound { what: "lease", name: key.to_string() };
    ok(&lease::view(&app.store, &key).await?.ok_or_else(absent)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Take {
    owner: String,
    ttl_ms: u64,
}

#[derive(Serialize)]
struct Held {
    key: Key,
    owner: Owner,
    fence: Fence,
    until: Timestamp,
}

fn ttl(millis: u64) -> Result<Duration, ServerError> {
    let ttl = Duration::from_millis(millis);
    if ttl < MIN_TTL || ttl > MAX_TTL {
        let reason = format!("{millis} is not between {} and {}", MIN_TTL.as_millis(), MAX_TTL.as_millis());
        return Err(unreadable("ttl_ms", &reason));
    }
    Ok(ttl)
}

/// Takes a lease that nobody holds or waits for. Its owner may take it again, and then has a new fence.
pub(crate) async fn take(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    name: Named,
    Body(body): Body<Take>,
) -> Answered {
    let key = name.key()?;
    theirs(&key)?;
    // Owners inside of programs are named in another way, so that nobody takes what one of them holds.
    let named = Owner::new(body.owner)?;
    let (owner, ttl) = (Owner::new(format!("http/{named}"))?, ttl(body.ttl_ms)?);
    let seen = lease::view(&app.store, &key).await?;
    if let Some(View { waiters, .. }) = seen
        && !waiters.is_empty()
    {
        return Err(LeaseError::Waited { key, waiters }.into());
    }
    let grant = claim(&app, &key, &owner, ttl).await?;
    let (lease, fence) = (grant.lease(), grant.fence);
    let told = Told::new(&caller, "take", &key, json!({"owner": owner, "fence": fence}));
    if let Err(error) = app.store().apply(told.with(Batch::new().guard_lease(&lease))?).await {
        // What cannot be given back ends by itself.
        let _ = app.store().apply(Batch::new().release(&lease)).await;
        return Err(error.into());
    }
    let until = grant.row.lease.map_or(grant.row.enqueued_at, |lease| lease.until);
    ok(&Held { key, owner, fence, until })
}

async fn claim(app: &Shared, key: &Key, owner: &Owner, ttl: Duration) -> Result<Grant, Problem> {
    let claimed = app.store().claim(Claim::named(owner, &lease::row_of(key)?, &lease::lane()?, ttl)).await?;
    if let Some(grant) = claimed.grants.into_iter().next() {
        return Ok(grant);
    }
    let key = key.clone();
    Err(match claimed.denied {
        Some(Denied::Held(holder)) => {
            let (owner, since, until, fence) = (holder.owner, holder.since, holder.until, holder.fence);
            LeaseError::Held { key, owner, since, until, fence }
        }
        Some(Denied::Blocked(reason)) => LeaseError::Blocked { key, reason },
        Some(Denied::NotFound) | None => {
            LeaseError::NoKeeper { reason: "the store neither grants nor denies".to_owned() }
        }
    }
    .into())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Renew {
    fence: u64,
    ttl_ms: u64,
}

/// Keeps a lease for longer, under its fence.
pub(crate) async fn renew(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    name: Named,
    Body(body): Body<Renew>,
) -> Answered {
    let key = name.key()?;
    theirs(&key)?;
    let (fence, ttl) = (Fence(body.fence), ttl(body.ttl_ms)?);
    let lease = Lease { key: lease::row_of(&key)?, fence };
    let told = Told::new(&caller, "renew", &key, json!({"fence": fence, "ttl_ms": body.ttl_ms}));
    app.store().apply(told.with(Batch::new().renew(&lease, ttl))?).await?;
    let holder = app.store().work(&lease.key).await?.and_then(|row| row.lease);
    match holder.filter(|holder| holder.fence == fence) {
        Some(holder) => ok(&Held { key, owner: holder.owner, fence, until: holder.until }),
        // It was renewed, and somebody has taken it since.
        None => Err(ServerError::NotFound { what: "lease", name: key.to_string() }.into()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseQuery {
    fence: u64,
}

#[derive(Serialize)]
struct Released {
    key: Key,
    fence: Fence,
}

/// Gives a lease back.
pub(crate) async fn release(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    name: Named,
    Asked(asked): Asked<ReleaseQuery>,
) -> Answered {
    let key = name.key()?;
    theirs(&key)?;
    let fence = Fence(asked.fence);
    let lease = Lease { key: lease::row_of(&key)?, fence };
    let seen = lease::view(&app.store, &key).await?;
    // A row that tells a story stays; others go with their holder, so that keys used once leave nothing behind.
    let stays = seen.is_some_and(|seen| seen.takeovers > 0 || seen.stolen.is_some());
    let batch = if stays {
        Batch::new().release(&lease)
    } else {
        let rows = Selection::Keys(vec![lease.key.clone()]);
        Batch::new().guard_lease(&lease).operate(rows, Operation::Remove)
    };
    let told = Told::new(&caller, "release", &key, json!({"fence": fence}));
    app.store().apply(told.with(batch)?).await?;
    ok(&Released { key, fence })
}
