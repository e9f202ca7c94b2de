//! Stress tests with several processes for a fixed time. Processes run commands on many aggregates or on one, and
//! workers of reactions shut down, get killed and are replaced. At the end the log must match the results of the
//! commands, and the projections must be the fold of the log.
//!
//! No check depends on the speed of the machine: a slow one does less in the same time.

mod ledger;
mod project;
mod stock;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock_core::clock::{ManualClock, SystemClock};
use tidelock_core::reactions::Quiescence;
use tokio::time::Instant;

use self::ledger::{Fold, Ledger};
use self::project::Projected;
use self::stock::{Load, Said};
use crate::conn::Conn;
use crate::process::{Process, Task};
use crate::rng::Rng;
use crate::run::{say, seed, setting};
use crate::{Backend, Database};

/// Duration of each scenario in seconds, without its start and its end. `TIDELOCK_STRESS_SECONDS` overrides it.
const SECONDS: u64 = 20;
/// Number of processes that run commands, or that run reactions, at the same time.
const PROCESSES: u64 = 3;
/// Time limit for the last process to finish the remaining work. A process that needs longer hangs.
const SETTLE: Duration = Duration::from_secs(150);

/// How the worker processes of reactions end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The parent requests a shutdown, and the process finishes.
    Shutdown,
    /// The parent kills the process with SIGKILL.
    Kill,
}

/// The result of a scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// The name of the scenario.
    pub scenario: &'static str,
    /// Acknowledged commands.
    pub acknowledged: u64,
    /// The smallest number of acknowledged commands of any process. It measures fairness.
    pub fewest: u64,
    /// Events in the log.
    pub events: u64,
    /// Commands with an unknown outcome, and those of them whose events are in the log.
    pub unknown: (u64, u64),
    /// Commands that a business rule rejected.
    pub refused: u64,
    /// Commands that failed with the guarantee that nothing was written.
    pub gave_up: u64,
    /// Repeated decisions caused by conflicts with other commands.
    pub again: u64,
    /// The result of the projections, in scenarios with reactions.
    pub drained: Option<Drained>,
}

/// The result of the projections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drained {
    /// How the processes ended.
    pub ending: Ending,
    /// Processes that ended while others worked.
    pub ended: u64,
    /// Events that these processes and the last ones handled. Killed processes cannot report theirs.
    pub handled: u64,
    /// Number of documents of the projections.
    pub documents: usize,
    /// Time that the last process needed for the remaining work.
    pub settled_in: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, acknowledged, fewest, events, unknown: (unknown, happened), .. } = self;
        let Self { refused, gave_up, again, drained, .. } = self;
        write!(
            f,
            "stress, {scenario}: {acknowledged} acknowledged, {events} in the log; {unknown} unknown, {happened} of them \
             happened; {refused} refused, {gave_up} given up, {again} times decided again"
        )?;
        match drained {
            Some(drained) => write!(f, "; {drained}"),
            None => write!(f, "; the least of a process is {fewest}"),
        }
    }
}

impl fmt::Display for Drained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ending, ended, handled, documents, settled_in } = self;
        match ending {
            Ending::Shutdown => write!(f, "{ended} workers shut down, all of them handled {handled}")?,
            Ending::Kill => write!(f, "{ended} workers killed")?,
        }
        write!(
            f,
            "; the rest settled in {settled_in:.1?}: {documents} documents are the fold of the log, blocked 0, parked 0"
        )
    }
}

/// The role of a child process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    /// Runs commands until the parent stops it, and reports each acknowledged one.
    Command(Load),
    /// Runs reactions until the parent kills or stops it.
    React,
}

impl Part {
    pub(crate) async fn play(self, conn: Conn) {
        match self {
            Self::Command(load) => stock::command(conn, load).await,
            Self::React => project::react(conn).await,
        }
    }
}

/// Returns the duration that the environment sets.
pub(crate) fn time() -> Duration {
    Duration::from_secs(setting("TIDELOCK_STRESS_SECONDS", SECONDS))
}

