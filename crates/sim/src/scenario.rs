//! The scenario of one seed: a service, its clients, and the checks.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tidelock::{Service, Tidelock};

use crate::rng::Rng;

/// The error of a client or a check. Any error converts with `?`, and so does text.
pub type SimError = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type Build = Arc<dyn Fn(Tidelock) -> Service + Send + Sync>;
pub(crate) type Client = Arc<dyn Fn(Tidelock) -> BoxFuture<'static, Result<(), SimError>> + Send + Sync>;
pub(crate) type Check = Box<dyn FnOnce(Tidelock) -> BoxFuture<'static, Result<(), SimError>> + Send>;
pub(crate) type Invariant = Box<dyn Fn() -> Result<(), String> + Send>;

/// The scenario of one seed, which the closure of [`simulate`](crate::simulate) fills in.
///
/// The closure runs once per seed, and again for each replay. State of the outside world belongs into it, so that each run
/// starts with a fresh one.
pub struct Sim {
    pub(crate) seed: u64,
    pub(crate) rng: Rng,
    pub(crate) processes: usize,
    pub(crate) faults: u64,
    pub(crate) during: Duration,
    pub(crate) patience: Duration,
    pub(crate) services: Vec<Build>,
    pub(crate) clients: Vec<Client>,
    pub(crate) checks: Vec<Check>,
    pub(crate) invariants: Vec<Invariant>,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim")
            .field("seed", &self.seed)
            .field("processes", &self.processes)
            .finish_non_exhaustive()
    }
}

impl Sim {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5851_f42d_4c95_7f2d);
        let processes = 1 + rng.index(3);
        let during = [1, 4, 15].get(rng.index(3)).copied().unwrap_or(5);
        Self {
            seed,
            rng,
            processes,
            faults: 8,
            during: Duration::from_secs(during),
            patience: Duration::from_mins(30),
            services: Vec::new(),
            clients: Vec::new(),
            checks: Vec::new(),
            invariants: Vec::new(),
        }
    }

    /// Returns the seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns a generator for choices of the scenario, such as sizes and orders. The seed determines its numbers.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Sets the number of processes that run the service. By default, the seed draws one to three.
    pub fn processes(&mut self, count: usize) -> &mut Self {
        self.processes = count.max(1);
        self
    }

    /// Sets the highest number of faults. The default is 8. With 0, only the order of tasks varies.
    pub fn faults(&mut self, most: u64) -> &mut Self {
        self.faults = most;
        self
    }

    /// Sets the simulated time during which faults occur. By default, the seed draws it, up to 15 seconds.
    pub fn during(&mut self, time: Duration) -> &mut Self {
        self.during = time;
        self
    }

    /// Sets the longest simulated time from the last fault until all work has ended. The default is 30 minutes. Set a longer
    /// one for workflows that sleep longer: simulated time costs nothing while nothing happens.
    pub fn patience(&mut self, time: Duration) -> &mut Self {
        self.patience = time;
        self
    }

    /// Adds the service. Every process builds and starts it, again after each crash. A second call adds a service of another
    /// shape, which every second process runs, as during a deployment.
    pub fn service(&mut self, build: impl Fn(Tidelock) -> Service + Send + Sync + 'static) -> &mut Self {
        self.services.push(Arc::new(build));
        self
    }

    /// Adds a client, which is a process of its own and suffers faults. The closure is cloned and called again after a crash
    /// and after an error, until it succeeds once. It must therefore use ids, as real clients do.
    pub fn client<F, Fut>(&mut self, client: F) -> &mut Self
    where
        F: FnOnce(Tidelock) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<(), SimError>> + Send + 'static,
    {
        self.clients.push(Arc::new(move |tide| Box::pin(client.clone()(tide))));
        self
    }

    /// Adds a check. It runs without faults once all clients have succeeded, all runs have ended and nothing is left to do.
    pub fn check<F, Fut>(&mut self, check: F) -> &mut Self
    where
        F: FnOnce(Tidelock) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), SimError>> + Send + 'static,
    {
        self.checks.push(Box::new(move |tide| Box::pin(check(tide))));
        self
    }

    /// Adds an invariant of the outside world. It is checked after every turn of every task, so it must be cheap.
    pub fn always(&mut self, invariant: impl Fn() -> Result<(), String> + Send + 'static) -> &mut Self {
        self.invariants.push(Box::new(invariant));
        self
    }
}
