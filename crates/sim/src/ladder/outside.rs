//! The outside world: systems that are called with a key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidelock::prelude::*;
use tokio::time::sleep;

use crate::rng::Rng;

/// The outside world of a seed.
#[derive(Debug)]
pub struct Outside {
    calls: Mutex<BTreeMap<String, u64>>,
    failures: Mutex<BTreeMap<String, u64>>,
    rng: Mutex<Rng>,
}

impl Outside {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            calls: Mutex::default(),
            failures: Mutex::default(),
            rng: Mutex::new(Rng::new(seed)),
        })
    }

    /// Calls the outside world: sometimes slowly, sometimes in vain.
    pub(super) async fn call(&self, key: String) -> Result<(), Failure> {
        let (slow, fails, first) = {
            let mut rng = self.rng.lock();
            let slow = if rng.one_in(8) { rng.below(8_000) } else { rng.below(20) };
            (slow, rng.one_in(10), rng.one_in(2))
        };
        if first {
            sleep(Duration::from_millis(slow)).await;
        }
        if fails && self.may_fail(&key) {
            return Err(Failure::new("the outside world is busy"));
        }
        *self.calls.lock().entry(key).or_default() += 1;
        if !first {
            sleep(Duration::from_millis(slow)).await;
        }
        Ok(())
    }

    /// Returns whether a call may fail. Attempts are limited, so those of one key fail twice at most.
    fn may_fail(&self, key: &str) -> bool {
        let mut failures = self.failures.lock();
        let failed = failures.entry(key.to_owned()).or_default();
        *failed += 1;
        *failed <= 2
    }

    /// Waits for a random time below a number of milliseconds, and mostly for none.
    pub(super) async fn pause(&self, most: u64) {
        let millis = {
            let mut rng = self.rng.lock();
            if rng.one_in(2) { 0 } else { rng.below(most) }
        };
        if millis > 0 {
            sleep(Duration::from_millis(millis)).await;
        }
    }

    /// Notes that work with a key has begun.
    pub(super) fn begin(&self, key: &str) {
        *self.calls.lock().entry(format!("begun {key}")).or_default() += 1;
    }

    /// Returns how often the outside world was called with a key.
    pub(super) fn calls(&self, key: &str) -> u64 {
        self.calls.lock().get(key).copied().unwrap_or(0)
    }

    /// Returns the keys of all calls that begin with a text.
    pub(super) fn keys(&self, begin: &str) -> Vec<String> {
        self.calls.lock().keys().filter(|key| key.starts_with(begin)).cloned().collect()
    }
}