/// Runs commands on 200 aggregates from three processes with 16 tasks each. Each acknowledged command is in the log
/// once, at the version and position that it returned, and was decided on the newest state. Versions have no gaps,
/// positions increase, and the aggregates load as the log says. The test program must contain [`child!`](crate::child).
///
/// # Panics
/// If one of these promises is broken.
pub async fn commit_storm(backend: &dyn Backend) -> Report {
    commands(backend, "commit storm", 200, 16).await
}

/// Runs commands on one aggregate from three processes with 8 tasks each, which request more than the stock holds. The
/// stock never becomes negative. Otherwise like [`commit_storm`].
///
/// # Panics
/// As [`commit_storm`].
pub async fn same_stream(backend: &dyn Backend) -> Report {
    let report = commands(backend, "same stream", 1, 8).await;
    assert!(report.refused > 0, "no command requested more than was left: {report}");
    report
}

/// Runs commands in one process while three processes project the events. One of the three repeatedly ends and is
/// replaced. Finally, one process completes the remaining work. The projections are the fold of the log, with every
/// event once and in order, and nothing is blocked or parked. The commands are checked as in [`commit_storm`].
///
/// # Panics
/// As [`commit_storm`], or if the projections are not the fold of the log.
pub async fn drain(backend: &dyn Backend, ending: Ending) -> Report {
    const STOCKS: i64 = 24;
    let (stage, seed) = (Stage::open(backend).await, seed());
    let load = Load { process: 0, tasks: 4, stocks: STOCKS, paced: true, seed };
    let mut commanding = stage.start(Part::Command(load)).await;
    let mut crew = Crew { stage: &stage, ending, workers: VecDeque::new(), ended: 0, handled: 0 };
    for _ in 0..PROCESSES {
        crew.hire().await;
    }
    let end = Instant::now() + time();
    commanding.go().await;
    let commanding = tokio::spawn(hear_until(commanding, end));
    crew.change_until(end, &mut Rng::new(seed)).await;
    let ledger = commanding.await.expect("the commands end well");
    let ended = crew.ended;
    let handled = crew.dismiss().await;
    let survivor = stage.attach().await;
    let settled_in = finish_work(&survivor).await;
    let scenario = match ending {
        Ending::Shutdown => "drain under churn",
        Ending::Kill => "killed workers",
    };
    let (mut report, fold) = check(scenario, ledger, &survivor, STOCKS).await;
    let found = Projected::read(&stage.witness).await;
    let differ = found.differ(&fold.projected);
    assert!(differ.is_empty(), "{scenario}: events are left out, done twice or out of order: {differ:?}");
    project::check_inboxes(&stage.witness, fold.events).await;
    assert!(ended > 0, "{scenario}: no account was closed");
    let documents = found.sums.len() + found.chains.len();
    report.drained = Some(Drained { ending, ended, handled, documents, settled_in });
    say(&format!("{report}; on {}", backend.name()));
    report
}

/// Runs commands from several processes for the configured time.
async fn commands(backend: &dyn Backend, scenario: &'static str, stocks: i64, tasks: u64) -> Report {
    let (stage, seed) = (Stage::open(backend).await, seed());
    let mut processes = Vec::new();
    for process in 0..PROCESSES {
        processes.push(stage.start(Part::Command(Load { process, tasks, stocks, paced: false, seed })).await);
    }
    let end = Instant::now() + time();
    let mut hearing = Vec::new();
    for mut process in processes {
        process.go().await;
        hearing.push(tokio::spawn(hear_until(process, end)));
    }
    let (mut ledger, mut fewest) = (Ledger::default(), u64::MAX);
    for hearing in hearing {
        let heard = hearing.await.expect("the commands end well");
        fewest = fewest.min(heard.acknowledged());
        ledger.and(heard);
    }
    let (mut report, _) = check(scenario, ledger, &stage.attach().await, stocks).await;
    report.fewest = fewest;
    say(&format!("{report}; on {}", backend.name()));
    report
}

/// Collects the reports of a process. When the time is up, it stops the process.
async fn hear_until(mut process: Process, end: Instant) -> Ledger {
    let mut ledger = Ledger::default();
    let ending = tokio::time::sleep_until(end);
    tokio::pin!(ending);
    loop {
        tokio::select! {
            said = process.hear::<Said>() => ledger.hear(said.expect("a process exited before it was killed")),
            () = &mut ending => break,
        }
    }
    process.go().await;
    process.finish().await.into_iter().for_each(|said| ledger.hear(said));
    ledger
}

