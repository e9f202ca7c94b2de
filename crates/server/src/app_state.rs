//! Shared application state of a server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tidelock_core::store::{SharedStore, Store};
use tidelock_core::workflow::WorkflowClient;
use tokio::sync::{Semaphore, watch};

use crate::auth_backoff::AuthBackoff;
use crate::host::HostData;
use crate::log_throttle::LogThrottle;
use crate::options::ServerOptions;
use crate::rate_limit::RateLimits;

/// The shared state as handlers receive it.
pub(crate) type App = Arc<AppState>;

/// The state that all requests of a server share.
#[derive(Debug)]
pub(crate) struct AppState {
    pub(crate) store: SharedStore,
    pub(crate) runs: WorkflowClient,
    pub(crate) options: ServerOptions,
    /// Permits of the clients that follow the log.
    pub(crate) followers: Arc<Semaphore>,
    /// Whether the server is shutting down.
    pub(crate) ending: watch::Sender<bool>,
    /// The rate limits of the tokens.
    pub(crate) rates: RateLimits,
    pub(crate) guesses: AuthBackoff,
    /// Rate limit for log lines about refused requests.
    pub(crate) refusals: LogThrottle,
    /// Permits of the requests in flight.
    pub(crate) seats: Arc<Semaphore>,
    pub(crate) counts: Counts,
    /// The diagnostics of the host program.
    pub(crate) inspected: HostData,
    /// The schema version of the store at the first readiness check. It equals the program's version, because opening a store migrates it.
    pub(crate) schema: OnceLock<u32>,
}

impl AppState {
    pub(crate) fn new(store: SharedStore, options: ServerOptions) -> App {
        Arc::new(Self {
            runs: WorkflowClient::new(SharedStore::clone(&store)),
            store,
            followers: Arc::new(Semaphore::new(options.followers)),
            rates: RateLimits::new(options.rate, options.tokens()),
            guesses: AuthBackoff::default(),
            refusals: LogThrottle::default(),
            seats: Arc::new(Semaphore::new(options.at_once)),
            options,
            ending: watch::Sender::new(false),
            counts: Counts::default(),
            inspected: HostData::default(),
            schema: OnceLock::new(),
        })
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Ends the responses that would otherwise never end.
    pub(crate) fn end(&self) {
        self.ending.send_replace(true);
    }
}

/// Counters of the server.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicUsize,
    /// Requests that matched no route.
    pub(crate) strays: AtomicU64,
    /// Responses by method, path pattern and status class. The route table bounds the number of entries.
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
