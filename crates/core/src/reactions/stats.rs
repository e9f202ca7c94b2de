//! Counters of reactions in this process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::stored::DefinitionState;
use crate::telemetry::{Count, REACTION_EVENTS};

/// The counters of a worker for reactions since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReactionsStats {
    /// The number of polls for work.
    pub claims: u64,
    /// The counters of each reaction, by name.
    pub reactions: BTreeMap<String, ReactionStats>,
}

/// The counters of one reaction in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReactionStats {
    /// Whether this process works for the reaction, or why not.
    pub standing: DefinitionState,
    /// Events routed to rows.
    pub routed: u64,
    /// Grants started.
    pub grants: u64,
    /// Events whose effects were committed.
    pub handled: u64,
    /// Failed attempts that are retried, and failed replays.
    pub failed: u64,
    /// Attempts that the handler deferred.
    pub deferred: u64,
    /// Keys and routers that were blocked.
    pub blocked: u64,
    /// Events that were parked.
    pub parked: u64,
    /// Grants abandoned because the lease was lost.
    pub lost: u64,
    /// Batches committed under grants.
    pub batches: u64,
    /// The time from the recording of the last granted event to its grant.
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
    pub(super) fn snapshot(&self, standing: DefinitionState) -> ReactionStats {
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
