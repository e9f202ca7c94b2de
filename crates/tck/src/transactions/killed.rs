//! Processes that run transactions and are killed. Their records stay in the trace.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidelock_core::clock::{ManualClock, SystemClock};

use super::client::Client;
use super::trace::Trace;
use super::{Tally, conclude};
use crate::Backend;
use crate::conn::Conn;
use crate::process::{Process, Task, listen};
use crate::run::{seed, setting};

/// Number of processes at the same time.
const PROCESSES: usize = 2;
/// Number of concurrent clients of a process.
const CLIENTS: usize = 4;
/// Duration of the test, in seconds. `TIDELOCK_KILL_SECONDS` overrides it.
const SECONDS: u64 = 2;
/// The time between two kills.
const EVERY: Duration = Duration::from_millis(400);

/// Runs transactions in several processes, kills one after the other, and checks the history of all of them. Returns the number
/// of kills and the counts. The test program must contain [`conformance!`](crate::conformance) or [`child!`](crate::child).
///
/// # Panics
/// If the transactions are not strictly serializable, or the backend cannot be shared by processes.
pub async fn killed(backend: &dyn Backend) -> (usize, Tally) {
    let (seed, time) = (seed(), Duration::from_secs(setting("TIDELOCK_KILL_SECONDS", SECONDS)));
    let database = backend.fresh(Arc::new(ManualClock::default())).await;
    let address = database.address().expect("a backend with processes has addresses");
    let trace = Arc::new(Trace::create());
    let mut lives = 0;
    let mut living = Vec::new();
    while living.len() < PROCESSES {
        living.push(start(backend, &address, &trace, &mut lives).await);
    }
    let (begun, mut kills) = (tokio::time::Instant::now(), 0);
    for n in (1..).take_while(|n| EVERY * *n <= time) {
        // This sleep waits for no condition. It sets the time of the next kill.
        tokio::time::sleep_until(begun + EVERY * n).await;
        living.remove(0).kill().await;
        kills += 1;
        living.push(start(backend, &address, &trace, &mut lives).await);
    }
    for process in &mut living {
        process.go().await;
    }
    for process in living {
        process.finish::<()>().await;
    }
    let survivor = Conn(backend.attach(&address, SystemClock::shared()).await);
    let replay = format!("{kills} kills; TIDELOCK_SEED={seed}");
    (kills, conclude(backend.name(), &survivor, &trace, seed, &replay).await)
}

async fn start(backend: &dyn Backend, address: &str, trace: &Trace, lives: &mut usize) -> Process {
    let trace = trace.path().to_str().expect("a path in UTF-8").to_owned();
    let mut process = Process::start(backend, address, Task::Transact { life: *lives, trace }).await;
    *lives += 1;
    process.go().await;
    process
}

/// The role of a child process. Its clients run transactions until the process is killed or may end.
pub(crate) async fn transact(conn: Conn, life: usize, trace: &str) {
    let (trace, ending) = (Arc::new(Trace::open(Path::new(trace))), Arc::new(AtomicBool::new(false)));
    let mut tasks = Vec::new();
    for number in (life * CLIENTS..).take(CLIENTS) {
        let mut client = Client::new(
            number,
            seed().wrapping_add(number as u64),
            conn.clone(),
            conn.clone(),
            Arc::clone(&trace),
        );
        let ending = Arc::clone(&ending);
        tasks.push(tokio::spawn(async move {
            while !ending.load(Ordering::SeqCst) {
                client.step().await;
            }
        }));
    }
    listen().await;
    ending.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.expect("a client panicked");
    }
}
