//! The baseline: an array with a tokio mutex for each key, without lookups or removals.

use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard};

use super::{Failed, Keyed};

/// Mutexes, one for each key.
#[derive(Clone, Debug)]
pub struct Mutexes(Arc<[Mutex<()>]>);

impl Keyed for Mutexes {
    /// The index in the array.
    type Key = usize;
    type Guard<'a> = MutexGuard<'a, ()>;

    fn with_keys(count: u32) -> Result<(Self, Vec<usize>), Failed> {
        let mutexes: Arc<[_]> = (0..count).map(|_| Mutex::new(())).collect();
        let keys = (0..mutexes.len()).collect();
        Ok((Self(mutexes), keys))
    }

    async fn lock<'a>(&'a self, key: &'a usize) -> Result<Self::Guard<'a>, Failed> {
        match self.0.get(*key) {
            Some(mutex) => Ok(mutex.lock().await),
            None => Err("there is no such mutex".into()),
        }
    }
}
