//! What reactions have done in this process, counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::stored::Standing;
use crate::telemetry::{Count, REACTION_EVENTS};

/// The counters of a worker for reactions since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// How often work was asked for.
    pub claims: u64,
    /// What each reaction has done, by its name.
    pub reactions: BTreeMap<String, ReactionStats>,
}

/// What one reaction has done in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReactionStats {
    /// Whether this process works for the reaction, and why not.
    pub standing: Standing,
    /// Events that were routed to rows.
    pub routed: u64,
    /// Grants that were begun.
    pub grants: u64,
    /// Events whose effects were committed.
    pub handled: u64,
    /// Attempts that failed, and are made again.
    pub failed: u64,
    /// Attempts that put themselves off.
    pub deferred: u64,
    /// Keys that were blocked.
    pub blocked: u64,
    /// Events that were parked.
    pub parked: u64,
    /// Grants that were given up because the lease was lost.
    pub lost: u64,
    /// Batches that were committed under grants.
    pub batches: u64,
    /// How long the event that was granted last had waited by then.
    pub lag: Duration,
}

/// The counters of one reaction.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) routed: Count,
    pub(super) grants: Count,
    pub(super) handled: Count,
    pub(super) failed: Count,
    pub(super) deferred: Count,
    pub(super) blocked: Count,
    pub(super) parked: Count,
    pub(super) lost: Count,
    pub(super) batches: Count,
    pub(super) lag_micros: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            routed: Count::of(REACTION_EVENTS, "routed"),
            grants: Count::here(),
            handled: Count::of(REACTION_EVENTS, "handled"),
            failed: Count::of(REACTION_EVENTS, "failed"),
            deferred: Count::of(REACTION_EVENTS, "deferred"),
            blocked: Count::of(REACTION_EVENTS, "blocked"),
            parked: Count::of(REACTION_EVENTS, "parked"),
            lost: Count::of(REACTION_EVENTS, "lost"),
            batches: Count::here(),
            lag_micros: AtomicU64::new(0),
        }
    }
}

impl Counters {
    pub(super) fn snapshot(&self, standing: Standing) -> ReactionStats {
        ReactionStats {
            standing,
            routed: self.routed.get(),
            grants: self.grants.get(),
            handled: self.handled.get(),
            failed: self.failed.get(),
            deferred: self.deferred.get(),
            blocked: self.blocked.get(),
            parked: self.parked.get(),
            lost: self.lost.get(),
            batches: self.batches.get(),
            lag: Duration::from_micros(self.lag_micros.load(Ordering::Relaxed)),
        }
    }
}
