//! Crash test: a process is killed in the middle of its work. All acknowledged batches survive, and none is partial.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidelock_core::clock::{ManualClock, SystemClock};
use tidelock_core::id::{OpId, QueueName};
use tidelock_core::key::{Arg, Key};
use tidelock_core::store::{Batch, Delta, Event, Expect, NewEvent, NewWork};
use uuid::Uuid;

use crate::Backend;
use crate::builders::{event_type, payload};
use crate::conn::Conn;
use crate::process::{Process, Task};
use crate::rng::Rng;

/// Number of concurrent writer tasks in the process that is killed.
const WRITERS: u64 = 4;
/// The greatest number of acknowledgements that the parent waits for before it kills.
const MOST_ACKS: usize = 60;

/// The findings after a kill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Batches that the killed process reported as acknowledged to its parent.
    pub acknowledged: usize,
    /// Batches in the store, all of them complete. At least the acknowledged ones.
    pub found: usize,
}

/// One batch of one writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Ack {
    pub(crate) writer: u64,
    pub(crate) n: u64,
}

/// Starts a process that writes, kills it at a time that the seed decides, and checks the store.
///
/// Every batch has two events on two streams, a document, a work row and an operation id. Each acknowledged batch must
/// be in the store, every stored batch must be complete, and versions must have no gaps. The test program must contain
/// [`conformance!`](crate::conformance) or [`child!`](crate::child).
///
/// # Panics
/// If the backend broke one of these promises, or cannot be shared by processes.
pub async fn round(backend: &dyn Backend, seed: u64) -> Report {
    let database = backend.fresh(Arc::new(ManualClock::default())).await;
    let address = database.address().expect("a backend with processes has addresses");
    // A connection opened before the kill must also see the result.
    let witness = Conn(backend.attach(&address, SystemClock::shared()).await);
    let acknowledged = write_and_kill(backend, &address, seed).await;
    let survivor = Conn(backend.attach(&address, SystemClock::shared()).await);
    let mut found = 0;
    for conn in [&witness, &survivor] {
        found = check(conn, seed, &acknowledged).await;
    }
    // The next process continues after the last batch of the killed one: nothing is stuck.
    for writer in 0..WRITERS {
        let next = u64::try_from(survivor.history(&own(writer)).await.len()).expect("small");
        survivor.done(batch(seed, Ack { writer, n: next })).await;
    }
    check(&witness, seed, &acknowledged).await;
    Report { acknowledged: acknowledged.len(), found }
}

async fn write_and_kill(backend: &dyn Backend, address: &str, seed: u64) -> BTreeSet<Ack> {
    let mut rng = Rng::new(seed);
    let mut process = Process::start(backend, address, Task::Crash { seed }).await;
    process.go().await;
    let wanted = rng.below(MOST_ACKS);
    let mut acknowledged = BTreeSet::new();
    while acknowledged.len() < wanted {
        acknowledged.insert(process.hear::<Ack>().await.expect("the writer lives until it is killed"));
    }
    // This sleep waits for no condition. It moves the kill to another point between two acknowledgements.
    tokio::time::sleep(Duration::from_micros(rng.below(3_000) as u64)).await;
    process.kill().await;
    while let Some(ack) = process.hear().await {
        acknowledged.insert(ack);
    }
    acknowledged
}

/// The role of the child process that is killed. Several tasks write complete batches one after the other.
pub(crate) async fn write_until_killed(conn: Conn, seed: u64, say: fn(Ack)) {
    let mut tasks = Vec::new();
    for writer in 0..WRITERS {
        let conn = conn.clone();
        tasks.push(tokio::spawn(async move {
            for n in 0.. {
                conn.done(batch(seed, Ack { writer, n })).await;
                say(Ack { writer, n });
            }
        }));
    }
    for task in tasks {
        task.await.expect("a writer panicked");
    }
}

