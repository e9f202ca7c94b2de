//! The demo, with real processes that are killed with `SIGKILL`.

#[cfg(unix)]
mod shutdown;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tidelock::prelude::*;
use tidelock::schedule::{Schedule, ScheduleActivity, Scheduler, Schedules};

use crate::support::{command, stderr, stdout, tidelock};

/// The violations that a proof must not report.
pub(crate) const WRONG: [&str; 12] = [
    "lost",
    "doubled",
    "unasked",
    "under_way",
    "astray",
    "miscounted",
    "collided",
    "takes_doubled",
    "takes_left_out",
    "refills_doubled",
    "refills_left_out",
    "fallen",
];

#[test]
fn the_proof_holds() {
    let output = tidelock(&["demo", "--seconds", "5", "-o", "json"]);
    let proof: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{proof:#} {}", stderr(&output));
    assert_eq!(proof["holds"], true);
    for name in WRONG {
        assert_eq!(proof[name], 0, "{name}: {proof:#}");
    }
    for name in ["asked", "kills", "retries", "recognised", "takeovers", "conflicts", "stock_takes"] {
        assert!(proof[name].as_u64().unwrap() > 0, "{name}: {proof:#}");
    }
    assert_eq!(proof["asked"], proof["done"]);
}

#[test]
fn two_demos_share_a_file_and_it_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared.db");
    for _ in 0..2 {
        let output =
            tidelock(&["demo", "--seconds", "1", "--workers", "2", "--path", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{} {}", stdout(&output), stderr(&output));
        assert!(stdout(&output).contains("the proof holds"));
    }
    assert!(path.exists());
}

/// Tasks of other programs in the file keep running, and concurrent demos do not archive each other's
/// tasks.
#[tokio::test]
async fn two_demos_at_once_and_a_program_with_tasks_leave_each_other_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared.db");
    let store: SharedStore = Arc::new(SqliteStore::open(&path, SqliteOptions::default()).await.unwrap());
    let task = Schedule::new("backup")
        .every(Duration::from_secs(3600))
        .run(async |_| Ok::<_, Failure>(Batch::new()));
    Scheduler::new(Arc::clone(&store)).with(task).start().await.unwrap().shutdown().await;
    let play = || {
        let args =
            ["demo", "--seconds", "2", "--workers", "2", "-o", "json", "--path", path.to_str().unwrap()];
        command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (one, other) = (play(), play());
    for demo in [one, other] {
        let output = demo.wait_with_output().unwrap();
        let proof: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{proof:#} {}", stderr(&output));
        assert!(proof["stock_takes"].as_u64().unwrap() > 0, "{proof:#}");
    }
    for task in Schedules::new(store).list().await.unwrap() {
        let is_archived = matches!(task.doing, ScheduleActivity::Archived { .. });
        assert_eq!(is_archived, task.record.name != "backup", "{}", task.record.name);
    }
}

#[test]
fn a_missing_file_is_not_reported_as_kept_and_only_this_machine_is_served() {
    let output = tidelock(&["demo", "--seconds", "1", "--path", "/nowhere/at/all.db"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!stderr(&output).contains("stays"), "{}", stderr(&output));
    let output = tidelock(&["demo", "--seconds", "1", "--listen", "0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).starts_with("error[TL1316]"), "{}", stderr(&output));
}

/// Starts a demo of the given length, and waits until the first order is shipped.
async fn busy_demo(path: &Path, seconds: &str) -> Child {
    let store = SqliteStore::open(path, SqliteOptions::default()).await.unwrap();
    let args = ["demo", "--seconds", seconds, "-o", "json", "--path", path.to_str().unwrap()];
    let demo = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until_shipped(&store).await;
    store.close().await;
    demo
}

async fn wait_until_shipped(store: &dyn Store) {
    let mut hints = store.watch();
    let mut query = LogQuery::all(1);
    query.filter.types = vec!["OrderShipped".parse().unwrap()];
    while store.read_log(query.clone()).await.unwrap().events.is_empty() {
        assert!(hints.changed().await);
    }
}

/// The workers share the parent's standard error, which is closed when the last of them has exited.
#[tokio::test]
async fn workers_end_when_their_parent_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut demo = busy_demo(&directory.path().join("demo.db"), "600").await;
    demo.kill().unwrap();
    let output = demo.wait_with_output().unwrap();
    let said = stderr(&output);
    assert!(said.starts_with("look at it") && said.lines().count() == 3, "{said}");
}

/// A worker that is suspended at that moment also exits.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_stalled_worker_exits_when_its_parent_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut demo = busy_demo(&directory.path().join("demo.db"), "600").await;
    let children = children_of(&demo);
    assert!(!children.is_empty());
    let signal = |name: &str| Command::new("kill").arg(name).args(&children).status().unwrap();
    assert!(signal("-STOP").success());
    demo.kill().unwrap();
    demo.wait().unwrap();
    let is_there = |worker: &String| {
        let state = std::fs::read_to_string(format!("/proc/{worker}/stat")).unwrap_or_default();
        !state.is_empty() && !state.contains(") Z ")
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while children.iter().any(is_there) {
        if Instant::now() > deadline {
            signal("-KILL");
            panic!("a worker is still there");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the process ids of the workers.
#[cfg(target_os = "linux")]
fn children_of(demo: &Child) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", demo.id())).unwrap();
    let children = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).unwrap());
    children.collect::<String>().split_whitespace().map(str::to_owned).collect()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_worker_that_exits_on_its_own_is_no_kill_and_the_proof_fails() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("demo.db");
    let demo = busy_demo(&path, "4").await;
    let worker = children_of(&demo).swap_remove(0);
    assert!(Command::new("kill").args(["-TERM", &worker]).status().unwrap().success());
    let output = demo.wait_with_output().unwrap();
    let proof: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{proof:#}");
    assert_eq!(
        (&proof["whole"], &proof["holds"], &proof["fallen"]),
        (&true.into(), &false.into(), &1.into())
    );
    let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    for (name, event) in [("kills", "WorkerKilled"), ("stops", "WorkerStopped"), ("fallen", "WorkerFell")] {
        let mut query = LogQuery::all(1_000);
        query.filter.types = vec![event.parse().unwrap()];
        assert_eq!(
            store.read_log(query).await.unwrap().events.len() as u64,
            proof[name],
            "{name}: {proof:#}"
        );
    }
    store.close().await;
}

#[test]
fn also_a_demo_of_a_second_kills() {
    let output = tidelock(&["demo", "--seconds", "1", "-o", "json"]);
    let proof: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{proof:#} {}", stderr(&output));
    assert!(proof["kills"].as_u64().unwrap() > 0, "{proof:#}");
}

/// Fetches a resource of the demo's server.
fn get(link: &str, path: &str) -> Value {
    let (address, token) = link.strip_prefix("http://").unwrap().split_once("/ui/#token=").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "GET /api/v1/{path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap_or_else(|_| panic!("{answer}"))
}

#[tokio::test]
async fn the_pages_show_conflicts_workers_and_the_numbers_so_far() {
    let directory = tempfile::tempdir().unwrap();
    let mut demo = busy_demo(&directory.path().join("demo.db"), "600").await;
    let said = BufReader::new(demo.stderr.take().unwrap()).lines().map(Result::unwrap);
    let link = &said.into_iter().find(|line| line.starts_with("http://")).unwrap();
    let overview = get(link, "overview");
    let conflicts = get(link, "state/conflicts");
    let (streams, numbers) = (get(link, "streams?prefix=chaos"), get(link, "state?prefix=demo"));
    demo.kill().unwrap();
    demo.wait().unwrap();
    assert!(overview["conflicts"]["mutations"].as_u64().unwrap() > 0, "{overview:#}");
    assert!(conflicts["kinds"].as_object().is_some_and(|kinds| !kinds.is_empty()), "{conflicts:#}");
    assert!(streams["streams"][0]["head"].as_u64().unwrap() >= 2, "three workers began: {streams:#}");
    assert!(numbers.to_string().contains("demo("), "{numbers:#}");
}
