//! Kill test for shared state. Two processes with many tasks each add to one record, and one of them is repeatedly
//! killed and restarted. The record counts every acknowledged addition and none that was not attempted. A process that
//! was not killed has an exact count.
//!
//! A process reports each addition before it attempts it and after it is acknowledged, each time as one write to a
//! pipe. Reports sent before the kill stay in the pipe, and the parent reads all of them. Each life of a process has a
//! separate count in the record, so that a duplicate addition cannot mask a lost one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock_core::clock::{ManualClock, SystemClock};
use tidelock_core::state::{State, StateError, StateRegistry};
use tidelock_core::store::Delta;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::Backend;
use crate::builders::key;
use crate::conn::Conn;
use crate::process::{Process, Task, listen, say};
use crate::run::setting;

/// Number of concurrent processes.
const PROCESSES: u64 = 2;
/// Number of tasks per process.
const TASKS: u64 = 32;
/// Duration of the test per kind of addition, in seconds. `TIDELOCK_KILL_SECONDS` overrides it.
const SECONDS: u64 = 2;

/// The kind of addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdditionKind {
    /// `State::mutate`, which reads and writes, and retries after a conflict with another writer.
    Mutate,
    /// Deltas, as `State::inc` sends them.
    Inc,
}

/// The result of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The kind of addition.
    pub way: AdditionKind,
    /// Number of killed processes.
    pub kills: u64,
    /// Acknowledged additions, as reported to the parent.
    pub acknowledged: u64,
    /// The count in the record.
    pub found: u64,
    /// Attempted additions, as reported to the parent.
    pub attempted: u64,
    /// The version of the record, which is the number of writes.
    pub writes: u64,
    /// The smallest number of acknowledged additions of any life. It measures fairness.
    pub fewest: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { way, kills, acknowledged, found, attempted, writes, fewest } = self;
        write!(
            f,
            "{way:?}, {kills} kills: {acknowledged} acknowledged, {found} found in {writes} writes, {attempted} \
             attempted; the least of a life is {fewest}"
        )
    }
}

/// The record: the number of additions in total and per life of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Count {
    count: u64,
    lives: BTreeMap<String, u64>,
}

/// A report from a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Said {
    Asked,
    Told,
}

/// The reports of one life of a process.
#[derive(Clone, Copy, Debug, Default)]
struct LifeReports {
    asked: u64,
    told: u64,
    killed: bool,
}

/// How a life of a process ends.
enum Fate {
    Killed,
    Finished,
}

/// Adds by mutations and then by deltas, for the time that the environment sets, and kills processes during that time.
/// The test program must contain [`conformance!`](crate::conformance) or [`child!`](crate::child).
///
/// # Panics
/// If an acknowledged addition is missing, or the record contains one that was not attempted.
pub async fn rounds(backend: &dyn Backend) -> Vec<Report> {
    let time = Duration::from_secs(setting("TIDELOCK_KILL_SECONDS", SECONDS));
    vec![round(backend, AdditionKind::Mutate, time).await, round(backend, AdditionKind::Inc, time).await]
}

/// Adds in one way for a time, and kills processes during that time.
///
/// # Panics
/// As [`rounds`].
pub async fn round(backend: &dyn Backend, way: AdditionKind, time: Duration) -> Report {
    let database = backend.fresh(Arc::new(ManualClock::default())).await;
    let address = database.address().expect("a backend with processes has addresses");
    // This connection outlives all processes and sees every acknowledgement.
    let witness = record(&Conn(backend.attach(&address, SystemClock::shared()).await));
    witness.set(Count::default()).await.expect("the record is created");
    let mut band = Band { backend, address: &address, way, lives: Vec::new(), told: Arc::default() };
    let mut living = Vec::new();
    for _ in 0..PROCESSES {
        living.push(band.start().await);
    }
    let (every, begun) = ((time / 20).clamp(FASTEST, SLOWEST), tokio::time::Instant::now());
    for n in (1..).take_while(|n| every * *n <= time) {
        // This sleep waits for no condition. It sets the time of the next kill.
        tokio::time::sleep_until(begun + every * n).await;
        let told = band.told.load(Ordering::SeqCst);
        let found = witness.get().await.expect("the record can be read").count;
        assert!(found >= told, "{way:?}, before kill {n}: {told} were acknowledged, {found} are there");
        // Kills the oldest process, so that each process has its turn.
        band.ends(living.remove(0).meets(Fate::Killed)).await;
        living.push(band.start().await);
    }
    // Tell all processes to finish before waiting for any of them: a process that still adds would delay the others.
    let ending: Vec<Ending> = living.into_iter().map(|life| life.meets(Fate::Finished)).collect();
    for ending in ending {
        band.ends(ending).await;
    }
    let survivor = record(&Conn(backend.attach(&address, SystemClock::shared()).await));
    band.check(&survivor).await
}

/// The shortest and the longest time between two kills.
const FASTEST: Duration = Duration::from_millis(400);
const SLOWEST: Duration = Duration::from_secs(1);

fn record(conn: &Conn) -> State<Count> {
    StateRegistry::new(Arc::clone(&conn.0)).at(key("kill"))
}