/// Compares the reports with the log.
async fn check(scenario: &'static str, ledger: Ledger, conn: &Conn, stocks: i64) -> (Report, Fold) {
    let (acknowledged, unknown, rest) = (ledger.acknowledged(), ledger.unknown(), ledger.rest);
    assert!(acknowledged > 0, "{scenario}: nothing was acknowledged");
    let fold = ledger.check(conn, stocks).await;
    let report = Report {
        scenario,
        acknowledged,
        fewest: acknowledged,
        events: fold.events,
        unknown: (unknown, fold.surprises),
        refused: rest.refused,
        gave_up: rest.gave_up,
        again: rest.again,
        drained: None,
    };
    (report, fold)
}

/// Completes the remaining work and returns how long that took.
async fn finish_work(survivor: &Conn) -> Duration {
    let begun = Instant::now();
    let running = project::reactions(&survivor.0).start().await.expect("reactions start");
    let settled = tokio::time::timeout(SETTLE, running.quiesce()).await;
    let settled = settled.unwrap_or_else(|_| panic!("not settled within {SETTLE:?}: {:?}", running.stats()));
    assert_eq!(settled.expect("the store answers"), Quiescence::default(), "blocked or parked");
    running.shutdown().await;
    begun.elapsed()
}

/// A database with its address for other processes.
struct Stage<'a> {
    backend: &'a dyn Backend,
    address: String,
    /// A connection that was opened before all processes started.
    witness: Conn,
    _database: Box<dyn Database>,
}

impl<'a> Stage<'a> {
    async fn open(backend: &'a dyn Backend) -> Self {
        let database = backend.fresh(Arc::new(ManualClock::default())).await;
        let address = database.address().expect("a backend with processes has addresses");
        let witness = Conn(backend.attach(&address, SystemClock::shared()).await);
        Self { backend, address, witness, _database: database }
    }

    async fn start(&self, part: Part) -> Process {
        Process::start(self.backend, &self.address, Task::Stress(part)).await
    }

    /// Opens a new connection after the processes have ended.
    async fn attach(&self) -> Conn {
        Conn(self.backend.attach(&self.address, SystemClock::shared()).await)
    }
}

/// The processes that run reactions, the oldest first.
struct Crew<'a> {
    stage: &'a Stage<'a>,
    ending: Ending,
    workers: VecDeque<Process>,
    ended: u64,
    handled: u64,
}

impl Crew<'_> {
    /// Starts one more process and waits until its reactions run.
    async fn hire(&mut self) {
        let mut process = self.stage.start(Part::React).await;
        process.go().await;
        assert_eq!(process.hear::<String>().await.as_deref(), Some("running"), "a process does not react");
        self.workers.push_back(process);
    }

    /// Repeatedly ends the oldest process and starts another one.
    async fn change_until(&mut self, end: Instant, rng: &mut Rng) {
        let pause = match self.ending {
            Ending::Shutdown => 100..400,
            Ending::Kill => 500..1_500,
        };
        loop {
            // The sleep below waits for no condition. It sets the time at which the next process ends.
            let next = Instant::now() + Duration::from_millis(rng.within(pause.clone()));
            if next >= end && self.ended > 0 {
                return tokio::time::sleep_until(end).await;
            }
            tokio::time::sleep_until(next).await;
            self.end_one().await;
            self.ended += 1;
            self.hire().await;
        }
    }

    async fn end_one(&mut self) {
        let mut process = self.workers.pop_front().expect("there is one");
        match self.ending {
            Ending::Kill => process.kill().await,
            Ending::Shutdown => {
                process.go().await;
                self.handled += process.finish::<u64>().await.into_iter().sum::<u64>();
            }
        }
    }

    /// Ends all processes and returns the number of events that they reported as handled.
    async fn dismiss(mut self) -> u64 {
        while !self.workers.is_empty() {
            self.end_one().await;
        }
        self.handled
    }
}
