//! What the search has tried: which operations were placed, and which state they led to.
//!
//! Of two ways to the same state with the same answered operations, one that needed fewer of those that nobody knows about
//! has more of them left: whatever leads on from the other leads on from it, too. So the other need not be tried.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use super::taken::Taken;

/// A set of operations, as bits.
pub(super) type Set = Box<[u64]>;

/// What was tried.
pub(super) struct Seen<S>(HashMap<(Set, S), Vec<Set>>);

impl<S: Clone + Eq + Hash> Seen<S> {
    pub(super) fn new() -> Self {
        Self(HashMap::new())
    }

    /// Whether it is new, and nothing better was tried. From now on it was. `maybes` are those of the others that were
    /// placed, and could be placed still.
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

/// Whether everything of one set is in the other.
fn within(part: &[u64], whole: &[u64]) -> bool {
    part.iter().zip(whole).all(|(part, whole)| part & !whole == 0)
}
