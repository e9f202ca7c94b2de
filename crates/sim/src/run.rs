//! One run of a scenario: starts the processes, injects the faults, waits for quiescence and calls the checks.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tidelock::workflow::{RunFilter, RunStatus};
use tidelock::{ServiceHandle, Tidelock};
use tidelock_core::clock::Timestamp;
use tidelock_core::process::{self, SimProcess};
use tidelock_core::store::{MemoryStore, Page, SharedStore, Store as _, WorkFilter, WorkRow};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use crate::fault::{self, Fault};
use crate::link::Link;
use crate::rng::Rng;
use crate::scenario::{Build, Check, Client, Invariant, Sim};
use crate::world::{Crashed, World};

/// The first interval between two checks of quiescence, and the longest.
const POLL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The delay before a service that did not start, or a client that failed, tries again.
const AGAIN: Duration = Duration::from_millis(300);
/// The longest delay of a client that fails again and again.
const LONGEST: Duration = Duration::from_secs(30);
/// The time between a graceful shutdown and the next start.
const DEPLOYMENT: Duration = Duration::from_millis(100);
/// The longest time that one look at the idleness of a service takes.
const LOOK: Duration = Duration::from_secs(20);

/// The result of one run.
#[derive(Clone, Debug)]
pub(crate) struct RunResult {
    pub(crate) faults: Vec<Fault>,
    pub(crate) hash: u64,
    pub(crate) turns: u64,
    pub(crate) simulated: Duration,
    pub(crate) failure: Option<String>,
    pub(crate) trace: Vec<String>,
}

/// Runs a scenario. `faults` replaces the plan that the seed draws.
pub(crate) fn run(
    seed: u64,
    scenario: &dyn Fn(&mut Sim),
    faults: Option<&[Fault]>,
    records: bool,
) -> RunResult {
    let mut sim = Sim::new(seed);
    scenario(&mut sim);
    let hosts = sim.processes + sim.clients.len();
    let faults = faults.map_or_else(
        || fault::plan(&mut Rng::new(seed ^ 0x2545_f491_4f6c_dd1d), hosts, sim.during, sim.faults),
        <[Fault]>::to_vec,
    );
    let runtime =
        Builder::new_current_thread().enable_time().start_paused(true).event_interval(100_000).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let failure = Some(format!("no runtime: {error}"));
            return RunResult {
                faults,
                hash: 0,
                turns: 0,
                simulated: Duration::ZERO,
                failure,
                trace: Vec::new(),
            };
        }
    };
    runtime.block_on(async {
        let (sender, crashed) = unbounded_channel();
        let world = World::new(seed, hosts + 1, &faults, sender, records);
        for fault in &faults {
            world.note(|| format!("planned: {fault}"));
        }
        let (invariants, checks) = (std::mem::take(&mut sim.invariants), std::mem::take(&mut sim.checks));
        let control = Control::new(&world, sim);
        let result = conduct(&world, &invariants, control.run(faults.clone(), crashed, checks)).await;
        world.end();
        if let Err(failure) = &result {
            world.note(|| format!("FAILED: {failure}"));
        }
        RunResult {
            faults,
            hash: world.hash(),
            turns: world.turns(),
            simulated: world.clock.elapsed(),
            failure: result.err(),
            trace: world.take_trace(),
        }
    })
}

/// Drives the tasks until the control ends or something fails.
async fn conduct(
    world: &Arc<World>,
    invariants: &[Invariant],
    control: impl Future<Output = Result<(), String>> + Send + 'static,
) -> Result<(), String> {
    let mut control = pin!(tokio::spawn(control));
    poll_fn(|context| {
        if let Poll::Ready(ended) = control.as_mut().poll(context) {
            return Poll::Ready(ended.unwrap_or_else(|error| Err(format!("the simulation failed: {error}"))));
        }
        world.step(context);
        let broken = invariants.iter().find_map(|invariant| invariant().err());
        if let Some(broken) = broken.map(|broken| format!("invariant: {broken}")).or_else(|| world.failure())
        {
            return Poll::Ready(Err(broken));
        }
        Poll::Pending
    })
    .await
}

