//! The world of one run: the scheduler of all tasks, the random numbers, the state of each process, and the trace.
//!
//! One task runs at a time. The world waits until every woken task has offered its turn, then grants the turn of one that
//! the seed chooses. It decides from the set of offers alone, so that the order in which wakers fire has no effect.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tidelock_core::process::{Scheduler, SimProcess, SimTurn};
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use crate::audit::Audit;
use crate::clock::SimClock;
use crate::fault::Fault;
use crate::rng::Rng;

/// The maximum number of turns of a run. A run that needs more does not make progress.
const MOST_TURNS: u64 = 1_000_000;

/// A process that crashed, and the time until it restarts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crashed {
    pub(crate) host: usize,
    pub(crate) down: Duration,
}

/// The world of one run.
pub(crate) struct World {
    pub(crate) clock: Arc<SimClock>,
    pub(crate) audit: Audit,
    state: Mutex<State>,
    crashed: UnboundedSender<Crashed>,
    records: bool,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

struct State {
    rng: Rng,
    offered: BTreeMap<u64, SimTurn>,
    /// The turns of paused processes.
    held: Vec<SimTurn>,
    hosts: Vec<Host>,
    crashes: VecDeque<Crashed>,
    driver: Option<Waker>,
    faulty: bool,
    last_task: u64,
    last_id: u64,
    turns: u64,
    hash: u64,
    trace: Vec<String>,
    failure: Option<String>,
}

/// The state of a process that outlives its restarts.
#[derive(Debug, Default)]
struct Host {
    process: Option<SimProcess>,
    turns: u64,
    writes: u64,
    crash_turns: BTreeMap<u64, Duration>,
    write_faults: BTreeMap<u64, Fault>,
    paused: bool,
    partitioned: bool,
}

impl World {
    pub(crate) fn new(
        seed: u64,
        hosts: usize,
        faults: &[Fault],
        crashed: UnboundedSender<Crashed>,
        records: bool,
    ) -> Arc<Self> {
        let mut all: Vec<Host> = (0..hosts).map(|_| Host::default()).collect();
        for fault in faults {
            match fault {
                Fault::Crash { process, turn, down } => {
                    all.get_mut(*process).map(|host| host.crash_turns.insert(*turn, *down));
                }
                Fault::CrashAtWrite { process, write, .. }
                | Fault::LostReply { process, write, .. }
                | Fault::Rejected { process, write }
                | Fault::Late { process, write, .. } => {
                    all.get_mut(*process).map(|host| host.write_faults.insert(*write, fault.clone()));
                }
                _ => {}
            }
        }
        let state = State {
            rng: Rng::new(seed),
            offered: BTreeMap::new(),
            held: Vec::new(),
            hosts: all,
            crashes: VecDeque::new(),
            driver: None,
            faulty: true,
            last_task: 0,
            last_id: 0,
            turns: 0,
            hash: 0xcbf2_9ce4_8422_2325,
            trace: Vec::new(),
            failure: None,
        };
        Arc::new(Self {
            clock: SimClock::start(),
            audit: Audit::default(),
            state: Mutex::new(state),
            crashed,
            records,
        })
    }

    /// Adds a line to the trace. The text is only made when the trace is recorded.
    pub(crate) fn note(&self, text: impl FnOnce() -> String) {
        if self.records {
            let line = format!("{:>9.3}s  {}", self.clock.elapsed().as_secs_f64(), text());
            self.state.lock().trace.push(line);
        }
    }

    /// Mixes a number into the hash of the run.
    pub(crate) fn mix(&self, number: u64) {
        self.state.lock().mix(number);
    }

    /// Ends the run with a failure. The first one counts.
    pub(crate) fn fail(&self, failure: impl FnOnce() -> String) {
        let mut state = self.state.lock();
        if state.failure.is_none() {
            state.failure = Some(failure());
        }
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.state.lock().failure.clone()
    }

    pub(crate) fn take_trace(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().trace)
    }

    pub(crate) fn hash(&self) -> u64 {
        self.state.lock().hash
    }

    pub(crate) fn turns(&self) -> u64 {
        self.state.lock().turns
    }

