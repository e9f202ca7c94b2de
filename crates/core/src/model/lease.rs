//! Lease rules: when a row is claimable, how a grant changes it, and which fences are valid.
//!
//! A lease expires at the first instant with `now >= until`. Expiry only makes the row claimable. Until another owner acquires
//! it, the holder's fence stays valid, because no other owner can have acted in between.

use std::time::Duration;

use super::refusal::Holder;
use super::rows::{Lease, LeaseRow, WorkRow};
use crate::clock::Timestamp;
use crate::id::{Fence, Owner};

/// Returns the time from which a claim on the queue may acquire the row. It is the due time, or the expiry of the lease if that
/// is later. Returns `None` while the row is blocked or rests. Backends index this value.
///
/// A wake-up during a lease counts like a due time. If the holder dies, no other process remembers the wake-up.
#[must_use]
pub fn ready_at(row: &WorkRow) -> Option<Timestamp> {
    if row.blocked.is_some() {
        return None;
    }
    let due = asked_for(row)?;
    Some(row.lease.as_ref().map_or(due, |lease| lease.until.max(due)))
}

/// Returns the earliest requested due time.
fn asked_for(row: &WorkRow) -> Option<Timestamp> {
    row.due.into_iter().chain(row.woken).min()
}

/// Returns the lease that prevents `owner` from claiming the row by key: an unexpired lease of another owner.
#[must_use]
pub fn held_against<'a>(row: &'a WorkRow, owner: &Owner, now: Timestamp) -> Option<&'a LeaseRow> {
    row.lease.as_ref().filter(|lease| lease.owner != *owner && !lease.until.has_come(now))
}

/// Grants the row to `owner`. The attempt counts from here, so that a worker that dies on it every time still exhausts the
/// retry budget. The grant consumes the wake-ups so far. Returns whether the row was taken over from a holder whose lease had
/// expired.
pub fn grant(row: &mut WorkRow, owner: &Owner, fence: Fence, ttl: Duration, now: Timestamp) -> bool {
    let taken_over = row.lease.as_ref().is_some_and(|lease| lease.until.has_come(now));
    row.takeovers = row.takeovers.saturating_add(u32::from(taken_over));
    row.attempts = row.attempts.saturating_add(1);
    row.due = asked_for(row);
    row.woken = None;
    row.lease = Some(LeaseRow { owner: owner.clone(), fence, since: now, until: now.after(ttl) });
    taken_over
}

/// Returns whether a row's lease is the presented one. The owner counts as well as the fence, because two holders may have the
/// same fence after a history cut.
#[must_use]
pub fn is_of(held: &LeaseRow, shown: &Lease) -> bool {
    held.fence == shown.fence && shown.owner.as_ref().is_none_or(|owner| *owner == held.owner)
}

/// Checks whether the lease is still valid.
///
/// # Errors
/// Returns the current [`Holder`] when the lease is not valid.
pub fn check(row: Option<&WorkRow>, lease: &Lease) -> Result<(), Holder> {
    match row {
        None => Err(Holder::Gone),
        Some(WorkRow { lease: None, .. }) => Err(Holder::Nobody),
        Some(WorkRow { lease: Some(held), .. }) if !is_of(held, lease) => Err(Holder::Held(held.clone())),
        Some(_) => Ok(()),
    }
}
