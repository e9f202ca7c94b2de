//! Crashes of real processes and a real server: every acknowledged batch is there once, and no batch is there in part.
#![cfg(unix)]
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

#[path = "common/child.rs"]
mod child;
mod common;
#[path = "common/load.rs"]
mod load;
#[path = "common/poll.rs"]
mod poll;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use child::{Process, say, setting};
use load::{Tally, check_streams, surely, whole_log};
use poll::{LIMIT, in_time, until};
use serde_json::{Value, json};
use tidelock_core::id::{EventType, OpId, Owner, Position, QueueName};
use tidelock_core::key::{Arg, Key, KeyPrefix};
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    Batch, Claim, Delta, Event, Expect, Grant, LogQuery, NewEvent, NewWork, Page, Receipt, Refusal, Store,
    StoreErrorKind, StoredDocument, WorkFilter, limits,
};
use tidelock_pgserver::Server;
use tidelock_postgres::{PostgresOptions, PostgresStore, tokio_postgres};
use tidelock_tck::Backend as _;
use tidelock_tck::rng::Rng;
use tokio::sync::mpsc;

tidelock_tck::child!(crate::common::Postgres::default());

/// The number of processes that the test command kills; the soak test kills more.
const ROUNDS: u64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_the_middle_of_group_commits() {
    let (first, rounds) = (setting("TIDELOCK_SEED", 1), setting("TIDELOCK_ROUNDS", ROUNDS));
    let backend = common::Postgres::default();
    let (mut acknowledged, mut found) = (0, 0);
    for seed in first..first + rounds {
        let report = tidelock_tck::crash::round(&backend, seed).await;
        acknowledged += report.acknowledged;
        found += report.found;
    }
    eprintln!("{rounds} kills on {}: {acknowledged} acknowledged, {found} found, lost 0", backend.name());
    assert!(acknowledged > 0, "nothing was acknowledged in any round: the test proves nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_workers_drive_runs() {
    tidelock_tck::kill_workflow::killed(&common::Postgres::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_transactions_over_many_keys_run() {
    let backend = common::Postgres::default();
    let (kills, tally) = tidelock_tck::transactions::killed(&backend).await;
    eprintln!("{kills} kills on {}: serializable; {tally}", backend.name());
    assert!(kills > 0 && tally.committed > 0 && tally.dependencies > 0, "this proves nothing: {tally}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_two_processes_add_to_one_record() {
    let backend = common::Postgres::default();
    for report in tidelock_tck::kill_state::rounds(&backend).await {
        eprintln!("{report} on {}", backend.name());
    }
}

/// The number of concurrent processes, and of the tasks in each that write and that do jobs.
const WORKERS: u64 = 4;
const WRITERS: u64 = 3;
const DOERS: u64 = 2;
/// The time that a worker has for a job before other workers may claim it.
const TTL: Duration = Duration::from_secs(1);

fn own(slot: u64, life: u64, writer: u64) -> Key {
    let number = |n: u64| Arg::Int(i64::try_from(n).unwrap());
    Key::of("own", &[number(slot), number(life), number(writer)]).unwrap()
}

fn shared() -> Key {
    Key::single("shared").unwrap()
}

fn counter(slot: u64) -> Key {
    Key::new("counter", [i64::try_from(slot).unwrap()]).unwrap()
}

fn job(id: OpId) -> Key {
    Key::new("job", [id.to_string()]).unwrap()
}

fn effect(job: &Key) -> Key {
    Key::of("effect", &job.args()).unwrap()
}

fn queue_name() -> QueueName {
    QueueName::new("jobs").unwrap()
}

fn inc(batch: Batch, document: &Key) -> Batch {
    batch.merge_or_create(document, Payload::of(&json!({ "n": 0 })).unwrap(), [Delta::inc("/n", 1)])
}

/// A worker process: writes and does jobs until it is killed or stopped.
#[derive(Clone)]
struct Worker {
    slot: u64,
    life: u64,
    store: PostgresStore,
    tally: Arc<Tally>,
    ending: Arc<AtomicBool>,
    /// The number of tasks that may still create jobs.
    writing: Arc<AtomicU64>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_will_be_killed() {
    let Some(role) = child::role() else { return };
    let ending = child::ending();
    let store = open(role["url"].as_str().unwrap()).await;
    let (slot, life) = (role["slot"].as_u64().unwrap(), role["life"].as_u64().unwrap());
    let writing = Arc::new(AtomicU64::new(WRITERS));
    let worker = Worker { slot, life, store, tally: Arc::default(), ending, writing };
    let mut tasks = Vec::new();
    for n in 0..WRITERS {
        let worker = worker.clone();
        tasks.push(tokio::spawn(async move {
            worker.write(n).await;
            worker.writing.fetch_sub(1, Ordering::SeqCst);
        }));
    }
    for n in 0..DOERS {
        let worker = worker.clone();
        tasks.push(tokio::spawn(async move { worker.do_jobs(n).await }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// Opens the store, however long the server is unavailable.
async fn open(url: &str) -> PostgresStore {
    let start = Instant::now();
    loop {
        match PostgresStore::open(url, PostgresOptions::default()).await {
            Ok(store) => return store,
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Unreachable, "{error}");
                assert!(start.elapsed() < LIMIT, "{error}");
            }
        }
    }
}

impl Worker {
    /// Every batch has events on its own stream and on a shared one, a counter, a job and an id.
    async fn write(&self, writer: u64) {
        let own = own(self.slot, self.life, writer);
        let mut expect = Expect::Absent;
        while !self.ending.load(Ordering::SeqCst) {
            let id = OpId::new();
            let says = Payload::of(&json!({ "op": id, "slot": self.slot })).unwrap();
            let event = || NewEvent::new(EventType::new("Written").unwrap(), says.clone());
            let batch = Batch::new()
                .append(&own, expect, [event()])
                .append(&shared(), Expect::Any, [event()])
                .enqueue(NewWork::once(job(id), queue_name()).only_new());
            let batch = inc(batch, &counter(self.slot)).op_id(id);
            let receipt = self.surely(&batch).await.expect("nothing speaks against it");
            expect = Expect::Exact(receipt.appended[0].last_version);
            let at: Vec<Value> = receipt
                .appended
                .iter()
                .map(|a| json!([a.stream.canonical(), a.last_version, a.last_position]))
                .collect();
            say(&json!({ "op": id, "at": at }));
        }
    }

    /// Claims jobs and does them, each in one batch with its effect. When stopping, it continues until there are none.
    async fn do_jobs(&self, doer: u64) {
        let owner = Owner::new(format!("{}-{}-{doer}", self.slot, self.life)).unwrap();
        let mut rng = Rng::new(self.slot << 32 | self.life << 8 | doer);
        let filter = WorkFilter { queue: Some(queue_name()), ..WorkFilter::default() };
        loop {
            let mut watch = self.store.watch();
            let claim = Claim::queues(&owner, [queue_name()], 8, TTL);
            let grants = match self.store.claim(claim).await {
                Ok(claimed) => claimed.grants,
                Err(error) if error.kind == StoreErrorKind::Unreachable => continue,
                Err(error) => panic!("{error:?}"),
            };
            if grants.is_empty() {
                let more = self.writing.load(Ordering::SeqCst) > 0;
                let left = self.store.count_work(&filter).await;
                if !more && left.is_ok_and(|left| left == 0) {
                    return;
                }
                // Hints are not sufficient: leases of killed workers expire without one.
                drop(tokio::time::timeout(TTL / 10, watch.changed()).await);
            }
            for grant in grants {
                // Some jobs are done too late: another worker has the job by then.
                if rng.one_in(200) {
                    tokio::time::sleep(TTL + TTL / 5).await;
                }
                self.do_job(&grant).await;
            }
        }
    }

    async fn surely(&self, batch: &Batch) -> Result<Receipt, Box<Refusal>> {
        let answer = surely(&self.store, batch, &self.tally).await;
        let unknown = self.tally.unknown.swap(0, Ordering::SeqCst);
        let happened = self.tally.had_happened.swap(0, Ordering::SeqCst);
        if unknown > 0 {
            say(&json!({ "unknown": unknown, "happened": happened }));
        }
        answer
    }

    async fn do_job(&self, grant: &Grant) {
        let batch = inc(Batch::new().ack(&grant.lease()), &effect(&grant.row.key)).op_id(OpId::new());
        match self.surely(&batch).await {
            Ok(_) => say(&json!({ "did": grant.row.key.canonical() })),
            Err(refusal) if matches!(*refusal, Refusal::Fenced { .. }) => say(&json!({ "fenced": 1 })),
            Err(refusal) => panic!("{refusal}"),
        }
    }
}

/// The reports that the parent received.
#[derive(Default)]
struct ChildReports {
    /// Acknowledged batches, with stream, version and position of their events.
    acknowledged: BTreeMap<OpId, Value>,
    done: BTreeSet<String>,
    fenced: u64,
    unknown: u64,
    happened: u64,
}

impl ChildReports {
    fn hear(&mut self, said: &Value) {
        if let Some(id) = said["op"].as_str() {
            let before = self.acknowledged.insert(id.parse().unwrap(), said["at"].clone());
            assert_eq!(before, None, "{id} was acknowledged twice");
        }
        if let Some(job) = said["did"].as_str() {
            assert!(self.done.insert(job.to_owned()), "{job} was done twice");
        }
        self.fenced += said["fenced"].as_u64().unwrap_or(0);
        self.unknown += said["unknown"].as_u64().unwrap_or(0);
        self.happened += said["happened"].as_u64().unwrap_or(0);
    }
}

/// Follows the log from its beginning, through all faults of the server, until it has seen `last`.
async fn follow(store: PostgresStore, last: Arc<std::sync::OnceLock<Position>>) -> Vec<Event> {
    let mut seen: Vec<Event> = Vec::new();
    loop {
        let mut watch = store.watch();
        let after = seen.last().map_or(Position(0), |event| event.position);
        if last.get().is_some_and(|last| after >= *last) {
            return seen;
        }
        let events = match store.read_log(LogQuery::after(after, 500)).await {
            Ok(page) => page.events,
            Err(error) if error.kind == StoreErrorKind::Unreachable => continue,
            Err(error) => panic!("{error:?}"),
        };
        assert!(events.iter().all(|event| event.position > after), "an event below the reader's position");
        if events.is_empty() {
            drop(tokio::time::timeout(Duration::from_millis(50), watch.changed()).await);
        }
        seen.extend(events);
    }
}

/// Kills workers and the server at random for a time. Returns how many of each.
async fn rage(server: &Arc<Server>, workers: &mut Workers, rng: &mut Rng, time: Duration) -> (u64, u64) {
    let (start, mut kills) = (Instant::now(), (0, 0));
    let mut next_server = Duration::from_millis(rng.within(700..1_500));
    while start.elapsed() < time {
        // The sleep waits for no condition; it spreads the kills.
        tokio::time::sleep(Duration::from_millis(rng.within(50..500))).await;
        if start.elapsed() > next_server {
            let server = Arc::clone(server);
            let pause = Duration::from_millis(rng.within(0..300));
            let restart = move || {
                server.kill().unwrap();
                std::thread::sleep(pause);
                server.run().unwrap();
            };
            tokio::task::spawn_blocking(restart).await.unwrap();
            next_server = start.elapsed() + Duration::from_millis(rng.within(700..2_500));
            kills.1 += 1;
        }
        let slot = usize::try_from(rng.within(0..WORKERS)).unwrap();
        workers.replace(slot).await;
        kills.0 += 1;
    }
    kills
}

/// The worker processes, one in each slot.
struct Workers {
    url: String,
    heard: mpsc::UnboundedSender<Value>,
    lives: u64,
    /// The application names of the living workers.
    living: Vec<String>,
    processes: Vec<Option<Process>>,
}

fn name(life: u64) -> String {
    format!("worker {life}")
}

impl Workers {
    fn start(url: &str, heard: mpsc::UnboundedSender<Value>) -> Self {
        let slots = usize::try_from(WORKERS).unwrap();
        let living = vec![String::new(); slots];
        let mut workers = Self { url: url.to_owned(), heard, lives: 0, living, processes: Vec::new() };
        for slot in 0..slots {
            let process = workers.process(slot);
            workers.processes.push(Some(process));
        }
        workers
    }

    fn process(&mut self, slot: usize) -> Process {
        self.lives += 1;
        let url = format!("{}?application_name={}", self.url, name(self.lives));
        let role = json!({ "url": url, "slot": slot, "life": self.lives });
        self.living[slot] = name(self.lives);
        Process::start("a_worker_that_will_be_killed", &role, self.heard.clone())
    }

    /// Kills the worker of a slot and starts another one.
    async fn replace(&mut self, slot: usize) {
        self.processes[slot].take().unwrap().kill().await;
        self.processes[slot] = Some(self.process(slot));
    }

    /// Stops the workers. The server still executes the requests of the killed ones, which may create jobs. The other
    /// workers stay until that is over.
    async fn end(mut self) {
        let (client, connection) = tokio_postgres::connect(&self.url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        until("the server notices the end of the killed", async || {
            let sql = "SELECT count(*) FROM pg_stat_activity
                WHERE application_name LIKE 'worker %' AND application_name <> ALL ($1)";
            client.query_one(sql, &[&self.living]).await.unwrap().get::<_, i64>(0) == 0
        })
        .await;
        self.processes.iter_mut().flatten().for_each(Process::tell_to_end);
        for process in self.processes.into_iter().flatten() {
            process.end().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_and_server_lose_nothing() {
    let time = Duration::from_secs(setting("TIDELOCK_KILL_SECONDS", 8));
    let seed = setting("TIDELOCK_SEED", std::process::id().into());
    eprintln!("seed {seed}");
    let server = Arc::new(Server::start(&tidelock_pgserver::PgServerOptions::default()).unwrap());
    let store = open(&server.url()).await;
    let last = Arc::new(std::sync::OnceLock::new());
    let following = tokio::spawn(follow(open(&server.url()).await, Arc::clone(&last)));
    let (heard, mut hearing) = mpsc::unbounded_channel();
    let listening = tokio::spawn(async move {
        let mut all = ChildReports::default();
        while let Some(said) = hearing.recv().await {
            all.hear(&said);
        }
        all
    });
    let mut workers = Workers::start(&server.url(), heard);
    let begun = Instant::now();
    let (workers_killed, server_killed) = rage(&server, &mut workers, &mut Rng::new(seed), time).await;
    // The remaining work is undisturbed: all jobs are done when the workers stop.
    let raged = begun.elapsed();
    workers.end().await;
    let calmed = begun.elapsed() - raged;
    let heard = listening.await.unwrap();
    let log = whole_log(&store).await;
    last.set(log.last().expect("something was written").position).unwrap();
    let seen = in_time("the reader has seen everything", following).await.unwrap();
    assert_eq!(seen.len(), log.len(), "the reader saw another number of events than there are");
    assert!(seen == log, "the reader saw other events, or in another order");
    let found = check_batches(&log, &heard);
    check_state(&store, &found).await;
    eprintln!(
        "{raged:.1?} and {calmed:.1?} to the end, {workers_killed} workers and {server_killed} servers killed: \
         {} batches acknowledged, {} found, lost 0; {} jobs done, {} told, {} came too late; {} unknown outcomes, \
         {} of them had happened",
        heard.acknowledged.len(),
        found.len(),
        found.len(),
        heard.done.len(),
        heard.fenced,
        heard.unknown,
        heard.happened,
    );
    assert!(
        workers_killed > 0 && server_killed > 0 && !heard.acknowledged.is_empty() && !heard.done.is_empty()
    );
}

/// Checks that every batch in the log is there completely and once, and that acknowledged events are where their
/// receipts say. Returns the batches, with the slots of their writers.
fn check_batches(log: &[Event], heard: &ChildReports) -> BTreeMap<OpId, u64> {
    check_streams(log);
    let mut at: BTreeMap<OpId, Vec<Value>> = BTreeMap::new();
    let mut slots = BTreeMap::new();
    for event in log {
        let said: Value = event.payload.parse().unwrap();
        let id: OpId = said["op"].as_str().unwrap().parse().unwrap();
        at.entry(id).or_default().push(json!([event.stream.canonical(), event.version, event.position]));
        slots.insert(id, said["slot"].as_u64().unwrap());
    }
    for (id, at) in &at {
        let shared = at.iter().filter(|at| at[0] == shared().canonical()).count();
        assert_eq!((at.len(), shared), (2, 1), "{id} is there by halves or twice: {at:?}");
    }
    for (id, told) in &heard.acknowledged {
        assert_eq!(at.get(id).map(|at| json!(at)).as_ref(), Some(told), "{id}");
    }
    slots
}

/// Checks that counters, receipts, jobs and their effects agree with the batches in the log.
async fn check_state(store: &PostgresStore, found: &BTreeMap<OpId, u64>) {
    for slot in 0..WORKERS {
        let written = found.values().filter(|of| **of == slot).count();
        let counted = store.document(&counter(slot)).await.unwrap().map_or(0, |document| number(&document));
        assert_eq!(counted, written as u64, "slot {slot}");
    }
    let expected: BTreeSet<Key> = found.keys().map(|id| effect(&job(*id))).collect();
    let effects = documents(store, "effect").await;
    let twice: Vec<&StoredDocument> = effects.iter().filter(|document| number(document) != 1).collect();
    assert!(twice.is_empty(), "done more than once: {twice:?}");
    let effects: BTreeSet<Key> = effects.into_iter().map(|document| document.key).collect();
    assert!(effects == expected, "{} jobs were done, there were {}", effects.len(), expected.len());
    assert_eq!(store.count_work(&WorkFilter::default()).await.unwrap(), 0);
    for id in found.keys().take(500) {
        let receipt = store.operation(*id).await.unwrap();
        assert_eq!(receipt.map(|receipt| receipt.appended.len()), Some(2), "{id}");
    }
}

fn number(document: &StoredDocument) -> u64 {
    document.value.parse::<Value>().unwrap()["n"].as_u64().unwrap()
}

async fn documents(store: &PostgresStore, kind: &str) -> Vec<StoredDocument> {
    let (prefix, mut all) = (KeyPrefix::kind(kind), Vec::new());
    let mut page = Page::first(limits::PAGE_ROWS);
    loop {
        let found = store.documents(&prefix, page).await.unwrap();
        all.extend(found.rows);
        match found.next {
            Some(next) => page = Page::after(&next, limits::PAGE_ROWS),
            None => return all,
        }
    }
}
