//! Cache of recently unwrapped keys, so that not every value needs a read of the store. Entries expire after a stated
//! time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidelock_core::clock::Timestamp;
use tidelock_core::id::Epoch;

use crate::cipher::Secret;

/// The known state of a subject's key.
#[derive(Clone, Debug)]
pub(crate) enum KeyKnowledge {
    Key(Arc<Secret>),
    Forgotten(Timestamp),
}

/// A cache of a limited number of keys: those of this generation and of the one before.
pub(crate) struct Cache {
    half: usize,
    keep: Duration,
    kept: Mutex<CachedKey>,
}

#[derive(Default)]
struct CachedKey {
    young: HashMap<String, Entry>,
    old: HashMap<String, Entry>,
    /// When the young generation began.
    began: Option<Timestamp>,
    /// The epoch of the store in which the keys were read.
    epoch: Option<Epoch>,
    /// Counts deletions in this cache. A key that was read before a deletion and arrives afterwards is not cached.
    forgotten: u64,
}

#[derive(Clone)]
struct Entry {
    known: KeyKnowledge,
    asked: Timestamp,
}

/// The time at which a read of the store began. Its result counts from then on, not from its arrival.
#[derive(Clone, Copy)]
pub(crate) struct ReadStart {
    at: Timestamp,
    forgotten: u64,
}

impl Cache {
    /// Caches about `most` keys, each for at most `keep`.
    pub(crate) fn new(most: usize, keep: Duration) -> Self {
        Self { half: most.div_ceil(2), keep, kept: Mutex::default() }
    }

    /// Drops every key when the history of the store was cut: a key may be lost there, and the values that it seals
    /// with it.
    pub(crate) fn keep_to(&self, epoch: Epoch) {
        let mut kept = self.kept.lock();
        if kept.epoch.replace(epoch).is_some_and(|before| before != epoch) {
            let forgotten = kept.forgotten.wrapping_add(1);
            *kept = CachedKey { forgotten, epoch: Some(epoch), ..CachedKey::default() };
        }
    }

    pub(crate) fn get(&self, subject: &str, now: Timestamp) -> Option<KeyKnowledge> {
        let mut kept = self.kept.lock();
        let entry = kept.young.get(subject).or_else(|| kept.old.get(subject))?;
        if self.is_fresh(entry.asked, now) {
            return Some(entry.known.clone());
        }
        kept.remove(subject);
        None
    }

    /// Records the start of a read. Must be called before the store is read.
    pub(crate) fn ask(&self, now: Timestamp) -> ReadStart {
        ReadStart { at: now, forgotten: self.kept.lock().forgotten }
    }

    /// Caches the result of a read, unless a key was dropped here in the meantime.
    pub(crate) fn answer(&self, subject: &str, known: &KeyKnowledge, asked: ReadStart) {
        let mut kept = self.kept.lock();
        if self.half == 0 || self.keep.is_zero() || kept.forgotten != asked.forgotten {
            return;
        }
        // Keys do not stay in memory for long, even without further reads of them.
        let aged = kept.began.is_none_or(|began| !self.is_fresh(began, asked.at));
        if aged || kept.young.len() >= self.half {
            kept.old = std::mem::take(&mut kept.young);
            kept.began = Some(asked.at);
        }
        kept.young.insert(subject.to_owned(), Entry { known: known.clone(), asked: asked.at });
    }

    /// Drops a destroyed key, and the results of reads in flight.
    pub(crate) fn forget(&self, subject: &str) {
        let mut kept = self.kept.lock();
        kept.forgotten = kept.forgotten.wrapping_add(1);
        kept.remove(subject);
    }

    /// Returns whether an entry is still valid. A clock that went back does not make an entry younger.
    fn is_fresh(&self, since: Timestamp, now: Timestamp) -> bool {
        now >= since && !since.after(self.keep).has_come(now)
    }
}

impl CachedKey {
    fn remove(&mut self, subject: &str) {
        self.young.remove(subject);
        self.old.remove(subject);
    }
}

#[cfg(test)]
mod tests {
    use super::{Cache, KeyKnowledge};
    use std::time::Duration;
    use tidelock_core::clock::Timestamp;
    use tidelock_core::id::Epoch;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.after(Duration::from_secs(seconds))
    }

    fn known() -> KeyKnowledge {
        KeyKnowledge::Forgotten(at(0))
    }

    fn cache(most: usize) -> Cache {
        Cache::new(most, Duration::from_secs(60))
    }

    #[test]
    fn the_time_counts_from_the_question() {
        let cache = cache(10);
        let asked = cache.ask(at(10));
        cache.answer("a", &known(), asked);
        assert!(cache.get("a", at(10)).is_some() && cache.get("a", at(69)).is_some());
        assert!(cache.get("a", at(70)).is_none());
        assert!(cache.get("a", at(10)).is_none(), "what was too old is gone");
    }

    #[test]
    fn d2_keys_of_a_lost_history_are_dropped() {
        let cache = cache(10);
        cache.keep_to(Epoch(1));
        let early = cache.ask(at(1));
        cache.answer("a", &known(), early);
        cache.keep_to(Epoch(1));
        assert!(cache.get("a", at(1)).is_some());
        cache.keep_to(Epoch(2));
        cache.answer("b", &known(), early);
        assert!(cache.get("a", at(1)).is_none() && cache.get("b", at(1)).is_none());
    }

    #[test]
    fn an_answer_from_before_a_forgetting_is_not_kept() {
        let cache = cache(10);
        let (early, other) = (cache.ask(at(1)), cache.ask(at(1)));
        cache.answer("a", &known(), early);
        cache.forget("a");
        assert!(cache.get("a", at(1)).is_none());
        cache.answer("a", &known(), early);
        cache.answer("b", &known(), other);
        assert!(cache.get("a", at(1)).is_none() && cache.get("b", at(1)).is_none());
        cache.answer("a", &known(), cache.ask(at(2)));
        assert!(cache.get("a", at(2)).is_some());
    }

    #[test]
    fn it_is_bounded_and_keeps_what_came_last() {
        let cache = cache(10);
        for number in 0..1_000 {
            cache.answer(&number.to_string(), &known(), cache.ask(at(1)));
        }
        let kept = (0..1_000).filter(|number: &u32| cache.get(&number.to_string(), at(1)).is_some()).count();
        assert!((5..=10).contains(&kept), "{kept} are kept");
        assert!(cache.get("999", at(1)).is_some());
    }

    #[test]
    fn unused_keys_leave_the_memory() {
        let cache = cache(1_000);
        cache.answer("a", &known(), cache.ask(at(0)));
        cache.answer("b", &known(), cache.ask(at(60)));
        cache.answer("c", &known(), cache.ask(at(120)));
        let kept = cache.kept.lock();
        assert!(!kept.young.contains_key("a") && !kept.old.contains_key("a"));
        assert!(kept.old.contains_key("b") && kept.young.contains_key("c"));
    }
}
