//! What all requests of a server share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tidelock::store::{SharedStore, Store};
use tidelock::workflow::Client;
use tokio::sync::{Semaphore, watch};

use crate::guesses::Guesses;
use crate::hushed::Hushed;
use crate::inspected::Inspected;
use crate::options::Options;
use crate::rate::Rates;

/// As handlers have it.
pub(crate) type App = Arc<Shared>;

/// What all requests of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: SharedStore,
    pub(crate) runs: Client,
    pub(crate) options: Options,
    /// Seats of those who follow the log.
    pub(crate) followers: Arc<Semaphore>,
    /// Whether the server ends.
    pub(crate) ending: watch::Sender<bool>,
    /// What each token may still send.
    pub(crate) rates: Rates,
    pub(crate) guesses: Guesses,
    /// Refusals that the log was told of.
    pub(crate) refusals: Hushed,
    /// Seats of requests that are worked on.
    pub(crate) seats: Arc<Semaphore>,
    pub(crate) counts: Counts,
    /// What the program shows of itself.
    pub(crate) inspected: Inspected,
    /// The schema that the store had when it was first asked for: the program's own, which opening brings it to.
    pub(crate) schema: OnceLock<u32>,
}

impl Shared {
    pub(crate) fn new(store: SharedStore, options: Options) -> App {
        Arc::new(Self {
            runs: Client::new(SharedStore::clone(&store)),
            store,
            followers: Arc::new(Semaphore::new(options.followers)),
            rates: Rates::new(options.rate, options.tokens()),
            guesses: Guesses::default(),
            refusals: Hushed::default(),
            seats: Arc::new(Semaphore::new(options.at_once)),
            options,
            ending: watch::Sender::new(false),
            counts: Counts::default(),
            inspected: Inspected::default(),
            schema: OnceLock::new(),
        })
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Ends the answers that have no end by themselves.
    pub(crate) fn end(&self) {
        self.ending.send_replace(true);
    }
}

/// What the server counts about itself.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicUsize,
    /// Requests that came to no route.
    pub(crate) strays: AtomicU64,
    /// By route, that is by method and pattern, and by the class of their status. Bounded by the table of routes.
    answered: Mutex<BTreeMap<(&'static str, &'static str, u16), u64>>,
}

impl Counts {
    pub(crate) fn answered(&self, method: &'static str, path: &'static str, status: u16) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        *answered.entry((method, path, status / 100)).or_default() += 1;
    }

    pub(crate) fn by_route(&self) -> BTreeMap<(&'static str, &'static str, u16), u64> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn stray(&self) {
        self.strays.fetch_add(1, Ordering::Relaxed);
    }
}