    /// Returns a random number that the seed determines.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.state.lock().rng.below(end)
    }

    /// Returns the fault of the next write of a process. Writes are counted over restarts.
    pub(crate) fn next_write(&self, host: usize) -> (u64, Option<Fault>) {
        let mut state = self.state.lock();
        let faulty = state.faulty;
        let Some(host) = state.hosts.get_mut(host) else { return (0, None) };
        host.writes += 1;
        let fault = host.write_faults.get(&host.writes).cloned();
        (host.writes, fault.filter(|_| faulty))
    }

    pub(crate) fn is_partitioned(&self, host: usize) -> bool {
        self.state.lock().hosts.get(host).is_some_and(|host| host.partitioned)
    }

    pub(crate) fn set_partitioned(&self, host: usize, partitioned: bool) {
        if let Some(host) = self.state.lock().hosts.get_mut(host) {
            host.partitioned = partitioned;
        }
    }

    /// Stops or continues the tasks of a process.
    pub(crate) fn set_paused(&self, host: usize, paused: bool) {
        let mut state = self.state.lock();
        if let Some(host) = state.hosts.get_mut(host) {
            host.paused = paused;
        }
        if !paused {
            let held = std::mem::take(&mut state.held);
            let (free, held) = held.into_iter().partition(|turn| turn.process.place() == host);
            state.held = held;
            let free: Vec<SimTurn> = free;
            state.offered.extend(free.into_iter().map(|turn| (turn.task, turn)));
            state.wake();
        }
    }

    /// Ends all faults.
    pub(crate) fn heal(&self) {
        let hosts = {
            let mut state = self.state.lock();
            state.faulty = false;
            for host in &mut state.hosts {
                host.partitioned = false;
            }
            state.hosts.len()
        };
        (0..hosts).for_each(|host| self.set_paused(host, false));
    }

    /// Registers the process that now runs at a place.
    pub(crate) fn started(&self, host: usize, process: &SimProcess) {
        if let Some(host) = self.state.lock().hosts.get_mut(host) {
            host.process = Some(process.clone());
        }
    }

    /// Lets a process crash before any other task runs.
    pub(crate) fn request_crash(&self, host: usize, down: Duration) {
        let mut state = self.state.lock();
        state.crashes.push_back(Crashed { host, down });
        state.wake();
    }

    /// Grants the next turn. Called whenever the tasks that run have come to rest.
    pub(crate) fn step(&self, context: &Context<'_>) {
        loop {
            let crashed = self.state.lock().crashes.pop_front();
            let Some(crashed) = crashed else { break };
            self.crash(crashed);
        }
        let mut state = self.state.lock();
        if !state.driver.as_ref().is_some_and(|driver| driver.will_wake(context.waker())) {
            state.driver = Some(context.waker().clone());
        }
        let Some(turn) = state.choose() else { return };
        let due = state.count(&turn);
        let micros = u64::try_from(self.clock.elapsed().as_micros()).unwrap_or(u64::MAX);
        state.mix(turn.task);
        state.mix(micros);
        drop(state);
        match due {
            Some(down) => self.crash(Crashed { host: turn.process.place(), down }),
            None => turn.grant(),
        }
        context.waker().wake_by_ref();
    }

    /// Ends a process now.
    pub(crate) fn crash(&self, crashed: Crashed) {
        let process = self.state.lock().hosts.get_mut(crashed.host).and_then(|host| host.process.take());
        let Some(process) = process else { return };
        self.note(|| format!("{} crashes", process.name()));
        process.crash();
        let mut state = self.state.lock();
        state.offered.retain(|_, turn| !turn.process.has_crashed());
        state.held.retain(|turn| !turn.process.has_crashed());
        drop(state);
        let _ended = self.crashed.send(crashed);
    }

    /// Ends every process at the end of the run.
    pub(crate) fn end(&self) {
        let hosts = self.state.lock().hosts.len();
        for host in 0..hosts {
            let process = self.state.lock().hosts.get_mut(host).and_then(|host| host.process.take());
            if let Some(process) = process {
                process.crash();
            }
        }
        let offered = std::mem::take(&mut self.state.lock().offered);
        drop(offered);
    }

    /// Returns the places whose process runs.
    pub(crate) fn running(&self) -> BTreeSet<usize> {
        let state = self.state.lock();
        let running = state.hosts.iter().enumerate().filter(|(_, host)| host.process.is_some());
        running.map(|(place, _)| place).collect()
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    fn mix(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    /// Removes one of the offered turns.
    fn choose(&mut self) -> Option<SimTurn> {
        let index = if self.offered.len() > 1 { self.rng.index(self.offered.len()) } else { 0 };
        let task = *self.offered.keys().nth(index)?;
        self.offered.remove(&task)
    }

    /// Counts a turn. Returns the time that its process is down, when it crashes instead.
    fn count(&mut self, turn: &SimTurn) -> Option<Duration> {
        self.turns += 1;
        if self.turns > MOST_TURNS && self.failure.is_none() {
            self.failure = Some(format!("no end after {MOST_TURNS} turns: tasks run without progress"));
        }
        let faulty = self.faulty;
        let host = self.hosts.get_mut(turn.process.place())?;
        host.turns += 1;
        host.crash_turns.get(&host.turns).copied().filter(|_| faulty)
    }
}

impl Scheduler for World {
    fn number(&self) -> u64 {
        let mut state = self.state.lock();
        state.last_task += 1;
        state.last_task
    }

    fn offer(&self, turn: SimTurn) {
        let mut state = self.state.lock();
        let paused = state.hosts.get(turn.process.place()).is_some_and(|host| host.paused);
        if paused {
            state.held.retain(|held| held.task != turn.task);
            state.held.push(turn);
        } else {
            state.offered.insert(turn.task, turn);
            state.wake();
        }
    }

    fn random(&self) -> u64 {
        self.state.lock().rng.draw()
    }

    fn uuid(&self) -> Uuid {
        let millis = u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut state = self.state.lock();
        state.last_id += 1;
        let mut bytes = [0; 10];
        // The two highest bits belong to the version and the variant.
        for (byte, bits) in bytes.iter_mut().zip(state.last_id.to_be_bytes()) {
            *byte = bits;
        }
        uuid::Builder::from_unix_timestamp_millis(1_700_000_000_000 + millis, &bytes).into_uuid()
    }
}
