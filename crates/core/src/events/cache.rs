//! In-memory cache of aggregates, with a lock for each. Commands on one stream in this process run one after another.

use std::any::{Any, TypeId};
use std::sync::Arc;
use std::time::Instant;

use foldhash::HashMap;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::Events;
use super::aggregate::{Aggregate, Loaded};
use super::error::EventsError;
use crate::key::Key;
use crate::runtime::contention::Contention;
use crate::runtime::timer::sleep_until;

/// The lock on one aggregate inside this process.
pub(super) type CacheGuard<A> = OwnedMutexGuard<CachedAggregate<A>>;

/// The cache entry of one aggregate. The holder of the lock decides.
type Slot<A> = Arc<tokio::sync::Mutex<CachedAggregate<A>>>;

/// The cached knowledge of an aggregate.
pub(super) struct CachedAggregate<A> {
    /// Its state; `None` when it is unknown.
    pub(super) loaded: Option<Loaded<A>>,
    /// The contention with other processes that write the stream.
    pub(super) contention: Contention,
}

impl<A> Default for CachedAggregate<A> {
    fn default() -> Self {
        Self { loaded: None, contention: Contention::default() }
    }
}

type Slots = HashMap<(Key, TypeId), Arc<dyn Any + Send + Sync>>;

/// A two-generation cache with a limited number of aggregates. Aggregates that neither the current nor the previous
/// generation has used are dropped.
pub(super) struct Cache {
    half: usize,
    generations: Mutex<(Slots, Slots)>,
}

impl Events {
    /// Waits for the lock on an aggregate, at most until the deadline.
    pub(super) async fn turn<A: Aggregate>(
        &self,
        stream: &Key,
        deadline: Instant,
    ) -> Result<CacheGuard<A>, EventsError> {
        let slot = self.cache.slot::<A>(stream);
        tokio::select! {
            biased;
            turn = slot.lock_owned() => Ok(turn),
            () = sleep_until(deadline) => {
                Err(EventsError::Turn { stream: stream.clone(), waited: self.options.limit })
            }
        }
    }
}

impl Cache {
    pub(super) fn new(most: usize) -> Self {
        Self { half: most.div_ceil(2), generations: Mutex::default() }
    }

    fn slot<A: Aggregate>(&self, stream: &Key) -> Slot<A> {
        if self.half == 0 {
            return Slot::<A>::default();
        }
        let id = (stream.clone(), TypeId::of::<A>());
        let mut generations = self.generations.lock();
        let (young, old) = &mut *generations;
        let known = young.get(&id).cloned().or_else(|| old.remove(&id));
        let slot =
            known.unwrap_or_else(|| Arc::new(tokio::sync::Mutex::new(CachedAggregate::<A>::default())));
        if !young.contains_key(&id) {
            if young.len() >= self.half {
                *old = std::mem::take(young);
            }
            young.insert(id, Arc::clone(&slot));
        }
        slot.downcast().unwrap_or_default()
    }
}
