//! Two processes with many tasks each add to one record, and again and again one of them is killed and started anew. What
//! was acknowledged is counted, nothing is counted that nobody asked for, and whoever lived to the end counted exactly.
//!
//! A process says that it asks before it asks, and that it was told after it was told, each as one write into a pipe. What
//! it had said when it was killed is in the pipe, and its parent hears all of it. Every life has a count of its own in the
//! record, so that a lost addition cannot hide behind one that was made twice.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock_core::clock::{ManualClock, SystemClock};
use tidelock_core::state::{Container, StateError, States};
use tidelock_core::store::Delta;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::Backend;
use crate::conn::Conn;
use crate::make::key;
use crate::process::{Process, Task, listen, say};
use crate::run::setting;

/// Processes that add at the same time.
const PROCESSES: u64 = 2;
/// Tasks of each of them.
const TASKS: u64 = 32;
/// How long each way of adding takes, in seconds. `TIDELOCK_KILL_SECONDS` changes it.
const SECONDS: u64 = 2;

/// How to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// `Container::mutate`, which reads and writes, and begins again when somebody else was faster.
    Mutate,
    /// Deltas, as `Container::inc` sends them.
    Inc,
}

/// What was found in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// How it was added.
    pub way: Way,
    /// How many processes were killed.
    pub kills: u64,
    /// Additions that processes were told of, as far as their parent heard.
    pub acknowledged: u64,
    /// The count in the record.
    pub found: u64,
    /// Additions that processes asked for, as far as their parent heard.
    pub attempted: u64,
    /// The version of the record: how many writes all this took.
    pub writes: u64,
    /// The fewest additions that a life was told of: how much of a turn everybody had.
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

/// The record: how often was added, by all and by each life of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Count {
    count: u64,
    lives: BTreeMap<String, u64>,
}

/// What a process says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Said {
    Asked,
    Told,
}

/// What one life of a process said.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    asked: u64,
    told: u64,
    killed: bool,
}

/// How a life ends.
enum Fate {
    Killed,
    Finished,
}

/// Adds by mutations and then by deltas, for as long as the environment asks for, and kills meanwhile. The test program
/// must contain [`conformance!`](crate::conformance) or [`child!`](crate::child).
///
/// # Panics
/// When an acknowledged addition is not there, or one is that nobody asked for.
pub async fn rounds(backend: &dyn Backend) -> Vec<Report> {
    let time = Duration::from_secs(setting("TIDELOCK_KILL_SECONDS", SECONDS));
    vec![round(backend, Way::Mutate, time).await, round(backend, Way::Inc, time).await]
}

/// Adds in one way for a time, and kills meanwhile.
///
/// # Panics
/// As [`rounds`].
pub async fn round(backend: &dyn Backend, way: Way, time: Duration) -> Report {
    let database = backend.fresh(Arc::new(ManualClock::default())).await;
    let address = database.address().expect("a backend with processes has addresses");
    // A connection that lives as long as all of them, and sees every acknowledgement.
    let witness = record(&Conn(backend.attach(&address, SystemClock::shared()).await));
    witness.set(Count::default()).await.expect("the record is created");
    let mut band = Band { backend, address: &address, way, lives: Vec::new(), told: Arc::default() };
    let mut living = Vec::new();
    for _ in 0..PROCESSES {
        living.push(band.start().await);
    }
    let (every, begun) = ((time / 20).clamp(FASTEST, SLOWEST), tokio::time::Instant::now());
    for n in (1..).take_while(|n| every * *n <= time) {
        // Not a wait for anything: it says when the next one is killed.
        tokio::time::sleep_until(begun + every * n).await;
        let told = band.told.load(Ordering::SeqCst);
        let found = witness.get().await.expect("the record can be read").count;
        assert!(found >= told, "{way:?}, before kill {n}: {told} were acknowledged, {found} are there");
        // The oldest is killed: each of them in its turn.
        band.ends(living.remove(0).meets(Fate::Killed)).await;
        living.push(band.start().await);
    }
    // All are told before any is waited for: one that goes on would be in the way of the others.
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

fn record(conn: &Conn) -> Container<Count> {
    States::new(Arc::clone(&conn.0)).at(&key("kill"))
}

/// A process that lives.
struct Life {
    fate: oneshot::Sender<Fate>,
    ending: Ending,
}

/// A process that will end, and what it says until then.
struct Ending {
    number: usize,
    hearing: JoinHandle<Heard>,
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
    way: Way,
    /// What those said that have ended, by the numbers of the lives.
    lives: Vec<Heard>,
    /// Acknowledgements that were heard so far.
    told: Arc<AtomicU64>,
}

impl Band<'_> {
    async fn start(&mut self) -> Life {
        let number = self.lives.len();
        self.lives.push(Heard::default());
        let task = Task::Add { life: number, way: self.way };
        let mut process = Process::start(self.backend, self.address, task).await;
        process.go().await;
        let (fate, awaited) = oneshot::channel();
        let hearing = tokio::spawn(hear(process, awaited, Arc::clone(&self.told)));
        Life { fate, ending: Ending { number, hearing } }
    }

    async fn ends(&mut self, Ending { number, hearing }: Ending) {
        self.lives[number] = hearing.await.expect("a process lives until it is told otherwise");
    }

    /// Compares what was said with what is there.
    async fn check(&self, survivor: &Container<Count>) -> Report {
        let found = survivor.read().await.expect("the record can be read").expect("it was created");
        let (way, value) = (self.way, &found.value);
        let sum = |count: fn(&Heard) -> u64| self.lives.iter().map(count).sum::<u64>();
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

/// Hears what a process says until it is killed, or told to come to an end and does.
async fn hear(mut process: Process, mut fate: oneshot::Receiver<Fate>, told: Arc<AtomicU64>) -> Heard {
    let mut heard = Heard::default();
    let mut count = |said: Said| match said {
        Said::Asked => heard.asked += 1,
        Said::Told => {
            heard.told += 1;
            told.fetch_add(1, Ordering::SeqCst);
        }
    };
    let fate = loop {
        tokio::select! {
            said = process.hear::<Said>() => count(said.expect("a process ended by itself")),
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

/// What a process does: its tasks add until it is killed, or told to come to an end.
pub(crate) async fn add(conn: Conn, life: usize, way: Way) {
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

async fn add_one(record: &Container<Count>, life: usize, way: Way) -> Result<(), StateError> {
    match way {
        Way::Mutate => {
            let add = move |count: &mut Count| {
                count.count += 1;
                *count.lives.entry(life.to_string()).or_default() += 1;
            };
            record.mutate(add).await.map(drop)
        }
        Way::Inc => {
            let both = vec![Delta::inc("/count", 1), Delta::inc(format!("/lives/{life}"), 1)];
            record.deltas(both).await.map(drop)
        }
    }
}
