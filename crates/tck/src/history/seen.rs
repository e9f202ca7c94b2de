//! Memory of the search: which operations were placed, and which state they led to.
//!
//! Consider two paths to the same state with the same answered operations. The path that placed fewer operations with
//! unknown outcomes has more of them left, so every continuation of the other path also continues this one. The other
//! path need not be tried.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use super::taken::Taken;

/// A set of operations as a bit set.
pub(super) type Set = Box<[u64]>;

/// The visited combinations.
pub(super) struct Seen<S>(HashMap<(Set, S), Vec<Set>>);

impl<S: Clone + Eq + Hash> Seen<S> {
    pub(super) fn new() -> Self {
        Self(HashMap::new())
    }

    /// Returns whether the combination is new and no better one was visited, and records it. `maybes` contains the
    /// placed operations with unknown outcomes whose end has not passed.
    pub(super) fn is_new(&mut self, taken: &Taken, maybes: Set, state: &S) -> bool {
        match self.0.entry((taken.known(), state.clone())) {
            Entry::Vacant(vacant) => {
                vacant.insert(vec![maybes]);
                true
            }
            Entry::Occupied(mut tried) => {
                let tried = tried.get_mut();
                if tried.iter().any(|fewer| within(fewer, &maybes)) {
                    return false;
                }
                tried.retain(|more| !within(&maybes, more));
                tried.push(maybes);
                true
            }
        }
    }
}

/// Returns whether one set is a subset of the other.
fn within(part: &[u64], whole: &[u64]) -> bool {
    part.iter().zip(whole).all(|(part, whole)| part & !whole == 0)
}
