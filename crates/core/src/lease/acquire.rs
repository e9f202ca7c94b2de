//! Lease acquisition: by a claim, or by stealing.
//!
//! Every claim runs to its end in the background. If its caller is gone by then, the grant is dropped there, which
//! releases it.

use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::LeaseError;
use super::guard::LeaseGuard;
use super::row::{Said, Stolen, cut};
use super::{background, keys, registry, wait_queue};
use crate::clock::Timestamp;
use crate::id::Owner;
use crate::key::Key;
use crate::lock::TaskId;
use crate::process;
use crate::store::{
    ApplyError, Batch, Claim, ClaimDenied, Get, Grant, Lease, LeaseRow, Refusal, SharedStore, WorkRow,
};
use crate::worker::{LEASES, LocalLease, LostReason};

/// Number of attempts to steal a lease. A waiter may be faster between the two steps of an attempt.
const STEALS: usize = 16;

/// A lease request.
#[derive(Debug)]
pub(super) struct AcquireRequest {
    pub(super) store: SharedStore,
    pub(super) key: Key,
    pub(super) row: Key,
    pub(super) owner: Owner,
    pub(super) ttl: Duration,
    pub(super) at_least: Duration,
    pub(super) note: Option<String>,
    pub(super) place: &'static Location<'static>,
    pub(super) task: Option<TaskId>,
}

/// The lease, or the row of its present holder.
pub(super) type Taken = Result<LeaseGuard, LeaseRow>;

impl AcquireRequest {
    /// Rejects a request of the task that holds the lease, which would wait for itself.
    pub(super) fn not_mine(&self, holder: &LeaseRow) -> Result<(), LeaseError> {
        registry::own(&holder.owner, self.task).map_or(Ok(()), |held_at| {
            let (held_at, asked_at) = (held_at.to_string(), self.place.to_string());
            Err(LeaseError::Reentrant { key: self.key.clone(), held_at, asked_at })
        })
    }

    /// Reads the row of the lease, if there is one, and the store's clock.
    pub(super) async fn read_row(&self) -> Result<(Option<WorkRow>, Timestamp), LeaseError> {
        let mut found = self.store.read(&[Get::Work(self.row.clone())]).await?;
        Ok((found.take_work(0), found.now))
    }
}

/// Acquires the lease if it has no holder.
pub(super) async fn take(ask: &Arc<AcquireRequest>) -> Result<Taken, LeaseError> {
    background::run(claim(Arc::clone(ask))).await?
}

async fn claim(ask: Arc<AcquireRequest>) -> Result<Taken, LeaseError> {
    let sent = process::now();
    let claimed = ask.store.claim(Claim::named(&ask.owner, &ask.row, &keys::queue()?, ask.ttl)).await?;
    let Some(grant) = claimed.grants.into_iter().next() else {
        return match claimed.denied {
            Some(ClaimDenied::Held(holder)) => Ok(Err(holder)),
            Some(ClaimDenied::Blocked(reason)) => Err(LeaseError::Blocked { key: ask.key.clone(), reason }),
            Some(ClaimDenied::NotFound) | None => {
                Err(LeaseError::NoKeeper { reason: "the store neither grants nor denies".to_owned() })
            }
        };
    };
    let held = granted(&ask, &grant, sent)?;
    if let Some(note) = &ask.note {
        let mut said = Said::of(&grant.row);
        said.set_note(grant.fence, note);
        let written = held.guard(Batch::new().enqueue(said.written(&ask.row)?))?;
        ask.store.apply(written).await.map_err(|error| LeaseError::Write(Box::new(error)))?;
    }
    Ok(Ok(held))
}

fn granted(ask: &AcquireRequest, grant: &Grant, sent: Instant) -> Result<LeaseGuard, LeaseError> {
    let kept = LocalLease::start(&LEASES, &ask.store, grant.lease(), ask.ttl, sent)?;
    registry::enter(&ask.owner, ask.task, ask.place, &kept);
    // A row with a history stays. Other rows are removed with their holder, so that keys used once leave nothing
    // behind.
    let stays = grant.row.takeovers > 0 || Said::of(&grant.row).stolen.is_some();
    Ok(LeaseGuard::new(ask.key.clone(), ask.owner.clone(), kept, ask.at_least, stays))
}

/// Acquires the lease if it has no holder and no waiters.
pub(super) async fn now(ask: Arc<AcquireRequest>) -> Result<LeaseGuard, LeaseError> {
    let (waiters, _) = wait_queue::alive(&ask.store, &ask.key).await?;
    if waiters.is_empty() {
        return match take(&ask).await? {
            Ok(held) => Ok(held),
            Err(holder) => {
                ask.not_mine(&holder)?;
                Err(LeaseError::held(&ask.key, holder))
            }
        };
    }
    if let Some(holder) = ask.read_row().await?.0.and_then(|row| row.lease) {
        ask.not_mine(&holder)?;
    }
    Err(LeaseError::Waited { key: ask.key.clone(), waiters })
}

/// Takes the lease from its present holder, ahead of all waiters.
pub(super) async fn steal(ask: Arc<AcquireRequest>, reason: String) -> Result<LeaseGuard, LeaseError> {
    let mut robbed: Option<LeaseRow> = None;
    for _ in 0..STEALS {
        match take(&ask).await? {
            Ok(held) => {
                if let Some(LeaseRow { owner, .. }) = robbed {
                    registry::lose(&owner, LostReason::Taken { by: ask.owner.clone(), fence: held.fence() });
                }
                return Ok(held);
            }
            Err(holder) => {
                ask.not_mine(&holder)?;
                if rob(&ask, &holder, &reason).await? {
                    robbed = Some(holder);
                }
            }
        }
    }
    match ask.read_row().await?.0.and_then(|row| row.lease) {
        Some(holder) => Err(LeaseError::held(&ask.key, holder)),
        None => take(&ask).await?.map_err(|holder| LeaseError::held(&ask.key, holder)),
    }
}

/// Ends the lease of a holder and records the theft, in one batch. Returns `false` when the holder has changed.
async fn rob(ask: &AcquireRequest, holder: &LeaseRow, reason: &str) -> Result<bool, LeaseError> {
    let (Some(row), at) = ask.read_row().await? else { return Ok(false) };
    let mut said = Said::of(&row);
    let (by, from) = (ask.owner.clone(), holder.owner.clone());
    said.stolen = Some(Stolen { by, from, fence: holder.fence, at, reason: cut(reason) });
    let stale = Lease { key: ask.row.clone(), fence: holder.fence, owner: Some(holder.owner.clone()) };
    let batch = Batch::new().guard_lease(&stale).enqueue(said.written(&ask.row)?).release(&stale);
    match ask.store.apply(batch).await {
        Ok(_) => {
            let (key, thief, from, fence) = (&ask.key, &ask.owner, &holder.owner, holder.fence);
            tracing::warn!(%key, %thief, %from, %fence, reason, "a lease was stolen");
            Ok(true)
        }
        Err(ApplyError::Refused(refusal)) if matches!(*refusal, Refusal::Fenced { .. }) => Ok(false),
        Err(error) => Err(LeaseError::Write(Box::new(error))),
    }
}
