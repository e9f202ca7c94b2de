//! Crashes of real processes: documents and batches are complete, and every acknowledged batch is there.
#![allow(clippy::restriction, reason = "a test fails by panicking")]

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tidelock_core::clock::SystemClock;
use tidelock_core::id::{DocVersion, OpId};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{ApplyError, Batch, DocumentFound, Expect, Refusal, Store as _};
use tidelock_files::FilesStore;
use uuid::Uuid;

const ROLE: &str = "TIDELOCK_FILES_ROLE";
const PLACE: &str = "TIDELOCK_FILES_PLACE";
const MARK: &str = "@files ";
/// The number of processes that the test command kills.
const ROUNDS: u64 = 60;
/// The number of documents that change together: large enough that kills interrupt the change.
const DOCUMENTS: usize = 12;

fn key(name: &str) -> Key {
    Key::new("crash", [name]).unwrap()
}

fn operation(n: u64) -> OpId {
    OpId(Uuid::from_u128(u128::from(n)))
}

/// Changes all documents together, to values of different sizes.
fn batch(n: u64) -> Batch {
    let value = |i: usize| Payload::of(&json!({ "n": n, "fill": "x".repeat(i * 100) })).unwrap();
    let put = |batch: Batch, i: usize| batch.put(&key(&i.to_string()), Expect::Any, value(i));
    (0..DOCUMENTS).fold(Batch::new(), put).op_id(operation(n))
}

/// Does nothing unless another test starts it in a separate process.
#[tokio::test]
async fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let place = std::env::var(PLACE).unwrap();
    let store = common::open(Path::new(&place), SystemClock::shared()).await;
    if let Some(times) = role.strip_prefix("count ") {
        for _ in 0..times.parse().unwrap() {
            increment(&store).await;
        }
        return;
    }
    for n in 1.. {
        store.apply(batch(n)).await.unwrap();
        say(n);
        store.apply(Batch::new().put(&key("alone"), Expect::Any, Payload::of(&n).unwrap())).await.unwrap();
    }
}

fn say(n: u64) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{n}").and_then(|()| out.flush()).unwrap();
}

fn start(role: &str, place: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(PLACE, place)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lets a child write, kills it after some acknowledgements, and returns the last one.
fn write_and_kill(place: &Path, round: u64) -> u64 {
    let mut child = start("write", place);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut heard = || lines.find_map(|line| line.strip_prefix(MARK)?.parse::<u64>().ok());
    let mut last = 0;
    while last < 1 + round % 7 {
        last = heard().unwrap_or_else(|| panic!("the writer lives until it is killed"));
    }
    // The sleep waits for no condition: it moves the kill between two acknowledgements.
    std::thread::sleep(Duration::from_micros(round * 7_919 % 40_000));
    child.kill().unwrap();
    child.wait().unwrap();
    while let Some(n) = heard() {
        last = n;
    }
    last
}

async fn number(store: &FilesStore, name: &str) -> (u64, u64) {
    let document = store.document(&key(name)).await.unwrap().unwrap();
    let value: Value = document.value.parse().unwrap();
    (value.get("n").and_then(Value::as_u64).unwrap(), document.version.0)
}

async fn check(store: &FilesStore, acknowledged: u64, round: u64) -> u64 {
    let (n, version) = number(store, "0").await;
    assert!(n == acknowledged || n == acknowledged + 1, "round {round}: {n} after {acknowledged}");
    assert_eq!(version, n, "round {round}");
    for i in 1..DOCUMENTS {
        assert_eq!(number(store, &i.to_string()).await, (n, n), "round {round}: half a batch");
    }
    for done in 1..=n {
        assert!(
            store.operation(operation(done)).await.unwrap().is_some(),
            "round {round}: {done} is not known"
        );
    }
    assert_eq!(store.operation(operation(n + 1)).await.unwrap(), None, "round {round}: known and not done");
    n
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_the_middle_of_writes() {
    let (mut acknowledged, mut pending) = (0, 0);
    for round in 0..ROUNDS {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("s");
        // A store that was open before the kill must also see the correct state afterwards.
        let witness = common::open(&place, SystemClock::shared()).await;
        let last = write_and_kill(&place, round);
        acknowledged += last;
        pending += u64::from(place.join(".journal").exists());
        let n = if round % 2 == 0 {
            check(&witness, last, round).await
        } else {
            check(&common::open(&place, SystemClock::shared()).await, last, round).await
        };
        assert!(!place.join(".journal").exists(), "round {round}: the journal is still there");
        witness.apply(batch(n + 1)).await.unwrap();
        check(&witness, n + 1, round).await;
    }
    eprintln!("{ROUNDS} kills on files: {acknowledged} acknowledged, {pending} left a journal, lost 0");
    assert!(pending > 0, "no kill met a batch in the middle: the test proves nothing");
}

/// Adds one by compare-and-swap, and retries until it succeeds.
async fn increment(store: &FilesStore) {
    let counter = key("counter");
    let found = store.document(&counter).await.unwrap();
    let (mut version, mut n) = found.map_or((None, 0), |d| (Some(d.version), d.value.parse().unwrap()));
    loop {
        let expect = version.map_or(Expect::Absent, Expect::<DocVersion>::Exact);
        let value = Payload::of(&(n + 1)).unwrap();
        let refused = match store.apply(Batch::new().put(&counter, expect, value)).await {
            Ok(_) => return,
            Err(ApplyError::Refused(refusal)) => *refusal,
            Err(other) => panic!("{other}"),
        };
        let Refusal::Document { found, .. } = refused else { panic!("{refused}") };
        let DocumentFound::Present(winner) = *found else { panic!("{found:?}") };
        (version, n) = (Some(winner.version), winner.value.parse::<u64>().unwrap());
    }
}

#[tokio::test]
async fn two_processes_that_compare_and_swap_make_the_sum() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("s");
    let children = [start("count 150", &place), start("count 150", &place)];
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let store = common::open(&place, SystemClock::shared()).await;
    let counter = store.document(&key("counter")).await.unwrap().unwrap();
    assert_eq!((counter.version, counter.value.parse::<u64>().unwrap()), (DocVersion(300), 300));
}
