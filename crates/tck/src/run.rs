//! How a case becomes a test: a runtime with real threads, a database of its own, and a watchdog.

use std::io::Write as _;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use crate::conn::Conn;
use crate::dump::standing;
use crate::env::Env;
use crate::{Backend, CASES};

/// No case takes longer than this: one that does hangs, and a hang must fail rather than block a build for hours.
const WATCHDOG: Duration = Duration::from_secs(180);

/// How long the store of such a case is asked how things stand.
const REPORT: Duration = Duration::from_secs(20);

/// Runs one case. Called by the tests that [`conformance!`](crate::conformance) makes.
#[doc(hidden)]
pub fn run_case(name: &str, backend: Box<dyn Backend>) {
    let case = CASES.iter().find(|case| case.name == name).expect("the macro names cases that exist");
    let backend: Arc<dyn Backend> = Arc::from(backend);
    if backend.capabilities().documents_only && !case.documents_only {
        say(&format!("tck: {name} is passed over on {}: it needs more than documents", backend.name()));
        return;
    }
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

/// Reads how the store of a case stands that ran out of time, so that its hang explains itself.
fn report(conn: Option<&Conn>) -> String {
    let Some(conn) = conn.cloned() else { return "its store was not open yet".to_owned() };
    let read = std::thread::spawn(move || {
        block_on(async { tokio::time::timeout(REPORT, standing(&conn)).await.unwrap_or_default() })
    });
    let read = read.join().unwrap_or_default();
    if read.is_empty() { format!("its store did not answer within {REPORT:?}") } else { read }
}

/// Runs something in a thread of its own, for no longer than the watchdog allows beyond the time that it is meant to take. A
/// thread, because a store that never yields would not let a timer of the runtime fire.
pub(crate) fn watched(meant: Duration, work: impl FnOnce() + Send + 'static) {
    watched_with(meant, work, String::new);
}

/// The same, with a report of how things stand when the time is over.
fn watched_with(meant: Duration, work: impl FnOnce() + Send + 'static, report: impl FnOnce() -> String) {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // Dropped on every way out, by panic too: that is what the receiver waits for.
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

/// Runs something on a runtime with real threads.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    let runtime = runtime.expect("the machine has threads");
    let done = runtime.block_on(work);
    // Tasks that a case dropped may still wait for something; nobody waits for them.
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

/// A number from the environment, or the default.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")),
        Err(_) => default,
    }
}

/// The seed that the environment holds, or one that nobody has tried yet.
pub(crate) fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    setting("TIDELOCK_SEED", now.as_nanos() as u64)
}

/// Writes a line past the capture of the test harness: what ran belongs into every log. In one write, so that no other line comes
/// in between.
pub(crate) fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
