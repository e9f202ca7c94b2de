//! The states in use: finds the live combiner of a record, in constant amortised time.

use std::any::{Any, TypeId};
use std::sync::{Arc, Weak};

use crate::key::Key;

/// Below this number of entries, dead ones are not removed.
const FEWEST: usize = 64;

/// Weak references by record and type. Dead entries are removed whenever the number of entries has doubled since the last
/// removal, so that each insertion pays for a constant number of them.
#[derive(Debug)]
pub(super) struct Registry {
    entries: foldhash::HashMap<(Key, TypeId), Weak<dyn Any + Send + Sync>>,
    /// The number of entries at which dead ones are removed.
    purge_at: usize,
    /// The number of entries that removals have examined.
    #[cfg(test)]
    examined: usize,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            entries: foldhash::HashMap::default(),
            purge_at: FEWEST,
            #[cfg(test)]
            examined: 0,
        }
    }
}

impl Registry {
    /// Returns the live value of a record, or inserts a new one.
    pub(super) fn get_or_insert<V: Send + Sync + 'static>(
        &mut self,
        key: &Key,
        value: TypeId,
        make: impl FnOnce() -> V,
    ) -> Arc<V> {
        let id = (key.clone(), value);
        let live = self.entries.get(&id).and_then(Weak::upgrade).and_then(|live| live.downcast().ok());
        live.unwrap_or_else(|| {
            let made = Arc::new(make());
            let shared: Arc<dyn Any + Send + Sync> = made.clone();
            if self.entries.len() >= self.purge_at {
                self.purge();
            }
            self.entries.insert(id, Arc::downgrade(&shared));
            made
        })
    }

    fn purge(&mut self) {
        #[cfg(test)]
        {
            self.examined += self.entries.len();
        }
        self.entries.retain(|_, entry| entry.strong_count() > 0);
        self.purge_at = (2 * self.entries.len()).max(FEWEST);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::any::TypeId;
    use std::sync::Arc;

    use super::{FEWEST, Registry};
    use crate::key::Key;

    fn insert(registry: &mut Registry, n: usize) -> Arc<usize> {
        let key = Key::new("record", [n.to_string()]).unwrap();
        registry.get_or_insert(&key, TypeId::of::<usize>(), || n)
    }

    #[test]
    fn live_entries_are_examined_a_constant_number_of_times() {
        let mut registry = Registry::default();
        let live: Vec<_> = (0..10_000).map(|n| insert(&mut registry, n)).collect();
        assert!(registry.examined <= 2 * live.len(), "{} entries examined", registry.examined);
        assert!(Arc::ptr_eq(&insert(&mut registry, 7), &live[7]), "a live value is shared");
    }

    #[test]
    fn dead_entries_do_not_accumulate() {
        let mut registry = Registry::default();
        for n in 0..10_000 {
            drop(insert(&mut registry, n));
        }
        assert!(registry.entries.len() <= FEWEST + 1, "{} entries kept", registry.entries.len());
    }
}
