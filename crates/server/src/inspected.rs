//! What the program that a server is mounted in lets it see of itself: its locks, and how its state is changed. A server that stands
//! alone sees neither, because both live in the memory of the program.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use schemars::JsonSchema;
use serde::Serialize;
use tidelock::lock::Locks;
use tidelock::state::{Change, Observer};

use crate::api::overview::Last;

/// So many kinds of records are told apart; the others are counted together.
const KINDS: usize = 200;
/// The name of those.
const OTHERS: &str = "(others)";

/// Gives what a recorder of metrics has, as Prometheus reads it.
pub(crate) type Render = dyn Fn() -> String + Send + Sync;

/// Says why a part of the program is of no use at the moment; nothing when it is.
pub(crate) type Probe = dyn Fn() -> Result<(), String> + Send + Sync;

impl fmt::Debug for Inspected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspected").field("locks", &self.locks).finish_non_exhaustive()
    }
}

/// What a server sees beside its store.
#[derive(Default)]
pub(crate) struct Inspected {
    pub(crate) locks: OnceLock<Locks>,
    pub(crate) conflicts: OnceLock<Arc<Conflicts>>,
    pub(crate) metrics: OnceLock<Box<Render>>,
    /// What the overview said, and when: whoever asks within a moment gets the same.
    pub(crate) overview: Last,
    /// What the program says about its readiness.
    pub(crate) probes: Mutex<Vec<(String, Box<Probe>)>>,
}

impl Inspected {
    pub(crate) fn probe(&self, name: String, probe: Box<Probe>) {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner).push((name, probe));
    }

    /// The first part of the program that is of no use, and why.
    pub(crate) fn failing(&self) -> Option<(String, String)> {
        let probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        probes.iter().find_map(|(name, probe)| probe().err().map(|reason| (name.clone(), reason)))
    }
}

/// Counts how often changes of state met others that were faster, by the kind of record: for the page of the inspector. Give it
/// to the program's `States` as observer, and to the [server](crate::Server::conflicts).
#[derive(Debug, Default)]
pub struct Conflicts {
    kinds: Mutex<BTreeMap<String, Tally>>,
}

/// What was counted of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Tally {
    /// Mutations that ended well.
    pub(crate) mutations: u64,
    /// How often they were tried.
    pub(crate) attempts: u64,
    /// How often others were faster.
    pub(crate) conflicts: u64,
}

impl Conflicts {
    /// Nothing was counted yet.
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
