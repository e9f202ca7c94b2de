//! The ids of signals that a run has heard, so that one that is sent again is heard once.

use std::collections::HashSet;

/// How many ids a run takes along when it begins anew.
const KEPT: usize = 10_000;
/// How many bytes of ids it takes along.
const KEPT_BYTES: usize = 1024 * 1024;

/// Names and ids of signals, in the order in which they were heard.
#[derive(Debug, Default)]
pub(super) struct KnownIds {
    order: Vec<(String, String)>,
    all: HashSet<(String, String)>,
}

impl KnownIds {
    /// Adds one. Answers whether it is new.
    pub(super) fn add(&mut self, id: (String, String)) -> bool {
        let new = self.all.insert(id.clone());
        if new {
            self.order.push(id);
        }
        new
    }

    /// The newest of them, as many as a run takes along within so many bytes; the oldest first.
    pub(super) fn kept(&self, bytes: usize) -> Vec<(String, String)> {
        let mut room = bytes.min(KEPT_BYTES);
        let newest = self.order.iter().rev().take(KEPT).take_while(|(signal, id)| {
            // Quotes, commas and escapes of the text that they become.
            let size = 2 * (signal.len() + id.len()) + 8;
            let fits = size <= room;
            room = room.saturating_sub(size);
            fits
        });
        let mut kept: Vec<_> = newest.cloned().collect();
        kept.reverse();
        kept
    }
}

impl FromIterator<(String, String)> for KnownIds {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(ids: I) -> Self {
        let mut known = Self::default();
        for id in ids {
            known.add(id);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_ids_are_kept_within_the_limits() {
        let id = |n: usize| ("go".to_owned(), format!("{n:0>1000}"));
        let mut known: KnownIds = (0..5_000).map(id).collect();
        assert!(!known.add(id(17)));
        let kept = known.kept(usize::MAX);
        assert!(kept.len() > 400 && kept.len() < 600, "{}", kept.len());
        assert_eq!(kept.last(), Some(&id(4_999)));
        assert_eq!(known.kept(3_000).len(), 1);
    }
}
