//! Aggregates that are kept in memory, each with its own turn: commands on one stream decide one after another.

use std::any::{Any, TypeId};
use std::sync::Arc;

use foldhash::HashMap;
use parking_lot::Mutex;

use super::aggregate::{Aggregate, Loaded};
use crate::key::Key;

/// The place of one aggregate. Whoever holds it decides; `None` when nothing is known.
pub(super) type Place<A> = Arc<tokio::sync::Mutex<Option<Loaded<A>>>>;

type Places = HashMap<(Key, TypeId), Arc<dyn Any + Send + Sync>>;

/// About so many aggregates: those of this generation and of the one before. What neither used is forgotten.
pub(super) struct Cache {
    half: usize,
    generations: Mutex<(Places, Places)>,
}

impl Cache {
    pub(super) fn new(most: usize) -> Self {
        Self { half: most.div_ceil(2), generations: Mutex::default() }
    }

    pub(super) fn place<A: Aggregate>(&self, stream: &Key) -> Place<A> {
        if self.half == 0 {
            return Place::<A>::default();
        }
        let id = (stream.clone(), TypeId::of::<A>());
        let mut generations = self.generations.lock();
        let (young, old) = &mut *generations;
        let known = young.get(&id).cloned().or_else(|| old.remove(&id));
        let place = known.unwrap_or_else(|| Arc::new(tokio::sync::Mutex::new(None::<Loaded<A>>)));
        if !young.contains_key(&id) {
            if young.len() >= self.half {
                *old = std::mem::take(young);
            }
            young.insert(id, Arc::clone(&place));
        }
        place.downcast().unwrap_or_default()
    }
}