/// A request to a service process.
enum Command {
    /// Reports when the service is idle.
    Idle(oneshot::Sender<()>),
    /// Shuts the service down gracefully.
    Stop,
}

/// The control of a run. It is no simulated process, and never uses the store through a faulty connection.
struct Control {
    world: Arc<World>,
    store: MemoryStore,
    processes: usize,
    during: Duration,
    patience: Duration,
    services: Vec<Build>,
    clients: Vec<Client>,
    done: Vec<AtomicBool>,
    /// The last error of each client that failed.
    errors: Mutex<BTreeMap<usize, String>>,
    commands: Mutex<BTreeMap<usize, UnboundedSender<Command>>>,
    hinted: bool,
}

impl Control {
    fn new(world: &Arc<World>, sim: Sim) -> Self {
        let store = MemoryStore::with_clock(world.clock.clone());
        let done = sim.clients.iter().map(|_| AtomicBool::new(false)).collect();
        let hinted = world.below(8) != 0;
        let Sim { processes, during, patience, services, clients, .. } = sim;
        let (world, commands, errors) = (Arc::clone(world), Mutex::default(), Mutex::default());
        Self { world, store, processes, during, patience, services, clients, done, errors, commands, hinted }
    }

    async fn run(
        self,
        faults: Vec<Fault>,
        crashed: UnboundedReceiver<Crashed>,
        checks: Vec<Check>,
    ) -> Result<(), String> {
        let control = Arc::new(self);
        let observer = control.hosts();
        for host in 0..control.hosts() {
            control.boot(host);
        }
        let observer = control.process(observer);
        tokio::spawn(Arc::clone(&control).restart(crashed));
        for fault in faults {
            if let Some(at) = fault.at() {
                tokio::spawn(Arc::clone(&control).inject(fault, at));
            }
        }
        sleep(control.during).await;
        control.world.heal();
        control.world.note(|| "the faults end".to_owned());
        control.quiesce(&observer).await?;
        for check in checks {
            control.check(&observer, check).await?;
        }
        control.world.audit.present(&control.store).await
    }

    /// Returns the number of processes that suffer faults.
    fn hosts(&self) -> usize {
        self.processes + self.clients.len()
    }

    fn name(&self, host: usize) -> String {
        match host.checked_sub(self.processes) {
            None => format!("p{host}"),
            Some(client) if client < self.clients.len() => format!("p{host}(client)"),
            Some(_) => "observer".to_owned(),
        }
    }

    fn process(&self, host: usize) -> SimProcess {
        let process = SimProcess::new(self.name(host), host, Arc::clone(&self.world) as _);
        self.world.started(host, &process);
        process
    }

    fn tide(&self, host: usize) -> Tidelock {
        let store: SharedStore =
            Arc::new(Link::new(&self.world, &self.store, host, &self.name(host), self.hinted));
        Tidelock::from(store)
    }

    /// Starts a process, unless it is a client that has succeeded.
    fn boot(self: &Arc<Self>, host: usize) {
        let client = host.checked_sub(self.processes);
        if client.and_then(|client| self.done.get(client)).is_some_and(|done| done.load(Ordering::Relaxed)) {
            return;
        }
        let process = self.process(host);
        self.world.note(|| format!("{} starts", process.name()));
        let control = Arc::clone(self);
        process.enter(|| match client.and_then(|client| Some((client, self.clients.get(client)?.clone()))) {
            Some((number, client)) => drop(process::spawn(control.call(host, number, client))),
            None => {
                let (sender, commands) = unbounded_channel();
                self.commands.lock().insert(host, sender);
                drop(process::spawn(control.serve(host, commands)));
            }
        });
    }