/// A running process.
struct Life {
    fate: oneshot::Sender<Fate>,
    ending: Ending,
}

/// A process that will end, and the task that collects its reports.
struct Ending {
    number: usize,
    hearing: JoinHandle<LifeReports>,
}

impl Life {
    fn meets(self, fate: Fate) -> Ending {
        drop(self.fate.send(fate));
        self.ending
    }
}

/// All lives of all processes.
struct Band<'a> {
    backend: &'a dyn Backend,
    address: &'a str,
    way: AdditionKind,
    /// Reports of the ended lives, indexed by life number.
    lives: Vec<LifeReports>,
    /// Acknowledgements received so far.
    told: Arc<AtomicU64>,
}

impl Band<'_> {
    async fn start(&mut self) -> Life {
        let number = self.lives.len();
        self.lives.push(LifeReports::default());
        let task = Task::Add { life: number, way: self.way };
        let mut process = Process::start(self.backend, self.address, task).await;
        process.go().await;
        let (fate, awaited) = oneshot::channel();
        let hearing = tokio::spawn(hear(process, awaited, Arc::clone(&self.told)));
        Life { fate, ending: Ending { number, hearing } }
    }

    async fn ends(&mut self, Ending { number, hearing }: Ending) {
        self.lives[number] = hearing.await.expect("a process lives until it is killed");
    }

    /// Compares the reports with the record.
    async fn check(&self, survivor: &State<Count>) -> Report {
        let found = survivor.read().await.expect("the record can be read").expect("it was created");
        let (way, value) = (self.way, &found.value);
        let sum = |count: fn(&LifeReports) -> u64| self.lives.iter().map(count).sum::<u64>();
        let (attempted, acknowledged) = (sum(|life| life.asked), sum(|life| life.told));
        for (number, life) in self.lives.iter().enumerate() {
            let counted = value.lives.get(&number.to_string()).copied().unwrap_or(0);
            let most = if life.killed { life.asked } else { life.told };
            assert!(
                (life.told..=most).contains(&counted) && life.asked - life.told <= TASKS,
                "{way:?}, life {number}: {counted} are there of {life:?}"
            );
        }
        let all: u64 = value.lives.values().sum();
        assert_eq!(value.count, all, "{way:?}: the count and the counts of all lives disagree");
        assert!(
            acknowledged <= value.count && value.count <= attempted,
            "{way:?}: {} are there, {acknowledged} were acknowledged, {attempted} asked for",
            value.count
        );
        let kills = self.lives.iter().filter(|life| life.killed).count() as u64;
        assert!(
            kills > 0 && acknowledged > 0,
            "{way:?}: nothing happened: {kills} kills, {acknowledged} told"
        );
        let fewest = self.lives.iter().map(|life| life.told).min().unwrap_or_default();
        Report { way, kills, acknowledged, found: value.count, attempted, writes: found.version.0, fewest }
    }
}

/// Collects the reports of a process until the parent kills it, or until it finishes at the parent's request.
async fn hear(mut process: Process, mut fate: oneshot::Receiver<Fate>, told: Arc<AtomicU64>) -> LifeReports {
    let mut heard = LifeReports::default();
    let mut count = |said: Said| match said {
        Said::Asked => heard.asked += 1,
        Said::Told => {
            heard.told += 1;
            told.fetch_add(1, Ordering::SeqCst);
        }
    };
    let fate = loop {
        tokio::select! {
            said = process.hear::<Said>() => count(said.expect("a process exited before it was killed")),
            fate = &mut fate => break fate.expect("the parent decides"),
        }
    };
    match fate {
        Fate::Killed => {
            process.kill().await;
            while let Some(said) = process.hear().await {
                count(said);
            }
            heard.killed = true;
        }
        Fate::Finished => {
            process.go().await;
            process.finish().await.into_iter().for_each(count);
        }
    }
    heard
}

/// The role of a child process. Its tasks add until the process is killed or told to finish.
pub(crate) async fn add(conn: Conn, life: usize, way: AdditionKind) {
    let (record, ending) = (record(&conn).limit(None), Arc::new(AtomicBool::new(false)));
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let (record, ending) = (record.clone(), Arc::clone(&ending));
        tasks.push(tokio::spawn(async move {
            while !ending.load(Ordering::SeqCst) {
                say(&Said::Asked);
                add_one(&record, life, way).await.expect("nothing speaks against it");
                say(&Said::Told);
            }
        }));
    }
    listen().await;
    ending.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.expect("a task panicked");
    }
}

async fn add_one(record: &State<Count>, life: usize, way: AdditionKind) -> Result<(), StateError> {
    match way {
        AdditionKind::Mutate => {
            let add = move |count: &mut Count| {
                count.count += 1;
                *count.lives.entry(life.to_string()).or_default() += 1;
            };
            record.mutate(add).await.map(drop)
        }
        AdditionKind::Inc => {
            let both = vec![Delta::inc("/count", 1), Delta::inc(format!("/lives/{life}"), 1)];
            record.deltas(both).await.map(drop)
        }
    }
}