pub(crate) fn batch(seed: u64, which: Ack) -> Batch {
    let Ack { writer, n } = which;
    let said = json!({ "writer": writer, "n": n });
    let event = || NewEvent::new(event_type("Written"), payload(said.clone()));
    let expect =
        n.checked_sub(1).map_or(Expect::Absent, |v| Expect::Exact(tidelock_core::id::StreamVersion(v)));
    Batch::new()
        .append(&own(writer), expect, [event()])
        .append(&shared(), Expect::Any, [event()])
        .merge_or_create(
            &own(writer),
            payload(json!({ "count": 0 })),
            [Delta::inc("/count", 1), Delta::set("/last", n)],
        )
        .enqueue(NewWork::once(row(which), QueueName::new("crash").unwrap()))
        .op_id(operation(seed, which))
}

pub(crate) fn own(writer: u64) -> Key {
    Key::new("crash", [format!("writer-{writer}")]).unwrap()
}

fn shared() -> Key {
    Key::single("crash-shared").unwrap()
}

fn row(which: Ack) -> Key {
    let number = |n: u64| Arg::Int(i64::try_from(n).unwrap());
    Key::of("crash-row", &[number(which.writer), number(which.n)]).unwrap()
}

pub(crate) fn operation(seed: u64, which: Ack) -> OpId {
    let number = (u128::from(seed) << 64) | (u128::from(which.writer) << 32) | u128::from(which.n);
    OpId(Uuid::from_u128(number))
}

/// Checks every promise and returns the number of complete batches.
pub(crate) async fn check(conn: &Conn, seed: u64, acknowledged: &BTreeSet<Ack>) -> usize {
    let together = batches_in(&conn.history(&shared()).await, seed);
    let mut count: BTreeMap<u64, u64> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for writer in 0..WRITERS {
        let alone = batches_in(&conn.history(&own(writer)).await, seed);
        let n = alone.len() as u64;
        let expected: Vec<Ack> = (0..n).map(|n| Ack { writer, n }).collect();
        assert_eq!(alone, expected, "seed {seed}: the stream of writer {writer} has holes");
        let document = conn.doc(&own(writer)).await;
        assert_eq!(document.as_ref().map_or(0, |d| d.version.0), n, "seed {seed}: half a batch of {writer}");
        if let Some(document) = document {
            let value: Value = document.value.parse().unwrap();
            assert_eq!(value, json!({ "count": n, "last": n - 1 }), "seed {seed}: half a batch of {writer}");
        }
        count.insert(writer, n);
        found.extend(alone);
    }
    let in_shared: BTreeSet<Ack> = together.iter().copied().collect();
    assert_eq!(in_shared.len(), together.len(), "seed {seed}: an event is there twice");
    assert_eq!(in_shared, found, "seed {seed}: two streams of one batch disagree");
    for which in &found {
        assert!(conn.find_row(&row(*which)).await.is_some(), "seed {seed}: {which:?} has no work row");
        let receipt = conn.operation(operation(seed, *which)).await.unwrap();
        assert_eq!(receipt.map(|r| r.appended.len()), Some(2), "seed {seed}: {which:?} is not known as done");
    }
    for (writer, n) in count {
        let beyond = Ack { writer, n };
        assert!(conn.find_row(&row(beyond)).await.is_none(), "seed {seed}: half of {beyond:?} is there");
        assert_eq!(conn.operation(operation(seed, beyond)).await.unwrap(), None, "seed {seed}: {beyond:?}");
    }
    let lost: Vec<&Ack> = acknowledged.difference(&found).collect();
    assert!(lost.is_empty(), "seed {seed}: acknowledged and lost: {lost:?}");
    found.len()
}

/// Returns the batches with events in a stream, in order. Panics if its versions have gaps.
fn batches_in(events: &[Event], seed: u64) -> Vec<Ack> {
    for (i, event) in events.iter().enumerate() {
        assert_eq!(event.version.0, i as u64, "seed {seed}: {} has a hole", event.stream);
    }
    assert!(events.is_sorted_by(|a, b| a.position < b.position), "seed {seed}: positions do not rise");
    events.iter().map(|event| event.payload.parse().unwrap()).collect()
}
