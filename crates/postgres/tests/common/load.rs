//! Writers that give every batch an id, and the check that their replies match the stored events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidelock_core::error::Outcome;
use tidelock_core::id::{EventType, OpId, Position, StreamVersion};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    ApplyError, Batch, Event, Expect, LogQuery, NewEvent, Receipt, Refusal, Store as _, StoreErrorKind,
    StreamQuery, limits,
};
use tidelock_postgres::PostgresStore;
use tokio::task::JoinHandle;

/// Returns a key of these tests.
pub(crate) fn key(name: &str) -> Key {
    Key::new("fault", [name]).unwrap()
}

/// Returns an event with a text.
pub(crate) fn event(says: &str) -> NewEvent {
    NewEvent::new(EventType::new("Said").unwrap(), Payload::of(says).unwrap())
}

/// Returns a batch of one event.
pub(crate) fn append(stream: &Key, says: &str) -> Batch {
    Batch::new().append(stream, Expect::Any, [event(says)])
}

/// The results of the calls of some writers.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) receipts: Mutex<BTreeMap<OpId, Receipt>>,
    /// Calls with an unknown outcome.
    pub(crate) unknown: AtomicUsize,
    /// Of those, calls that had been applied.
    pub(crate) had_happened: AtomicUsize,
    slowest: Mutex<Duration>,
}

impl Tally {
    pub(crate) fn count(&self) -> usize {
        self.receipts.lock().len()
    }

    fn took(&self, time: Duration) {
        let mut slowest = self.slowest.lock();
        *slowest = slowest.max(time);
    }

    pub(crate) fn slowest(&self) -> Duration {
        *self.slowest.lock()
    }

    pub(crate) fn unknown(&self) -> usize {
        self.unknown.load(Ordering::SeqCst)
    }
}

/// Applies a batch that has an id until its outcome is known. A failure must leave the outcome open, by that id, and
/// must be of a transient kind.
pub(crate) async fn surely(
    store: &PostgresStore,
    batch: &Batch,
    tally: &Tally,
) -> Result<Receipt, Box<Refusal>> {
    let id = batch.id().expect("the batch has an id");
    loop {
        let start = Instant::now();
        let answer = store.apply(batch.clone()).await;
        tally.took(start.elapsed());
        match answer {
            Ok(receipt) => {
                tally.had_happened.fetch_add(usize::from(receipt.repeated), Ordering::SeqCst);
                return Ok(receipt);
            }
            // A failover begins a new epoch. The expectations of this load hold in it as well.
            Err(ApplyError::Refused(refusal)) if matches!(*refusal, Refusal::Epoch { .. }) => {}
            Err(ApplyError::Refused(refusal)) => return Err(refusal),
            // Sent again under its id: resolving it would make the id void.
            Err(ApplyError::Store { error, outcome }) => {
                assert!(
                    matches!(error.kind, StoreErrorKind::Unreachable | StoreErrorKind::Busy),
                    "this passes: {error:?}"
                );
                assert_eq!(outcome, Outcome::Unknown(Some(id)), "{error}");
                tally.unknown.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

/// Tasks that write until they are stopped.
pub(crate) struct Load {
    pub(crate) tally: Arc<Tally>,
    done: Arc<AtomicBool>,
    writers: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(store: &PostgresStore, writers: usize) -> Self {
        let (tally, done) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
        let write = |writer| {
            let (store, tally, done) = (store.clone(), Arc::clone(&tally), Arc::clone(&done));
            tokio::spawn(async move { write(&store, writer, &tally, &done).await })
        };
        let writers = (0..writers).map(write).collect();
        Self { tally, done, writers }
    }

    /// Waits until this many more batches were applied.
    pub(crate) async fn progress(&self, batches: usize) {
        let wanted = self.tally.count() + batches;
        crate::poll::until("the writers continue", async || {
            assert!(!self.writers.iter().any(JoinHandle::is_finished), "a writer gave up");
            self.tally.count() >= wanted
        })
        .await;
    }

    /// Stops the writers and waits for them. They must end without a failure.
    pub(crate) async fn end(self) -> Arc<Tally> {
        self.done.store(true, Ordering::SeqCst);
        for writer in self.writers {
            crate::poll::in_time("a writer ends", writer).await.unwrap();
        }
        self.tally
    }
}

async fn write(store: &PostgresStore, writer: usize, tally: &Tally, done: &AtomicBool) {
    let own = key(&format!("own-{writer}"));
    let mut version: Option<StreamVersion> = None;
    while !done.load(Ordering::SeqCst) {
        let id = OpId::new();
        let expect = version.map_or(Expect::Absent, Expect::Exact);
        let batch = Batch::new()
            .append(&own, expect, [event(&id.to_string())])
            .append(&key("shared"), Expect::Any, [event(&id.to_string())])
            .op_id(id);
        let receipt = surely(store, &batch, tally).await.expect("this stream has one writer");
        version = Some(receipt.appended[0].last_version);
        tally.receipts.lock().insert(id, receipt);
    }
}

/// Returns all events of the log.
pub(crate) async fn whole_log(store: &PostgresStore) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    loop {
        let after = all.last().map_or(Position(0), |event| event.position);
        let page = store.read_log(LogQuery::after(after, limits::PAGE_ROWS)).await.unwrap();
        let end = page.events.is_empty();
        assert!(page.events.iter().all(|event| event.position > after), "the log leads back");
        all.extend(page.events);
        if end {
            return all;
        }
    }
}

/// Returns the texts of the events of a stream, in order.
pub(crate) async fn sayings(store: &PostgresStore, stream: &Key) -> Vec<String> {
    let page = store.read_stream(StreamQuery::forward(stream, limits::PAGE_ROWS)).await.unwrap();
    page.events.iter().map(|event| event.payload.parse().unwrap()).collect()
}

/// Versions of every stream begin at 0, have no holes, and rise with the positions.
pub(crate) fn check_streams(log: &[Event]) {
    assert!(log.is_sorted_by(|a, b| a.position < b.position), "positions rise");
    let mut next: BTreeMap<&Key, u64> = BTreeMap::new();
    for event in log {
        let expected = next.entry(&event.stream).or_default();
        assert_eq!(event.version.0, *expected, "{} at {}", event.stream, event.position);
        *expected += 1;
    }
}

/// Checks that the log matches the replies: every batch once, where its receipt says, and no other.
pub(crate) async fn check(store: &PostgresStore, tally: &Tally) {
    let log = whole_log(store).await;
    check_streams(&log);
    let mut found: BTreeMap<OpId, Vec<&Event>> = BTreeMap::new();
    for event in &log {
        let id: OpId = event.payload.parse::<String>().unwrap().parse().unwrap();
        found.entry(id).or_default().push(event);
    }
    let receipts = tally.receipts.lock();
    let told: BTreeSet<&OpId> = receipts.keys().collect();
    assert_eq!(told, found.keys().collect(), "what was acknowledged is not what there is");
    for (id, receipt) in receipts.iter() {
        let as_told: Vec<_> = receipt
            .appended
            .iter()
            .map(|told| (&told.stream, told.first_version, told.first_position))
            .collect();
        let as_read: Vec<_> =
            found[id].iter().map(|event| (&event.stream, event.version, event.position)).collect();
        assert_eq!(as_told, as_read, "{id}");
    }
}
