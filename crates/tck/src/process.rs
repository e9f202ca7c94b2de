//! Child processes for cases. The test program starts itself again, with a role in the environment.
//!
//! A child is the test `tidelock_tck_child`, which does nothing without a role. It prints `ready`, waits for a line on
//! its standard input so that all children start together, and then prints one line per event. Lines carry a mark,
//! because the test harness prints to the same stream.

use std::io::{BufRead as _, Write as _};
use std::process::Stdio;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidelock_core::clock::SystemClock;
use tidelock_core::id::{OpId, Position, StreamVersion};
use tidelock_core::key::Key;
use tidelock_core::store::{Batch, Expect};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Backend;
use crate::builders::{event, key, number};
use crate::conn::Conn;

const ROLE: &str = "TIDELOCK_TCK_ROLE";
const MARK: &str = "@tck ";
/// Writer tasks per child, so that its batches share flushes as those of a real program do.
const TASKS: u64 = 8;

/// The role of a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Appends to a shared stream and to a stream of this writer; reports each append.
    Append { writer: u64, batches: u64 },
    /// Acquires a named lock; reports whether it succeeded.
    Lock { name: String, owner: String },
    /// Creates a document unless it exists; reports whether it did.
    Create { name: String, value: i64 },
    /// Applies an increment under an operation id; reports whether it was a repetition.
    Operation { name: String, id: OpId },
    /// Increments a document by merges and by compare-and-swap; reports when done.
    Count { name: String, times: u64 },
    /// Holds a lease; reports its fence. When the parent lets it continue, it writes under the lease and reports the
    /// results.
    Hold { name: String },
    /// Runs reactions until it is killed; reports when they run.
    React,
    /// Writes complete batches until it is killed; reports each acknowledged one.
    Crash { seed: u64 },
    /// Adds to a record until it is killed or told to finish; reports before and after each addition.
    Add { life: usize, way: crate::kill_state::AdditionKind },
    /// Drives runs until it is killed; reports when it has started.
    Haul,
    /// Works while its file system changes are recorded.
    #[cfg(unix)]
    PowerCut(crate::power_cut::Work),
    /// Runs transactions until it is killed or told to finish; records them in a trace.
    Transact { life: usize, trace: String },
    /// Takes part in a stress scenario.
    Stress(crate::stress::Part),
}

#[derive(Debug, Serialize, Deserialize)]
struct Role {
    backend: String,
    address: String,
    task: Task,
}

/// The result that a child's append returned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct AppendReport {
    pub(crate) stream: Key,
    pub(crate) version: StreamVersion,
    pub(crate) position: Position,
    pub(crate) writer: u64,
    pub(crate) n: u64,
}

/// A child process, as its parent sees it.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a child and waits until it is connected and ready.
    pub(crate) async fn start(backend: &dyn Backend, address: &str, task: Task) -> Self {
        let mut child = command(backend, address, task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test program starts again");
        let input = child.stdin.take().expect("stdin is a pipe");
        let lines = BufReader::new(child.stdout.take().expect("stdout is a pipe")).lines();
        let mut process = Self { child, input, lines };
        assert_eq!(process.hear::<String>().await.as_deref(), Some("ready"), "the child does not start");
        process
    }

    /// Lets the child start.
    pub(crate) async fn go(&mut self) {
        self.input.write_all(b"go\n").await.expect("the child listens");
        self.input.flush().await.expect("the child listens");
    }

    /// Returns the next report of the child, or `None` when the child has ended.
    pub(crate) async fn hear<T: DeserializeOwned>(&mut self) -> Option<T> {
        while let Ok(Some(line)) = self.lines.next_line().await {
            if let Some((_, said)) = line.split_once(MARK) {
                // A line that a kill cut short does not count as a report.
                return serde_json::from_str(said).ok();
            }
        }
        None
    }

    /// Kills the child with SIGKILL.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("the child can be killed");
    }

    /// Sends the child a signal, such as `STOP` or `CONT`.
    pub(crate) async fn signal(&self, signal: &str) {
        let id = self.child.id().expect("the child lives").to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status().await;
        assert!(sent.expect("there is a kill command").success(), "{signal} was not sent");
    }

    /// Collects the remaining reports of the child until it ends, and panics unless it succeeds.
    pub(crate) async fn finish<T: DeserializeOwned>(mut self) -> Vec<T> {
        let mut said = Vec::new();
        while let Some(one) = self.hear().await {
            said.push(one);
        }
        let status = self.child.wait().await.expect("the child ends");
        assert!(status.success(), "a child process failed: {status}");
        said
    }
}

