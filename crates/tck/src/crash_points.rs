//! Crash points: a scenario runs again and again, and its process crashes at another store call each time.
//!
//! A point lies before and after each call that changes the store. After a point the process is gone from the view of the store:
//! no later call of it arrives, and none returns. A crash before a read, or before a claim, leaves the same store as a crash
//! after the call before it, so these have no points of their own. A claim that grants nothing has none either.
//!
//! After the crash the leases of the process expire and a new process continues. The end state must be that of a run without
//! crashes. Pairs of points crash the second process as well.
//!
//! On a store without durability all points are tried, and a sample of the pairs. Other stores get a sample of both.
//! `TIDELOCK_CRASH_PAIRS` sets the size of the samples.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tidelock_core::store::SharedStore;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::dump::standing;
use crate::env::Env;
use crate::reacting::{LEASE, until};
use crate::rng::Rng;
use crate::run;

mod layer;

/// Size of the sample of pairs.
const PAIRS: u64 = 100;
/// Size of the samples on a durable store.
const SAMPLE: u64 = 2;
/// Number of databases that are tried at the same time.
const AT_ONCE: usize = 8;
/// Time limit for one process on a busy machine. A process that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);
/// A scenario with more points does not come to an end.
const MOST_POINTS: usize = 500;

/// A scenario in which a process may crash at any point.
#[async_trait(?Send)]
pub(crate) trait Scenario: Send + Sync + 'static {
    /// Prepares the database, before the first process.
    async fn prepare(&self, _env: &Env) {}

    /// Runs one process until everything is done. A crash drops it. The next process calls it again.
    async fn live(&self, process: &Process);

    /// Checks what must hold right after a crash, before the next process.
    async fn crashed(&self, _env: &Env) {}

    /// Returns the end state: what must be the same wherever processes crashed.
    async fn end(&self, env: &Env, outside: &Outside) -> Value;
}

/// One process of a scenario.
pub(crate) struct Process {
    /// The database, past the crash point.
    pub(crate) env: Env,
    /// The store as the process sees it.
    pub(crate) store: SharedStore,
    pub(crate) outside: Outside,
}

/// Effects outside the store, as one process makes them. A process that has crashed makes none.
#[derive(Clone)]
pub(crate) struct Outside {
    made: Arc<Mutex<Vec<String>>>,
    crash: Arc<CrashPoint>,
}

impl Outside {
    pub(crate) fn make(&self, effect: impl Into<String>) {
        if !self.crash.dead.load(Ordering::SeqCst) {
            self.effects().push(effect.into());
        }
    }

    /// Returns all effects in their order. An effect that was repeated after a crash is there more than once.
    pub(crate) fn made(&self) -> Vec<String> {
        self.effects().clone()
    }

    /// Returns each effect once.
    pub(crate) fn kinds(&self) -> BTreeSet<String> {
        self.effects().iter().cloned().collect()
    }

    fn effects(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The point at which a process crashes.
#[derive(Debug)]
struct CrashPoint {
    at: usize,
    passed: AtomicUsize,
    dead: AtomicBool,
    died: Notify,
    /// Calls that were sent and have no answer yet.
    in_flight: AtomicUsize,
}

impl CrashPoint {
    fn new(at: usize) -> Arc<Self> {
        let (passed, in_flight) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { at, passed, dead: AtomicBool::new(false), died: Notify::new(), in_flight })
    }

    /// Passes a point, or crashes there.
    async fn pass(&self) {
        self.alive().await;
        if self.passed.fetch_add(1, Ordering::SeqCst) == self.at {
            self.dead.store(true, Ordering::SeqCst);
            self.died.notify_one();
        }
        self.alive().await;
    }

    /// Never returns in a process that has crashed.
    async fn alive(&self) {
        if self.dead.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

/// The points at which the processes of one run crash, one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Crashes(Vec<usize>);

impl fmt::Display for Crashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("without a crash"),
            [point] => write!(f, "crash at point {point}"),
            points => write!(f, "crashes at points {points:?}"),
        }
    }
}

/// The result of one run.
struct RunResult {
    crashes: Crashes,
    /// How many of the crashes happened before the work was done.
    crashed: usize,
    /// The points that the first process passed.
    points: usize,
    end: Value,
}

