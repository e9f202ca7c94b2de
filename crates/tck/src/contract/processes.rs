//! Multi-process cases on one database. Backends that do not support processes skip them.

use std::collections::BTreeSet;

use tidelock_core::clock::SystemClock;

use crate::crash;
use crate::prelude::*;
use crate::process::{AppendReport, Process, Task};

const WRITERS: u64 = 4;
/// Batches per writing process. `TIDELOCK_BATCHES` overrides it.
const BATCHES: u64 = 500;

/// Starts one child for each task. None begins before all are ready.
async fn start(env: &Env, address: &str, tasks: Vec<Task>) -> Vec<Process> {
    let mut children = Vec::new();
    for task in tasks {
        children.push(Process::start(env.backend.as_ref(), address, task).await);
    }
    for child in &mut children {
        child.go().await;
    }
    children
}

async fn shared(env: &Env) -> Option<String> {
    if env.capabilities().processes { env.address().await } else { None }
}

/// Four processes write and one reader tails. It sees every event once, at increasing positions, and none appears later
/// at a lower one.
pub async fn o1_four_processes_and_a_tailing_reader(env: &Env) {
    let Some(address) = shared(env).await else { return };
    let batches = crate::run::setting("TIDELOCK_BATCHES", BATCHES);
    let tasks = (0..WRITERS).map(|writer| Task::Append { writer, batches }).collect();
    let reader = Conn(env.backend.attach(&address, SystemClock::shared()).await);
    let children = start(env, &address, tasks).await;
    let finishing: Vec<_> =
        children.into_iter().map(|child| tokio::spawn(child.finish::<AppendReport>())).collect();
    let total = usize::try_from(WRITERS * batches * 2).unwrap();
    let mut seen: Vec<Event> = Vec::new();
    let mut after = Position(0);
    while seen.len() < total {
        let written = finishing.iter().all(tokio::task::JoinHandle::is_finished);
        let page = reader.read_log(LogQuery::after(after, 100)).await.unwrap();
        assert!(page.events.iter().all(|e| e.position > after), "an event below the reader's position");
        assert!(page.events.is_sorted_by(|a, b| a.position < b.position), "positions rise");
        let missing = total - seen.len();
        assert!(
            !(written && page.events.is_empty()),
            "all is written, and the reader missed {missing} events"
        );
        after = page.scanned_to.map_or(after, |to| to.max(after));
        seen.extend(page.events);
        tokio::task::yield_now().await;
    }
    let mut told = BTreeSet::new();
    for child in finishing {
        told.extend(child.await.unwrap());
    }
    let log = reader.log().await;
    assert!(seen.len() == log.len() && seen == log, "something appeared behind the reader");
    let read: BTreeSet<AppendReport> = log.iter().map(report_of).collect();
    assert!(read == told, "what the commits returned is not what is read");
    no_holes(&env.store).await;
}

fn report_of(event: &Event) -> AppendReport {
    let value: serde_json::Value = event.payload.parse().unwrap();
    let writer = event.event_type.as_str().trim_start_matches("Writer").parse().unwrap();
    let n = value["n"].as_u64().unwrap();
    AppendReport { stream: event.stream.clone(), version: event.version, position: event.position, writer, n }
}

async fn no_holes(conn: &Conn) {
    for info in crate::dump::pages(async |page| conn.streams(&all_keys(), page).await).await {
        let history = conn.history(&info.key).await;
        assert!(history.iter().enumerate().all(|(i, e)| e.version.0 == i as u64), "{} has a hole", info.key);
        assert!(history.is_sorted_by(|a, b| a.position < b.position), "{} is turned round", info.key);
    }
}

/// Of first acquisitions from five processes, exactly one succeeds.
pub async fn k1_processes_have_one_winner(env: &Env) {
    let Some(address) = shared(env).await else { return };
    let task = |i| Task::Lock { name: "k1-processes".to_owned(), owner: format!("process-{i}") };
    let mut won = 0;
    for child in start(env, &address, (0..5).map(task).collect()).await {
        won += child.finish::<bool>().await.into_iter().filter(|got| *got).count();
    }
    assert_eq!(won, 1);
    assert_eq!(env.store.row(&key("k1-processes")).await.attempts, 1);
}

/// Of concurrent creations from four processes, one wins. Documents only.
pub async fn t1_processes_have_one_winner(env: &Env) {
    let Some(address) = shared(env).await else { return };
    let task = |value| Task::Create { name: "t1-processes".to_owned(), value };
    let mut won = Vec::new();
    for (i, child) in start(env, &address, (0..4).map(task).collect()).await.into_iter().enumerate() {
        won.extend(child.finish::<bool>().await.into_iter().filter(|got| *got).map(|_| i));
    }
    assert_eq!(won.len(), 1, "{won:?}");
    assert_eq!(env.store.value(&key("t1-processes")).await, Some(json!({ "n": won[0] })));
}

/// Increments from several processes, by merges and by compare-and-swap, add up, and each version is issued once.
/// Documents only.
pub async fn s7_increments_from_processes_make_the_sum(env: &Env) {
    let Some(address) = shared(env).await else { return };
    env.store.done(Batch::new().put(&key("s7-processes"), Expect::Absent, number(0))).await;
    let task = |_| Task::Count { name: "s7-processes".to_owned(), times: 25 };
    for child in start(env, &address, (0..4).map(task).collect()).await {
        assert_eq!(child.finish::<u64>().await, [25]);
    }
    let document = env.store.doc(&key("s7-processes")).await.unwrap();
    assert_eq!((document.version, document.value), (DocVersion(201), number(200)));
}

/// A process is killed while it writes. Every acknowledged batch is stored, and none is partial.
pub async fn t6_killed_anywhere_nothing_is_there_by_halves(env: &Env) {
    let capabilities = env.capabilities();
    if !(capabilities.processes && capabilities.durable) {
        return;
    }
    let seed = crate::run::seed();
    let report = crash::round(env.backend.as_ref(), seed).await;
    assert!(report.found >= report.acknowledged, "seed {seed}: {report:?}");
}
