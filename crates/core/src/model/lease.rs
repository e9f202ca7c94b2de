//! The rules of leases: when a row may be had, what a grant does to it, and whose word still counts.
//!
//! A lease ends at the first instant with `now >= until`. The end only opens the row to others: until somebody takes
//! it, the holder's fence stays good, because nobody else can have acted in between.

use std::time::Duration;

use super::refusal::Holder;
use super::rows::{Lease, LeaseRow, WorkRow};
use crate::clock::Timestamp;
use crate::id::{Fence, Owner};

/// From when on a lane's claim may take the row: its due time, or the end of its lease if that is later. `None`
/// while it is blocked or rests. This is the fact that backends index.
///
/// What was asked for during a lease counts like a due time: if the holder dies, nobody else will remember it.
#[must_use]
pub fn ready_at(row: &WorkRow) -> Option<Timestamp> {
    if row.blocked.is_some() {
        return None;
    }
    let due = asked_for(row)?;
    Some(row.lease.as_ref().map_or(due, |lease| lease.until.max(due)))
}

/// The earliest instant that anybody asked for.
fn asked_for(row: &WorkRow) -> Option<Timestamp> {
    row.due.into_iter().chain(row.woken).min()
}

/// Who keeps `owner` from having the row by name: the present holder, unless its lease has ended or it is `owner`.
#[must_use]
pub fn held_against<'a>(row: &'a WorkRow, owner: &Owner, now: Timestamp) -> Option<&'a LeaseRow> {
    row.lease.as_ref().filter(|lease| lease.owner != *owner && !lease.until.has_come(now))
}

/// Gives the row to `owner`. The attempt counts from here, so that a worker that dies on it every time still runs out
/// of budget; what was asked for so far is taken up by this grant. Answers whether it was taken over from a holder who was gone.
pub fn grant(row: &mut WorkRow, owner: &Owner, fence: Fence, ttl: Duration, now: Timestamp) -> bool {
    let taken_over = row.lease.as_ref().is_some_and(|lease| lease.until.has_come(now));
    row.takeovers = row.takeovers.saturating_add(u32::from(taken_over));
    row.attempts = row.attempts.saturating_add(1);
    row.due = asked_for(row);
    row.woken = None;
    row.lease = Some(LeaseRow { owner: owner.clone(), fence, since: now, until: now.after(ttl) });
    taken_over
}

/// Whether a row's lease is the one that is shown. The owner counts beside the fence: after a cut of the history two
/// holders may have the same fence.
#[must_use]
pub fn is_of(held: &LeaseRow, shown: &Lease) -> bool {
    held.fence == shown.fence && shown.owner.as_ref().is_none_or(|owner| *owner == held.owner)
}

/// Whether the lease is still its holder's.
///
/// # Errors
/// The present [`Holder`] when it is not.
pub fn check(row: Option<&WorkRow>, lease: &Lease) -> Result<(), Holder> {
    match row {
        None => Err(Holder::Gone),
        Some(WorkRow { lease: None, .. }) => Err(Holder::Nobody),
        Some(WorkRow { lease: Some(held), .. }) if !is_of(held, lease) => Err(Holder::Held(held.clone())),
        Some(_) => Ok(()),
    }
}