/// Returns the command that starts the test program again with a role.
pub(crate) fn command(backend: &dyn Backend, address: &str, task: Task) -> Command {
    let role = Role { backend: backend.name().to_owned(), address: address.to_owned(), task };
    let mut command = Command::new(std::env::current_exe().expect("the test program knows itself"));
    command
        // The name alone finds the test, whichever module the kit was expanded in.
        .args(["tidelock_tck_child", "--nocapture", "--test-threads=1"])
        .env(ROLE, serde_json::to_string(&role).expect("a role is JSON"))
        .kill_on_drop(true);
    command
}

pub(crate) fn say(what: &impl Serialize) {
    let line = format!("\n{MARK}{}\n", serde_json::to_string(what).expect("what a child says is JSON"));
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).expect("the parent listens");
}

/// Runs the role from the environment, if there is one for this backend.
#[doc(hidden)]
pub fn run_child(backend: Box<dyn Backend>) {
    let Ok(role) = std::env::var(ROLE) else { return };
    let role: Role = serde_json::from_str(&role).expect("the role is JSON");
    if role.backend != backend.name() {
        return;
    }
    // The watchdog grants a child the duration of its stress scenario.
    let spare = if matches!(role.task, Task::Stress(_)) { crate::stress::time() } else { Duration::ZERO };
    crate::run::watched(spare, move || crate::run::block_on(child(backend, role)));
}

async fn child(backend: Box<dyn Backend>, role: Role) {
    #[cfg(unix)]
    if let Task::PowerCut(work) = &role.task {
        return crate::power_cut::live(&*backend, &role.address, work).await;
    }
    let conn = Conn(backend.attach(&role.address, SystemClock::shared()).await);
    say(&"ready");
    let mut line = String::new();
    let heard = std::io::stdin().lock().read_line(&mut line).expect("the parent speaks");
    // At the end of input the parent is gone and does not need the work.
    if heard > 0 {
        play(conn, role.task).await;
    }
}

/// Waits for a line from the parent. Exits when the parent is gone.
pub(crate) async fn listen() {
    let listening = tokio::task::spawn_blocking(|| std::io::stdin().lock().read_line(&mut String::new()));
    if !matches!(listening.await, Ok(Ok(1..))) {
        std::process::exit(0);
    }
}

async fn play(conn: Conn, task: Task) {
    match task {
        Task::Append { writer, batches } => append(conn, writer, batches).await,
        Task::Lock { name, owner } => say(&conn.lock(&owner, &key(&name)).await.is_ok()),
        Task::Create { name, value } => {
            let batch = Batch::new().put(&key(&name), Expect::Absent, number(value));
            say(&conn.apply(batch).await.is_ok());
        }
        Task::Operation { name, id } => {
            let delta = tidelock_core::store::Delta::inc("/n", 1);
            let batch = Batch::new().merge_or_create(&key(&name), number(0), [delta]).op_id(id);
            say(&conn.done(batch).await.repeated);
        }
        Task::Count { name, times } => {
            for _ in 0..times {
                crate::contract::state::increment(&conn, &key(&name)).await;
            }
            say(&times);
        }
        Task::Hold { name } => crate::sigstop::hold(conn, &name).await,
        Task::React => crate::reacting::react(conn).await,
        Task::Crash { seed } => crate::crash::write_until_killed(conn, seed, |ack| say(&ack)).await,
        Task::Add { life, way } => crate::kill_state::add(conn, life, way).await,
        Task::Haul => crate::kill_workflow::drive(conn).await,
        #[cfg(unix)]
        Task::PowerCut(_) => unreachable!("this role opens the store itself"),
        Task::Transact { life, trace } => crate::transactions::transact(conn, life, &trace).await,
        Task::Stress(part) => part.play(conn).await,
    }
}

async fn append(conn: Conn, writer: u64, batches: u64) {
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let conn = conn.clone();
        tasks.push(tokio::spawn(async move {
            for n in (task..batches).step_by(TASKS as usize) {
                append_one(&conn, writer, n).await;
            }
        }));
    }
    for task in tasks {
        task.await.expect("a writer panicked");
    }
}

async fn append_one(conn: &Conn, writer: u64, n: u64) {
    let kind = format!("Writer{writer}");
    let streams = [key("shared"), key(&format!("own-{writer}"))];
    let batch = streams.iter().fold(Batch::new(), |batch, stream| {
        batch.append(stream, Expect::Any, [event(&kind, i64::try_from(n).expect("small"))])
    });
    for appended in conn.done(batch).await.appended {
        let (version, position) = (appended.first_version, appended.first_position);
        say(&AppendReport { stream: appended.stream, version, position, writer, n });
    }
}
