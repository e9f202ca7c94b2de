//! Many seeds: the entry point of tests, and its report.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::fault::Fault;
use crate::run::run;
use crate::scenario::Sim;
use crate::shrink::shrink;

/// The variable that replays one seed.
const SEED: &str = "TIDELOCK_SIM_SEED";
/// The variable that replaces the number of seeds.
const SEEDS: &str = "TIDELOCK_SIM_SEEDS";
/// The lines at each end of a trace that a report shows.
const TRACE_LINES: usize = 150;

/// Runs a scenario with the seeds from 0 on, on every core, and panics with a report when one fails.
///
/// `TIDELOCK_SIM_SEED=17` replays seed 17 alone; `TIDELOCK_SIM_SEEDS=100000` runs that many.
///
/// # Panics
/// Panics when a check, an invariant or an audit of the store fails, or when work is left that never ends. The message has
/// the seed, the faults that are needed, and the trace of the run with these faults.
#[expect(clippy::panic, reason = "a failed test panics")]
pub fn simulate(seeds: u64, scenario: impl Fn(&mut Sim) + Sync) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let range = match number(SEED) {
        Some(seed) => seed..seed.saturating_add(1),
        None => 0..number(SEEDS).unwrap_or(seeds),
    };
    if let Some(failure) = Seeds::new(range).run(scenario).failure {
        panic!("{failure}");
    }
}

/// The seeds of a search, and its limits.
#[derive(Clone, Debug)]
pub struct Seeds {
    seeds: Range<u64>,
    threads: usize,
    limit: Option<Duration>,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The number of seeds that ran.
    pub seeds: u64,
    /// The number of turns of all tasks.
    pub turns: u64,
    /// The simulated time.
    pub simulated: Duration,
    /// The real time.
    pub took: Duration,
    /// The number of faults.
    pub faults: u64,
    /// The failure with the lowest seed among those that were found, with the fewest faults.
    pub failure: Option<Failure>,
}

/// The failure of a seed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The broken promise.
    pub message: String,
    /// The faults that are needed.
    pub faults: Vec<Fault>,
    /// The number of faults of the original plan.
    pub planned: usize,
    /// The events of the reduced run.
    pub trace: Vec<String>,
}

/// The counters that the threads share.
#[derive(Default)]
struct Progress {
    next: AtomicU64,
    seeds: AtomicU64,
    turns: AtomicU64,
    faults: AtomicU64,
    millis: AtomicU64,
    failed: AtomicBool,
    failure: Mutex<Option<u64>>,
}

impl Seeds {
    /// Declares the seeds to run, on every core.
    #[must_use]
    pub fn new(seeds: Range<u64>) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { seeds, threads, limit: None }
    }

    /// Sets the number of threads.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Ends the search after a time, whatever seeds are left.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Runs the seeds until one fails.
    pub fn run(&self, scenario: impl Fn(&mut Sim) + Sync) -> Summary {
        self.run_with(scenario, |_| {})
    }

    /// Runs the seeds until one fails, and reports the number of those that ended now and then.
    pub fn run_with(&self, scenario: impl Fn(&mut Sim) + Sync, report: impl Fn(u64) + Sync) -> Summary {
        let (progress, started) = (Progress::default(), Instant::now());
        progress.next.store(self.seeds.start, Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| self.work(&scenario, &progress, started, &report));
            }
        });
        let took = started.elapsed();
        let failure = progress.failure.lock().take().map(|seed| Failure::of(seed, &scenario));
        Summary {
            seeds: progress.seeds.load(Ordering::Relaxed),
            turns: progress.turns.load(Ordering::Relaxed),
            simulated: Duration::from_millis(progress.millis.load(Ordering::Relaxed)),
            took,
            faults: progress.faults.load(Ordering::Relaxed),
            failure,
        }
    }

    fn work(
        &self,
        scenario: &(impl Fn(&mut Sim) + Sync),
        progress: &Progress,
        started: Instant,
        report: &(impl Fn(u64) + Sync),
    ) {
        while !progress.failed.load(Ordering::Relaxed)
            && self.limit.is_none_or(|limit| started.elapsed() < limit)
        {
            let seed = progress.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.seeds.end {
                return;
            }
            let result = run(seed, scenario, None, false);
            let count = |counter: &AtomicU64, by: usize| counter.fetch_add(by as u64, Ordering::Relaxed);
            progress.turns.fetch_add(result.turns, Ordering::Relaxed);
            count(&progress.faults, result.faults.len());
            count(&progress.millis, usize::try_from(result.simulated.as_millis()).unwrap_or(0));
            if result.failure.is_some() {
                progress.failed.store(true, Ordering::Relaxed);
                let mut lowest = progress.failure.lock();
                *lowest = Some(lowest.map_or(seed, |known| known.min(seed)));
            }
            report(progress.seeds.fetch_add(1, Ordering::Relaxed) + 1);
        }
    }
}

impl Failure {
    fn of(seed: u64, scenario: &dyn Fn(&mut Sim)) -> Self {
        let failed = run(seed, scenario, None, false);
        let again = run(seed, scenario, None, false);
        let Some(message) = failed.failure.clone().filter(|_| failed.hash == again.hash) else {
            let message = "the run is not deterministic: a replay of the seed took another course".to_owned();
            return Self { seed, message, faults: failed.faults, planned: 0, trace: failed.trace };
        };
        let reduced = shrink(seed, scenario, &failed);
        let message = reduced.failure.unwrap_or(message);
        Self { seed, message, planned: failed.faults.len(), faults: reduced.faults, trace: reduced.trace }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} failed: {}", self.seed, self.message)?;
        writeln!(f, "\n{} of {} faults are needed:", self.faults.len(), self.planned)?;
        for fault in &self.faults {
            writeln!(f, "  {fault}")?;
        }
        let skipped = self.trace.len().saturating_sub(2 * TRACE_LINES);
        writeln!(f, "\ntrace:")?;
        for (number, line) in self.trace.iter().enumerate() {
            match number.checked_sub(TRACE_LINES) {
                Some(0) if skipped > 0 => writeln!(f, "  … {skipped} lines …")?,
                Some(beyond) if beyond < skipped => {}
                _ => writeln!(f, "  {line}")?,
            }
        }
        write!(f, "\nreplay with {SEED}={}", self.seed)
    }
}

/// Returns the hash of the run of a seed. Two runs of one seed have the same hash.
#[doc(hidden)]
pub fn hash_of(seed: u64, scenario: impl Fn(&mut Sim)) -> u64 {
    run(seed, &scenario, None, false).hash
}

/// Returns the failure of a seed, if any, and the trace of its run with all planned faults.
pub fn trace_of(seed: u64, scenario: impl Fn(&mut Sim)) -> (Option<String>, Vec<String>) {
    let result = run(seed, &scenario, None, true);
    (result.failure, result.trace)
}
