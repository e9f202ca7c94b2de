//! In-process diagnostics of the host program: its locks, state conflicts, metrics and readiness probes. A standalone server has no
//! locks and no conflicts to show, because both live in the memory of the program.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use schemars::JsonSchema;
use serde::Serialize;
use tidelock_core::lock::Locks;
use tidelock_core::state::{Change, Observer};

use crate::api::overview::Last;

/// The maximum number of record kinds with their own counters. All further kinds share one.
const KINDS: usize = 200;
/// The name of the shared counter.
const OTHERS: &str = "(others)";

/// A function that renders the metrics of a recorder in the Prometheus text format.
pub(crate) type Render = dyn Fn() -> String + Send + Sync;

/// A readiness probe. It returns the reason why a part of the program is not ready.
pub(crate) type Probe = dyn Fn() -> Result<(), String> + Send + Sync;

impl fmt::Debug for HostData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspected").field("locks", &self.locks).finish_non_exhaustive()
    }
}

/// The diagnostics that a server shows in addition to its store.
#[derive(Default)]
pub(crate) struct HostData {
    pub(crate) locks: OnceLock<Locks>,
    pub(crate) conflicts: OnceLock<Arc<Conflicts>>,
    pub(crate) metrics: OnceLock<Box<Render>>,
    /// The last overview and its time. Requests within a short period share it.
    pub(crate) overview: Last,
    /// The readiness probes of the program, by name.
    pub(crate) probes: Mutex<Vec<(String, Box<Probe>)>>,
}

impl HostData {
    pub(crate) fn probe(&self, name: String, probe: Box<Probe>) {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner).push((name, probe));
    }

    /// Returns the name of the first failing probe, and its reason.
    pub(crate) fn failing(&self) -> Option<(String, String)> {
        let probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        probes.iter().find_map(|(name, probe)| probe().err().map(|reason| (name.clone(), reason)))
    }
}

/// Counters of optimistic concurrency conflicts between state mutations, by the kind of record. The inspector shows them.
///
/// Pass it to the program's `StateRegistry` as an observer, and to the [server](crate::Server::conflicts).
#[derive(Debug, Default)]
pub struct Conflicts {
    kinds: Mutex<BTreeMap<String, Tally>>,
}

/// The counters of one kind of record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Tally {
    /// The number of successful mutations.
    pub(crate) mutations: u64,
    /// The number of attempts that these mutations needed.
    pub(crate) attempts: u64,
    /// The number of conflicts, in which a concurrent write was committed first.
    pub(crate) conflicts: u64,
}

impl Conflicts {
    /// Creates counters that start at zero.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn by_kind(&self) -> BTreeMap<String, Tally> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observer for Conflicts {
    fn mutated(&self, change: &Change<'_>) {
        let mut kind = change.key.kind();
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if kinds.len() >= KINDS && !kinds.contains_key(&kind) {
            OTHERS.clone_into(&mut kind);
        }
        let tally = kinds.entry(kind).or_default();
        tally.mutations += change.callers.len().max(1) as u64;
        tally.attempts += u64::from(change.attempts);
        tally.conflicts += u64::from(change.conflicts);
    }
}