    /// Restarts the processes that crashed.
    async fn restart(self: Arc<Self>, mut crashed: UnboundedReceiver<Crashed>) {
        while let Some(Crashed { host, down }) = crashed.recv().await {
            self.commands.lock().remove(&host);
            let control = Arc::clone(&self);
            tokio::spawn(async move {
                sleep(down).await;
                control.boot(host);
            });
        }
    }

    /// Runs the service of a process.
    async fn serve(self: Arc<Self>, host: usize, mut commands: UnboundedReceiver<Command>) {
        let handle = loop {
            let Some(build) = self.services.get(host % self.services.len().max(1)).cloned() else {
                return;
            };
            match build(self.tide(host)).start().await {
                Ok(handle) => break handle,
                Err(error) => {
                    self.world.note(|| format!("p{host}: service not started: {error}"));
                    sleep(AGAIN).await;
                }
            }
        };
        self.world.note(|| format!("p{host}: service started"));
        while let Some(command) = commands.recv().await {
            match command {
                Command::Idle(reply) => self.report_idle(&handle, reply).await,
                Command::Stop => {
                    self.world.note(|| format!("p{host}: shuts down"));
                    drop(handle.shutdown().await);
                    self.world.request_crash(host, DEPLOYMENT);
                    return std::future::pending().await;
                }
            }
        }
        std::future::pending().await
    }

    async fn report_idle(&self, handle: &ServiceHandle, reply: oneshot::Sender<()>) {
        if timeout(LOOK, handle.idle()).await.is_ok_and(|idle| idle.is_ok()) {
            let _gone = reply.send(());
        }
    }

