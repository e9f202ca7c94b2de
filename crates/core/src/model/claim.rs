//! Claims: the choice among claimable rows, and the grant of a row by key.

use super::hash;
use super::lease;
use super::rows::{LeaseRow, WorkRow};
use super::work;
use super::working_set::WorkingSet;
use crate::clock::Timestamp;
use crate::id::{Fence, Owner, Priority, QueueName};
use crate::key::Key;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

/// About every fourth row is chosen by age alone, so that urgent work cannot starve the rest.
const BY_AGE_ONE_IN: usize = 4;

/// A claimable row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The key of the row.
    pub key: Key,
    /// The queue of the row.
    pub queue: QueueName,
    /// The priority of the row.
    pub priority: Priority,
    /// The time since which the row is claimable.
    pub ready_at: Timestamp,
    /// The creation number of the row.
    pub seq: u64,
}

/// Chooses at most `limit` of the candidates: a share by age, the rest by priority, then round-robin over the queues, then by
/// age. A long queue therefore does not starve the others.
///
/// The candidates must contain, for each queue and priority, at least the `limit` oldest rows. `turn` is the highest fence so
/// far. A claim of four or more gives a quarter of its rows to the oldest. A smaller claim may grant the fences `turn + 1` to
/// `turn + limit`. It gives one row to the oldest when a hash picks any of them. The hash picks one fence in four without a
/// pattern, so that no rhythm of claims misses them all. Every backend chooses the same rows.
#[must_use]
pub fn choose(mut candidates: Vec<Candidate>, limit: usize, turn: Fence) -> Vec<Key> {
    let aged = share_by_age(limit, turn);
    candidates.sort_by_key(|c| (c.ready_at, c.seq));
    let rest = candidates.split_off(aged.min(candidates.len()));
    let mut chosen: Vec<Key> = candidates.into_iter().map(|c| c.key).collect();
    let mut rest = rest;
    rest.sort_by_key(|c| (Reverse(c.priority), c.ready_at, c.seq));
    let mut rest = in_turn(rest, turn);
    rest.truncate(limit.saturating_sub(chosen.len()));
    chosen.extend(rest.into_iter().map(|c| c.key));
    chosen
}

/// Orders the candidates of each priority round-robin over the queues. The first queue changes with every grant, so that small
/// claims are fair.
fn in_turn(sorted: Vec<Candidate>, turn: Fence) -> Vec<Candidate> {
    if sorted.windows(2).all(|pair| matches!(pair, [a, b] if a.queue == b.queue)) {
        return sorted;
    }
    let mut seen: HashMap<(Priority, QueueName), usize> = HashMap::new();
    let mut ranked: Vec<_> = sorted
        .into_iter()
        .map(|c| {
            let rank = seen.entry((c.priority, c.queue.clone())).or_default();
            *rank += 1;
            (
                (
                    Reverse(c.priority),
                    *rank,
                    hash::mixed(turn.0.wrapping_mul(hash::STRIDE) ^ hash::of(c.queue.as_str())),
                ),
                c,
            )
        })
        .collect();
    ranked.sort_by_key(|(place, _)| *place);
    ranked.into_iter().map(|(_, candidate)| candidate).collect()
}

fn share_by_age(limit: usize, turn: Fence) -> usize {
    if limit >= BY_AGE_ONE_IN {
        return limit / BY_AGE_ONE_IN;
    }
    let by_age =
        |fence: u64| hash::mixed(fence.wrapping_add(hash::STRIDE)).is_multiple_of(BY_AGE_ONE_IN as u64);
    usize::from((1..=limit as u64).any(|i| by_age(turn.0.saturating_add(i))))
}

/// The reason why a row that was claimed by key was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimDenied {
    /// Another owner holds the lease.
    Held(LeaseRow),
    /// The row is blocked.
    Blocked(String),
    /// The row does not exist, and the claim does not create it.
    NotFound,
}

/// A granted row.
#[derive(Clone, Debug, PartialEq)]
pub struct Granted {
    /// The row, with its new lease.
    pub row: WorkRow,
    /// Whether the row was taken over from a holder whose lease had expired.
    pub taken_over: bool,
}

/// Grants a row of the working set that was chosen from the candidates. Returns `None` when the row is no longer claimable.
pub fn grant_chosen(
    facts: &mut WorkingSet,
    key: &Key,
    owner: &Owner,
    ttl: Duration,
    now: Timestamp,
) -> Option<Granted> {
    let row = facts.work(key)?.clone();
    if !lease::ready_at(&row).is_some_and(|at| at.has_come(now)) {
        return None;
    }
    Some(granted(facts, row, owner, ttl, now))
}

/// Grants a row by key, whether it is due or not. Creates it in the queue `create` when it does not exist.
///
/// # Errors
/// Returns [`ClaimDenied`] when another owner holds the lease, the row is blocked, or it does not exist and `create` is `None`.
pub fn grant_named(
    facts: &mut WorkingSet,
    key: &Key,
    create: Option<&QueueName>,
    owner: &Owner,
    ttl: Duration,
    now: Timestamp,
) -> Result<Granted, ClaimDenied> {
    let row = match (facts.work(key), create) {
        (Some(row), _) => row.clone(),
        (None, None) => return Err(ClaimDenied::NotFound),
        (None, Some(queue)) => {
            facts.counters.work_seq = facts.counters.work_seq.saturating_add(1);
            work::resting(key, queue, facts.counters.work_seq, now)
        }
    };
    if let Some(blocked) = &row.blocked {
        return Err(ClaimDenied::Blocked(blocked.reason.clone()));
    }
    if let Some(holder) = lease::held_against(&row, owner, now) {
        return Err(ClaimDenied::Held(holder.clone()));
    }
    Ok(granted(facts, row, owner, ttl, now))
}

fn granted(
    facts: &mut WorkingSet,
    mut row: WorkRow,
    owner: &Owner,
    ttl: Duration,
    now: Timestamp,
) -> Granted {
    facts.counters.fence = facts.counters.fence.next();
    let taken_over = lease::grant(&mut row, owner, facts.counters.fence, ttl, now);
    facts.set_work(&row.key.clone(), Some(row.clone()));
    Granted { row, taken_over }
}