/// Runs the scenario without a crash, with a crash at every point, and with pairs of crashes, and compares the end states.
///
/// # Panics
/// If a run ends in another state than the one without a crash, or does not end.
pub(crate) async fn every_crash_point(name: &str, env: &Env, scenario: impl Scenario) {
    let scenario: Arc<dyn Scenario> = Arc::new(scenario);
    let (durable, seed) = (env.capabilities().durable, run::seed());
    let default = if durable { SAMPLE } else { PAIRS };
    let sample = run::setting("TIDELOCK_CRASH_PAIRS", default) as usize;
    let whole = once(env, &scenario, &[]).await.expect("a run without crashes ends");
    let mut rng = Rng::new(seed);
    let mut attempts = Attempts { name, whole: &whole, seed, crashes: 0 };
    if durable {
        let all: Vec<Vec<usize>> = (0..sample).map(|_| vec![rng.below(whole.points)]).collect();
        attempts.check(env, &scenario, all).await;
    } else {
        for first in (0..).step_by(AT_ONCE) {
            assert!(first < MOST_POINTS, "{name}: after {first} points it still does not end");
            let all = (first..first + AT_ONCE).map(|point| vec![point]).collect();
            // The number of calls is not exactly the same in each run, so the last point is one that no run reaches.
            if !attempts.check(env, &scenario, all).await {
                break;
            }
        }
    }
    let singles = attempts.crashes;
    let mut pairs: Vec<Vec<usize>> =
        (0..sample).map(|_| vec![rng.below(whole.points), rng.below(whole.points)]).collect();
    while !pairs.is_empty() {
        let some = pairs.split_off(pairs.len().saturating_sub(AT_ONCE));
        attempts.check(env, &scenario, some).await;
    }
    let (both, backend) = (attempts.crashes - singles, env.backend.name());
    run::say(&format!("tck: {name} on {backend}: {singles} single crashes, {both} in pairs, seed {seed}"));
    assert!(attempts.crashes > 0, "{name}: no process crashed");
}

/// The runs of a scenario so far.
struct Attempts<'a> {
    name: &'a str,
    whole: &'a RunResult,
    seed: u64,
    crashes: usize,
}

impl Attempts<'_> {
    /// Checks some runs, concurrently. Returns whether a process crashed in each of them.
    async fn check(&mut self, env: &Env, scenario: &Arc<dyn Scenario>, all: Vec<Vec<usize>>) -> bool {
        let mut running = Vec::new();
        for points in &all {
            running.push(once(env, scenario, points));
        }
        let mut each_crashed = true;
        for run in running {
            let (name, seed) = (self.name, self.seed);
            let RunResult { crashes, crashed, end, .. } =
                run.await.unwrap_or_else(|_| panic!("{name}: a run failed; seed {seed}"));
            let expected = &self.whole.end;
            assert!(
                end == *expected,
                "{name}, {crashes}: the end state differs; seed {seed}\nwithout a crash {expected:#}\nwith it {end:#}"
            );
            self.crashes += crashed;
            each_crashed &= crashed > 0;
        }
        each_crashed
    }
}

/// Starts a run on a thread and a database of its own. One thread keeps the order of the calls as stable as possible.
fn once(env: &Env, scenario: &Arc<dyn Scenario>, points: &[usize]) -> JoinHandle<RunResult> {
    let (backend, scenario) = (Arc::clone(&env.backend), Arc::clone(scenario));
    let crashes = Crashes(points.to_vec());
    tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("the machine has threads");
        let ran = runtime.block_on(several_lives(Env::open(backend), scenario.as_ref(), crashes));
        // Tasks of crashed processes never end.
        runtime.shutdown_background();
        ran
    })
}

/// Runs one process after another until one of them does everything.
async fn several_lives(
    env: impl Future<Output = Env>,
    scenario: &dyn Scenario,
    crashes: Crashes,
) -> RunResult {
    let env = env.await;
    scenario.prepare(&env).await;
    let made = Arc::default();
    let (mut env, mut crashed, mut passed) = (env, 0, None);
    for at in crashes.0.iter().copied().chain([usize::MAX]) {
        let crash = CrashPoint::new(at);
        let store = layer::crashing(&env.other.0, &crash);
        let outside = Outside { made: Arc::clone(&made), crash: Arc::clone(&crash) };
        let process = Process { env, store, outside };
        let lived = tokio::time::timeout(LIMIT, live(scenario, &process)).await;
        let Ok(done) = lived else {
            panic!("{crashes}: it does not end\n{}", standing(&process.env.store).await);
        };
        env = process.env;
        passed.get_or_insert(crash.passed.load(Ordering::SeqCst));
        if done {
            break;
        }
        crashed += 1;
        until("calls that were sent arrive", async || crash.in_flight.load(Ordering::SeqCst) == 0).await;
        scenario.crashed(&env).await;
        // The leases of the process expire.
        env.pass(2 * LEASE);
    }
    let outside = Outside { made, crash: CrashPoint::new(usize::MAX) };
    let end = scenario.end(&env, &outside).await;
    RunResult { crashes, crashed, points: passed.unwrap_or_default(), end }
}

/// Runs one process. Returns whether it did everything, or `false` after its crash.
async fn live(scenario: &dyn Scenario, process: &Process) -> bool {
    let crash = &process.outside.crash;
    tokio::select! {
        biased;
        () = crash.died.notified() => false,
        () = scenario.live(process) => true,
    }
}
