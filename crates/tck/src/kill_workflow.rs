//! Workflow kill test. Several processes drive runs and are killed repeatedly. Effects in the store exist exactly once.
//! Calls to an external server happen at least once, under one idempotency key. They are repeated only if a step was in
//! flight at a kill.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidelock_core::clock::SystemClock;
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{Batch, Delta, SharedStore};
use tidelock_core::worker::WorkerHandle;
use tidelock_core::workflow::{
    Ctx, Failure, RunFilter, RunStatus, Worker, Workflow, WorkflowClient, WorkflowEngine,
};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::Backend;
use crate::conn::Conn;
use crate::process::{Process, Task, say};
use crate::run::setting;

/// Number of concurrent worker processes.
const WORKERS: u64 = 3;
/// Number of concurrent runs per worker.
const CONCURRENCY: u64 = 16;
/// Total number of runs.
const RUNS: u64 = 200;
/// Rounds of each run. Each round has one call and one effect in the store.
const ROUNDS: u64 = 10;
/// Approximate duration in seconds. `TIDELOCK_KILL_SECONDS` overrides it.
const SECONDS: u64 = 5;
/// Lease TTL: the time until other workers take over from a killed one.
const LEASE: Duration = Duration::from_secs(1);
/// Time limit on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(150);

const HAUL: Workflow<u16, u64> = Workflow::new("haul");

/// The findings of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Number of killed workers.
    pub kills: u64,
    /// Calls to the server.
    pub calls: u64,
    /// Repeated calls.
    pub again: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, calls, again } = self;
        let effects = RUNS * ROUNDS;
        write!(
            f,
            "{RUNS} runs, {kills} kills: {effects} effects in the store, each once; {calls} calls, {again} made again"
        )
    }
}

/// Number of calls per key.
#[derive(Clone, Debug, Default)]
struct Calls(Arc<Mutex<BTreeMap<String, u64>>>);

impl Calls {
    fn add(&self, key: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
    }

    fn all(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Runs workers that drive runs, and kills one of them every second. The test program must contain
/// [`conformance!`](crate::conformance) or [`child!`](crate::child).
///
/// # Panics
/// If an effect is missing or duplicated, or if more calls were repeated than could be in flight at the kills.
pub async fn killed(backend: &dyn Backend) -> Report {
    let seconds = setting("TIDELOCK_KILL_SECONDS", SECONDS);
    let database = backend.fresh(Arc::default()).await;
    let address = database.address().expect("the store can be shared by processes");
    let conn = Conn(backend.attach(&address, SystemClock::shared()).await);
    let client = WorkflowClient::new(Arc::clone(&conn.0));
    // The delay of a call is chosen so that all calls together take about the configured time.
    let pace = Duration::from_millis(seconds * 1_000 * WORKERS * CONCURRENCY / (RUNS * ROUNDS));
    let calls = Calls::default();
    let (port, serving) = serve(calls.clone(), pace).await;
    for n in 0..RUNS {
        client.start(HAUL, &port).id(format!("haul-{n}")).await.expect("the store takes a run");
    }
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(worker(backend, &address).await);
    }
    let (began, mut kills) = (Instant::now(), 0);
    while living(&client).await > 0 {
        assert!(began.elapsed() < LIMIT, "{} runs have not ended within {LIMIT:?}", living(&client).await);
        tokio::time::sleep(Duration::from_secs(1)).await;
        workers.remove(0).kill().await;
        workers.push(worker(backend, &address).await);
        kills += 1;
    }
    for mut worker in workers {
        worker.kill().await;
    }
    serving.abort();
    let report = check(&conn, &client, &calls.all(), kills).await;
    crate::run::say(&format!("{report}; on {}", backend.name()));
    report
}

async fn living(client: &WorkflowClient) -> usize {
    let filter = RunFilter { status: Some(RunStatus::Running), ..RunFilter::default() };
    client.list(&filter, None, 500).await.expect("the store answers").runs.len()
}

async fn check(conn: &Conn, client: &WorkflowClient, calls: &BTreeMap<String, u64>, kills: u64) -> Report {
    for n in 0..RUNS {
        let run = format!("haul-{n}");
        let view = client.show(&run).await.expect("the run is there");
        assert_eq!(view.status, RunStatus::Completed, "{view:?}");
        let effects = conn.value(&hauled(&run)).await.expect("the run has left its effects");
        for round in 0..ROUNDS {
            assert_eq!(effects[format!("round {round}")], 1, "{run}, round {round}: {effects}");
            let key = format!("{run}:round[{round}]/call");
            assert!(calls.contains_key(&key), "{key} was never called");
        }
    }
    let (made, keys) = (calls.values().sum::<u64>(), calls.len() as u64);
    assert_eq!(keys, RUNS * ROUNDS, "every call has a key of its own, the same for all attempts");
    let again = made - keys;
    assert!(kills > 0, "no worker was killed");
    assert!(again <= kills * CONCURRENCY, "{again} calls were made again, and {kills} workers were killed");
    Report { kills, calls: made, again }
}

fn hauled(run: &str) -> Key {
    Key::new("hauled", [run]).expect("a key")
}

async fn worker(backend: &dyn Backend, address: &str) -> Process {
    let mut process = Process::start(backend, address, Task::Haul).await;
    process.go().await;
    assert_eq!(process.hear::<String>().await.as_deref(), Some("driving"));
    process
}

/// The role of a child process: it drives runs until it is killed.
pub(crate) async fn drive(conn: Conn) {
    let driving = start(&conn.0).await;
    say(&"driving");
    crate::process::listen().await;
    driving.shutdown().await;
}

async fn start(store: &SharedStore) -> WorkerHandle<WorkflowEngine> {
    let worker = Worker::new(Arc::clone(store)).lease_ttl(LEASE).concurrency(CONCURRENCY as usize);
    worker.register(HAUL, haul).start().await.expect("the worker starts")
}

async fn haul(cx: &Ctx, port: u16) -> Result<u64, Failure> {
    for round in 0..ROUNDS {
        let here = cx.scope("round", round);
        here.step("call", async |step| call(port, &step.key()).await).await?;
        let run = cx.run();
        here.step_in("note", async |_| {
            let note = [Delta::inc(format!("/round {round}"), 1)];
            Ok((Batch::new().merge_or_create(&hauled(run), Payload::trusted("{}"), note), ()))
        })
        .await?;
    }
    Ok(ROUNDS)
}

/// Calls the server, as a client of a payment provider would.
async fn call(port: u16, key: &str) -> Result<(), Failure> {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("POST / HTTP/1.1\r\nIdempotency-Key: {key}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    if answer.starts_with("HTTP/1.1 200") {
        Ok(())
    } else {
        Err(Failure::new(format!("it answered {answer:?}")))
    }
}

/// Starts a server that counts calls by their keys and answers after a delay.
async fn serve(calls: Calls, pace: Duration) -> (u16, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let serving = tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(answer(connection, calls.clone(), pace));
        }
    });
    (port, serving)
}

/// Answers one call. A caller that dies in the middle does not affect the server.
async fn answer(connection: TcpStream, calls: Calls, pace: Duration) -> std::io::Result<()> {
    let mut connection = BufReader::new(connection);
    let mut line = String::new();
    while connection.read_line(&mut line).await? > 2 {
        if let Some(key) = line.trim_end().strip_prefix("Idempotency-Key: ") {
            calls.add(key.to_owned());
        }
        line.clear();
    }
    tokio::time::sleep(pace).await;
    connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await
}