    /// Runs a client until it succeeds.
    async fn call(self: Arc<Self>, host: usize, number: usize, client: Client) {
        let mut pause = AGAIN;
        loop {
            let called = AssertUnwindSafe(client(self.tide(host))).catch_unwind().await;
            match called {
                Ok(Ok(())) => break,
                Ok(Err(error)) => {
                    self.world.note(|| format!("p{host}: client failed: {error}"));
                    self.errors.lock().insert(number, error.to_string());
                }
                Err(panic) => {
                    return self.world.fail(|| format!("client {number} panicked: {}", text(&*panic)));
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
        }
        self.world.note(|| format!("p{host}: client succeeded"));
        if let Some(done) = self.done.get(number) {
            done.store(true, Ordering::Relaxed);
        }
    }

    /// Injects a fault that has a time.
    async fn inject(self: Arc<Self>, fault: Fault, at: Duration) {
        sleep(at).await;
        self.world.note(|| format!("fault: {fault}"));
        match fault {
            Fault::Partition { process, lasts, .. } => {
                self.world.set_partitioned(process, true);
                sleep(lasts).await;
                self.world.set_partitioned(process, false);
            }
            Fault::Pause { process, lasts, .. } => {
                self.world.set_paused(process, true);
                sleep(lasts).await;
                self.world.set_paused(process, false);
            }
            Fault::Restart { process, .. } => {
                if let Some(commands) = self.commands.lock().get(&process) {
                    let _gone = commands.send(Command::Stop);
                }
            }
            Fault::ClockJump { millis, .. } => self.world.clock.jump(millis),
            Fault::HistoryCut { .. } => drop(self.store.declare_cut("simulated").await),
            _ => {}
        }
    }

    /// Waits until nothing is left to do.
    async fn quiesce(&self, observer: &SimProcess) -> Result<(), String> {
        let (end, mut pause) = (Instant::now() + self.patience, POLL.0);
        while Instant::now() < end {
            if self.is_quiescent(observer).await? {
                return Ok(());
            }
            sleep(pause).await;
            pause = (pause * 3 / 2).min(POLL.1);
        }
        Err(format!("stuck: {}", self.left(observer).await))
    }

    async fn is_quiescent(&self, observer: &SimProcess) -> Result<bool, String> {
        if self.done.iter().any(|done| !done.load(Ordering::Relaxed))
            || self.running_runs(observer).await? > 0
        {
            return Ok(false);
        }
        let running = self.world.running();
        for host in 0..self.processes {
            let commands = self.commands.lock().get(&host).cloned();
            let (true, Some(commands)) = (running.contains(&host), commands) else { return Ok(false) };
            let (reply, idle) = oneshot::channel();
            if commands.send(Command::Idle(reply)).is_err()
                || !timeout(LOOK * 2, idle).await.is_ok_and(|idle| idle.is_ok())
            {
                return Ok(false);
            }
        }
        // The work that made one service idle may have started runs.
        Ok(self.running_runs(observer).await? == 0 && !self.is_retrying().await?)
    }

    /// Returns whether a row waits for its next attempt.
    async fn is_retrying(&self) -> Result<bool, String> {
        let page = self.store.works(&WorkFilter::default(), Page::first(500)).await;
        let rows = page.map_err(|error| error.to_string())?.rows;
        Ok(rows.iter().any(|row| row.blocked.is_none() && row.due.is_some() && row.last_error.is_some()))
    }

    /// Returns the number of runs that have not ended.
    async fn running_runs(&self, observer: &SimProcess) -> Result<u64, String> {
        let tide = self.tide(self.hosts());
        let counts = observer.enter(|| process::spawn(async move { tide.runs().counts().await })).await;
        let counts = counts.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        Ok(counts.get(&RunStatus::Running).copied().unwrap_or(0))
    }

    /// Describes the work that is left.
    async fn left(&self, observer: &SimProcess) -> String {
        let mut left = Vec::new();
        let errors = self.errors.lock().clone();
        for (number, done) in self.done.iter().enumerate() {
            if !done.load(Ordering::Relaxed) {
                let error = errors.get(&number).map(|error| format!(": {error}")).unwrap_or_default();
                left.push(format!("client {number} has not succeeded{error}"));
            }
        }
        left.extend(self.open_runs(observer).await);
        let now = self.store.estimated_now();
        let rows = self.store.works(&WorkFilter::default(), Page::first(500)).await.map(|page| page.rows);
        left.extend(rows.unwrap_or_default().iter().filter_map(|row| overdue(row, now)));
        left.join("; ")
    }

    /// Describes the runs that have not ended.
    async fn open_runs(&self, observer: &SimProcess) -> Vec<String> {
        let tide = self.tide(self.hosts());
        let filter = RunFilter { status: Some(RunStatus::Running), ..RunFilter::default() };
        let listed =
            observer.enter(|| process::spawn(async move { tide.runs().list(&filter, None, 20).await }));
        let runs = listed.await.ok().and_then(Result::ok).map(|page| page.runs).unwrap_or_default();
        runs.iter().map(|run| format!("run {} has not ended: {:?}", run.run, run.doing)).collect()
    }

    async fn check(&self, observer: &SimProcess, check: Check) -> Result<(), String> {
        let tide = self.tide(self.hosts());
        let checked = observer
            .enter(|| process::spawn(async move { AssertUnwindSafe(check(tide)).catch_unwind().await }));
        match checked.await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(format!("check: {error}")),
            Ok(Err(panic)) => Err(format!("check: {}", text(&*panic))),
            Err(error) => Err(format!("check: {error}")),
        }
    }
}

/// Describes a row that is due, blocked, or waits after a failure.
fn overdue(row: &WorkRow, now: Timestamp) -> Option<String> {
    let due = row.due.is_some_and(|due| due.has_come(now)) && row.lease.is_none();
    (due || row.blocked.is_some() || row.last_error.is_some()).then(|| {
        let WorkRow { key, blocked, last_error, attempts, .. } = row;
        format!("row {key} is left: attempts {attempts}, blocked {blocked:?}, last error {last_error:?}")
    })
}

/// Returns the message of a panic.
fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
}
