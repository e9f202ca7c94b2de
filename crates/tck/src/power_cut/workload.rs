//! The work of a recorded process, and the ledger in which it notes every acknowledgement.
//!
//! The ledger is a file of the recording, so that its notes have their place among the changes: a note that was made before
//! the cut is about a write that was acknowledged before the cut.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tidelock_core::id::QueueName;
use tidelock_core::payload::Payload;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::Backend;
use crate::crash::{self, Ack};
use crate::prelude::*;

/// The name of the ledger in the recorded directory.
pub(super) const LEDGER: &str = "ledger";
/// Number of concurrent writers.
pub(super) const WRITERS: u64 = 4;
/// Number of documents that a batch of the documents workload changes together.
pub(super) const TOGETHER: u64 = 3;
/// Number of events that truncation leaves.
const LEFT: u64 = 3;

/// The amount of work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) ledger: PathBuf,
    pub(crate) seed: u64,
    /// The number of steps of each task.
    pub(crate) steps: u64,
    pub(crate) documents_only: bool,
}

impl Work {
    /// Returns a value of many pages, so that a file grows, its pages are freed and used again, and its log starts over.
    /// A store of documents has no pages.
    pub(super) fn value(&self, n: u64) -> Payload {
        let unit = if self.documents_only { 256 } else { 12_288 };
        let fill = char::from(b'a' + (n % 26) as u8).to_string();
        payload(json!({ "n": n, "fill": fill.repeat((n * 7_919 % 16) as usize * unit) }))
    }
}

/// A note in the ledger: something that a caller knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// The store was opened in this epoch.
    Epoch(u64),
    /// A batch was acknowledged.
    Batch(Ack),
    /// An event was stored at this position.
    Position(u64),
    /// The events below this version were removed.
    Truncated(u64),
    /// A row was enqueued; the number of all so far.
    Enqueued(u64),
    /// A row was acknowledged; the number of all so far.
    Finished(u64),
    /// A grant had this fence.
    Fence(u64),
    /// A document had this version. It is deleted, swept and created again.
    Version(u64),
    /// An operation was resolved as not applied.
    Void(OpId),
}

/// The place where notes go.
#[derive(Clone, Debug)]
pub(crate) enum Notes {
    File(Arc<Mutex<std::fs::File>>),
    Memory(Arc<Mutex<Vec<Entry>>>),
}

impl Notes {
    fn open(path: &Path) -> Self {
        let file = std::fs::File::options().create(true).append(true).open(path);
        Self::File(Arc::new(Mutex::new(file.expect("the directory is writable"))))
    }

    /// Makes a note with a single write.
    fn add(&self, entry: Entry) {
        match self {
            Self::File(file) => {
                let line = serde_json::to_string(&entry).expect("an entry is JSON") + "\n";
                file.lock().unwrap().write_all(line.as_bytes()).expect("the ledger is writable");
            }
            Self::Memory(entries) => entries.lock().unwrap().push(entry),
        }
    }
}

/// The role of the recorded process: opens the store, works, and closes the store.
pub(crate) async fn live(backend: &dyn Backend, address: &str, work: &Work) {
    let notes = Notes::open(&work.ledger);
    let conn = Conn(backend.attach(address, tidelock_core::clock::SystemClock::shared()).await);
    notes.add(Entry::Epoch(conn.epoch().0));
    run(&conn, work, &notes).await;
    backend.detach(conn.0).await;
}

/// Runs all tasks to their ends.
pub(crate) async fn run(conn: &Conn, work: &Work, notes: &Notes) {
    // Alone first, while no batch of another task flushes for it. It stops before its first sweep.
    recreate(conn, &Work { steps: 5, ..work.clone() }, notes).await;
    // The documents of the writers exist before the first sweep: later ones would begin above the swept versions.
    let mut tasks = JoinSet::new();
    write_all(&mut tasks, conn, &Work { steps: 1, ..work.clone() }, notes);
    finish(&mut tasks).await;
    write_all(&mut tasks, conn, work, notes);
    let (other, also, own) = (conn.clone(), notes.clone(), work.clone());
    tasks.spawn(async move { recreate(&other, &own, &also).await });
    let (other, also, seed, steps) = (conn.clone(), notes.clone(), work.seed, work.steps);
    tasks.spawn(async move { void(&other, &also, seed).await });
    if !work.documents_only {
        let (other, also) = (conn.clone(), notes.clone());
        tasks.spawn(async move { truncate(&other, &also, steps).await });
        let (other, also) = (conn.clone(), notes.clone());
        tasks.spawn(async move { finish_rows(&other, &also, steps).await });
    }
    finish(&mut tasks).await;
}

async fn finish(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a task of the workload panicked");
    }
}

fn write_all(tasks: &mut JoinSet<()>, conn: &Conn, work: &Work, notes: &Notes) {
    for writer in 0..WRITERS {
        let (conn, notes, work) = (conn.clone(), notes.clone(), work.clone());
        tasks.spawn(async move { write(&conn, &work, &notes, writer).await });
    }
}

