//! Processes under stress for a time: commands on many aggregates and on one, and reactions whose processes come and go, or
//! are killed. In the end the log says what the commands were told, and the projections are the fold of the log.
//!
//! Nothing here depends on how fast the machine is: a slow one does less in the same time.

mod ledger;
mod project;
mod stock;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock_core::clock::{ManualClock, SystemClock};
use tidelock_core::reactions::Settled;
use tokio::time::Instant;

use self::ledger::{Fold, Ledger};
use self::project::Projected;
use self::stock::{Load, Said};
use crate::conn::Conn;
use crate::process::{Process, Task};
use crate::rng::Rng;
use crate::run::{say, seed, setting};
use crate::{Backend, Database};

/// How long each scenario takes, in seconds, with neither its start nor its end. `TIDELOCK_STRESS_SECONDS` changes it.
const SECONDS: u64 = 20;
/// Processes that give commands, or that react, at the same time.
const PROCESSES: u64 = 3;
/// How long the last one may take to do what is left. Whoever needs longer hangs.
const SETTLE: Duration = Duration::from_secs(150);

/// How processes end that react.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// They are told to come to an end, and do.
    Shutdown,
    /// They are killed with SIGKILL.
    Kill,
}

/// What was found in the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Which scenario it was.
    pub scenario: &'static str,
    /// Commands that were acknowledged.
    pub acknowledged: u64,
    /// The fewest of them that a process was told of: how much of a turn everybody had.
    pub fewest: u64,
    /// Events in the log.
    pub events: u64,
    /// Commands of which nobody knows what became of them, and those of them whose events are in the log.
    pub unknown: (u64, u64),
    /// Commands that a rule refused.
    pub refused: u64,
    /// Commands that were given up, with the word that nothing was written.
    pub gave_up: u64,
    /// Decisions after the first one, because others were faster.
    pub again: u64,
    /// What became of the projections, in scenarios with reactions.
    pub drained: Option<Drained>,
}

/// What became of projections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drained {
    /// How processes ended.
    pub ending: Ending,
    /// Processes that ended while others worked.
    pub ended: u64,
    /// What they and the last ones have handled. Those that are killed cannot say so.
    pub handled: u64,
    /// Documents of the projections.
    pub documents: usize,
    /// How long the last one needed for what was left.
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

/// What a child does.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    /// Gives commands until it is told to come to an end; reports each that was acknowledged.
    Command(Load),
    /// Reacts until it is killed or told to come to an end.
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

/// How long the environment asks for.
pub(crate) fn time() -> Duration {
    Duration::from_secs(setting("TIDELOCK_STRESS_SECONDS", SECONDS))
}

/// Three processes with 16 tasks each give commands on 200 aggregates. What was acknowledged is in the log where it was told
/// to be, once, decided on the newest state; versions have no holes, positions rise, and the aggregates load as the log says.
/// The test program must contain [`child!`](crate::child).
///
/// # Panics
/// When one of this is not so.
pub async fn commit_storm(backend: &dyn Backend) -> Report {
    commands(backend, "commit storm", 200, 16).await
}

/// Three processes with 8 tasks each give commands on one aggregate, and ask for more than there is: it is never oversold, and
/// otherwise as [`commit_storm`].
///
/// # Panics
/// As [`commit_storm`].
pub async fn same_stream(backend: &dyn Backend) -> Report {
    let report = commands(backend, "same stream", 1, 8).await;
    assert!(report.refused > 0, "nobody asked for more than there was: {report}");
    report
}

/// A process gives commands, and three processes project what happened; again and again one of the three ends, and another one
/// takes its place. In the end one process does what is left: the projections are the fold of the log, every event once, in
/// order, and nothing is blocked or parked. The commands are checked as in [`commit_storm`].
///
/// # Panics
/// As [`commit_storm`], or when the projections are not the fold of the log.
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
    let settled_in = settle(&survivor).await;
    let scenario = match ending {
        Ending::Shutdown => "drain under churn",
        Ending::Kill => "killed workers",
    };
    let (mut report, fold) = check(scenario, ledger, &survivor, STOCKS).await;
    let found = Projected::read(&stage.witness).await;
    let differ = found.differ(&fold.projected);
    assert!(differ.is_empty(), "{scenario}: events are left out, done twice or out of order: {differ:?}");
    project::check_inboxes(&stage.witness, fold.events).await;
    assert!(ended > 0, "{scenario}: nobody ended");
    let documents = found.sums.len() + found.chains.len();
    report.drained = Some(Drained { ending, ended, handled, documents, settled_in });
    say(&format!("{report}; on {}", backend.name()));
    report
}

/// Several processes give commands for the time that is asked for.
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

/// Hears what a process says; at the end of the time, it is told to come to an end.
async fn hear_until(mut process: Process, end: Instant) -> Ledger {
    let mut ledger = Ledger::default();
    let ending = tokio::time::sleep_until(end);
    tokio::pin!(ending);
    loop {
        tokio::select! {
            said = process.hear::<Said>() => ledger.hear(said.expect("a process ended by itself")),
            () = &mut ending => break,
        }
    }
    process.go().await;
    process.finish().await.into_iter().for_each(|said| ledger.hear(said));
    ledger
}

/// Compares what was said with the log.
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

/// Does what is left; answers how long that took.
async fn settle(survivor: &Conn) -> Duration {
    let begun = Instant::now();
    let running = project::reactions(&survivor.0).start().await.expect("reactions start");
    let settled = tokio::time::timeout(SETTLE, running.settle()).await;
    let settled = settled.unwrap_or_else(|_| panic!("not settled within {SETTLE:?}: {:?}", running.stats()));
    assert_eq!(settled.expect("the store answers"), Settled::default(), "blocked or parked");
    running.shutdown().await;
    begun.elapsed()
}

/// A database, and how processes find it.
struct Stage<'a> {
    backend: &'a dyn Backend,
    address: String,
    /// A connection that was there before all of them.
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

    /// A new connection, when the processes are gone.
    async fn attach(&self) -> Conn {
        Conn(self.backend.attach(&self.address, SystemClock::shared()).await)
    }
}

/// Processes that react, the oldest first.
struct Crew<'a> {
    stage: &'a Stage<'a>,
    ending: Ending,
    workers: VecDeque<Process>,
    ended: u64,
    handled: u64,
}

impl Crew<'_> {
    /// Starts one more, and waits until it reacts.
    async fn hire(&mut self) {
        let mut process = self.stage.start(Part::React).await;
        process.go().await;
        assert_eq!(process.hear::<String>().await.as_deref(), Some("running"), "a process does not react");
        self.workers.push_back(process);
    }

    /// Ends the oldest and starts another one, again and again.
    async fn change_until(&mut self, end: Instant, rng: &mut Rng) {
        let pause = match self.ending {
            Ending::Shutdown => 100..400,
            Ending::Kill => 500..1_500,
        };
        loop {
            // Not a wait for anything: it says when the next one ends.
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

    /// Ends all; answers what they have handled, as far as they could say so.
    async fn dismiss(mut self) -> u64 {
        while !self.workers.is_empty() {
            self.end_one().await;
        }
        self.handled
    }
}
