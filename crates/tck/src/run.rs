//! Test runner for a case: a runtime with real threads, a separate database, and a watchdog.

use std::io::Write as _;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, mpsc};
use std::time::Duration;

use crate::conn::Conn;
use crate::dump::standing;
use crate::env::Env;
use crate::{Backend, CASES};

/// Time limit of a case. A case that takes longer hangs, and a hang must fail rather than block a build for hours.
const WATCHDOG: Duration = Duration::from_secs(180);

/// Time limit for reading the state of the store after a case has timed out.
const REPORT: Duration = Duration::from_secs(20);

/// Shared by the cases that run, and exclusive for a case that runs alone.
static RUNNING: RwLock<()> = RwLock::new(());

/// Runs one case. Called by the tests that [`conformance!`](crate::conformance) generates.
#[doc(hidden)]
pub fn run_case(name: &str, backend: Box<dyn Backend>) {
    let case = CASES.iter().find(|case| case.name == name).expect("the macro names cases that exist");
    let backend: Arc<dyn Backend> = Arc::from(backend);
    if backend.capabilities().documents_only && !case.documents_only {
        say(&format!("tck: {name} is passed over on {}: it needs more than documents", backend.name()));
        return;
    }
    let (_alone, _beside) = if case.alone {
        (Some(RUNNING.write().unwrap_or_else(PoisonError::into_inner)), None)
    } else {
        (None, Some(RUNNING.read().unwrap_or_else(PoisonError::into_inner)))
    };
    let opened = Arc::new(OnceLock::new());
    let seen = Arc::clone(&opened);
    let work = move || {
        block_on(async {
            let env = Env::open(backend).await;
            let _ = seen.set(env.other.clone());
            (case.run)(&env).await;
        });
    };
    watched_with(Duration::ZERO, work, || report(opened.get()));
}

/// Reads the state of the store of a case that timed out, so that the failure explains the hang.
fn report(conn: Option<&Conn>) -> String {
    let Some(conn) = conn.cloned() else { return "its store was not open yet".to_owned() };
    let read = std::thread::spawn(move || {
        block_on(async { tokio::time::timeout(REPORT, standing(&conn)).await.unwrap_or_default() })
    });
    let read = read.join().unwrap_or_default();
    if read.is_empty() { format!("its store did not answer within {REPORT:?}") } else { read }
}

/// Runs `work` in a separate thread, for at most the watchdog's limit plus the expected duration. A thread is needed
/// because a store that never yields would keep a timer of the runtime from firing.
pub(crate) fn watched(meant: Duration, work: impl FnOnce() + Send + 'static) {
    watched_with(meant, work, String::new);
}

/// Does the same, and adds a report about the store when the time is up.
fn watched_with(meant: Duration, work: impl FnOnce() + Send + 'static, report: impl FnOnce() -> String) {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // The sender is dropped on every exit, including a panic; the receiver waits for that.
        let _done: mpsc::Sender<()> = done;
        work();
    });
    let limit = WATCHDOG + meant;
    if ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
        let report = report();
        panic!("the case was not done after {} s: something hangs\n{report}", limit.as_secs());
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a future on a runtime with real threads.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    let runtime = runtime.expect("the machine has threads");
    let done = runtime.block_on(work);
    // Tasks that a case dropped may still wait for something; the runner does not wait for them.
    runtime.shutdown_background();
    done
}

/// Prints how many cases of these folders the backend runs. Called by the summary test.
#[doc(hidden)]
pub fn print_summary(backend: &dyn Backend, folders: &[&str]) {
    let documents_only = backend.capabilities().documents_only;
    let cases: Vec<_> = CASES.iter().filter(|case| folders.contains(&case.folder)).collect();
    assert!(!cases.is_empty(), "the kit found no cases");
    let run = cases.iter().filter(|case| case.documents_only || !documents_only).count();
    say(&format!("tck: {run} cases on {}", backend.name()));
    if run < cases.len() {
        let (rest, name) = (cases.len() - run, backend.name());
        say(&format!("tck: passed over on {name}: {rest} cases, which need more than documents"));
    }
}

/// Returns a number from the environment, or the default.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")),
        Err(_) => default,
    }
}

/// Returns the seed from the environment, or a new one from the current time.
pub(crate) fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    setting("TIDELOCK_SEED", now.as_nanos() as u64)
}

/// Prints a line that the test harness does not capture, because every log should show what ran. One write keeps other
/// lines from interleaving.
pub(crate) fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