/// Writes whole batches, one after the other, after those that are there.
async fn write(conn: &Conn, work: &Work, notes: &Notes, writer: u64) {
    let first = if work.documents_only {
        conn.doc(&together(writer, 0)).await.map_or(0, |document| document.version.0)
    } else {
        conn.history(&crash::own(writer)).await.len() as u64
    };
    for n in first..first + work.steps {
        let which = Ack { writer, n };
        if work.documents_only {
            conn.done(documents(work.seed, which)).await;
        } else {
            let receipt = conn.done(crash::batch(work.seed, which)).await;
            for appended in &receipt.appended {
                notes.add(Entry::Position(appended.last_position.0));
            }
        }
        notes.add(Entry::Batch(which));
    }
}

/// Changes several documents together, to values of different sizes.
pub(super) fn documents(seed: u64, which: Ack) -> Batch {
    let value = |i: u64| payload(json!({ "n": which.n, "fill": "x".repeat(i as usize * 700) }));
    let put = |batch: Batch, i| batch.put(&together(which.writer, i), Expect::Any, value(i));
    (0..TOGETHER).fold(Batch::new(), put).op_id(crash::operation(seed, which))
}

pub(super) fn together(writer: u64, i: u64) -> Key {
    Key::new("together", [format!("{writer}-{i}")]).unwrap()
}

/// Writes, deletes and sweeps one document again and again.
async fn recreate(conn: &Conn, work: &Work, notes: &Notes) {
    let key = recreated();
    for step in 0..work.steps {
        let value = work.value(step);
        let batch = match step % 3 {
            // A single document takes a shorter path than a batch in some stores. The two must not mix up their order.
            0 => Batch::new().put(&key, Expect::Any, value).put(&companion(), Expect::Any, number(1)),
            1 => Batch::new().put(&key, Expect::Any, value),
            _ => Batch::new().delete(&key, Expect::Any),
        };
        let written = conn.done(batch).await.documents.remove(0);
        notes.add(Entry::Version(written.version.0));
        if step % 6 == 5 {
            let before = conn.now().await.unwrap().after(secs(1));
            let sweep = Sweep { tombstones_before: Some(before), ..Sweep::default() };
            conn.sweep(sweep).await.expect("the store sweeps");
        }
    }
}

fn companion() -> Key {
    key("companion")
}

pub(super) fn recreated() -> Key {
    key("recreated")
}

/// Resolves an operation that was never sent.
async fn void(conn: &Conn, notes: &Notes, seed: u64) {
    let id = OpId(Uuid::from_u128((u128::from(seed) << 64) | (0xffff << 32)));
    let resolution = conn.resolve(id).await.expect("the store resolves");
    assert_eq!(resolution, Resolution::NotApplied);
    notes.add(Entry::Void(id));
}

/// Appends to a stream and removes its first events.
async fn truncate(conn: &Conn, notes: &Notes, steps: u64) {
    let stream = truncated();
    for step in 0..steps {
        let receipt = conn.done(Batch::new().append(&stream, Expect::Any, [event("Kept", 0)])).await;
        let appended = &receipt.appended[0];
        notes.add(Entry::Position(appended.last_position.0));
        if step % 4 == 3 {
            let before = appended.last_version.0.saturating_sub(LEFT);
            conn.done(Batch::new().truncate(&stream, StreamVersion(before))).await;
            notes.add(Entry::Truncated(before));
        }
    }
}

pub(super) fn truncated() -> Key {
    key("truncated")
}

/// Enqueues rows, claims them, and acknowledges each together with a count.
async fn finish_rows(conn: &Conn, notes: &Notes, steps: u64) {
    let mut enqueued = count(conn, "/enqueued").await;
    let mut finished = count(conn, "/finished").await;
    for _ in 0..steps {
        let row = NewWork::once(Key::of("power-row", &[Arg::Int(enqueued as i64)]).unwrap(), rows());
        conn.done(counted("/enqueued").enqueue(row)).await;
        enqueued += 1;
        notes.add(Entry::Enqueued(enqueued));
        let claim = Claim::queues(&owner("worker"), [rows()], 2, TTL);
        let grants = conn.claim(claim).await.expect("the store answers").grants;
        for grant in grants {
            notes.add(Entry::Fence(grant.fence.0));
            conn.done(counted("/finished").ack(&grant.lease())).await;
            finished += 1;
            notes.add(Entry::Finished(finished));
        }
    }
}

fn counted(field: &str) -> Batch {
    let none = payload(json!({ "enqueued": 0, "finished": 0 }));
    Batch::new().merge_or_create(&counts(), none, [Delta::inc(field, 1)])
}

pub(super) fn counts() -> Key {
    key("counts")
}

/// Returns one of the counts of rows.
pub(super) async fn count(conn: &Conn, field: &str) -> u64 {
    let value = conn.value(&counts()).await;
    value.and_then(|value| value.pointer(field)?.as_u64()).unwrap_or(0)
}

/// Returns the filter of the rows that are left.
pub(super) fn rows_left() -> WorkFilter {
    WorkFilter { queue: Some(rows()), ..WorkFilter::default() }
}

fn rows() -> QueueName {
    queue_name("power-rows")
}
