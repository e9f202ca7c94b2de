//! Helpers for reaction cases: reactions that note the events they saw, gates, and a wait for a condition.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::model::retry::RetryPolicy;
use tidelock_core::reactions::{Quiescence, Reaction, ReactionEngine, Reactions};
use tidelock_core::store::{Batch, Delta, Event, SharedStore};
use tidelock_core::worker::WorkerHandle;
use tokio::sync::Semaphore;

use crate::builders::payload;
use crate::conn::Conn;

/// Lease TTL. It is long enough that no renewal falls into a case. The clock of the store expires the leases.
pub(crate) const LEASE: Duration = Duration::from_mins(10);
/// Time limit for any condition on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(60);

/// Polls until the condition holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Returns reactions as the cases run them. They poll often, because the clock of the store gives no hints.
pub(crate) fn reactions(conn: &Conn) -> Reactions {
    over(&conn.0)
}

/// Returns the same reactions on any store.
pub(crate) fn over(store: &SharedStore) -> Reactions {
    Reactions::new(Arc::clone(store)).poll_interval(Duration::from_millis(5))
}

/// Starts one reaction.
pub(crate) async fn start(conn: &Conn, reaction: Reaction) -> WorkerHandle<ReactionEngine> {
    reactions(conn).with(reaction).start().await.expect("reactions start")
}

/// Settles while the clock advances, for reactions that wait for an instant of that clock.
pub(crate) async fn quiesce_in_time(env: &crate::Env, running: &WorkerHandle<ReactionEngine>) -> Quiescence {
    let settling = running.quiesce();
    tokio::pin!(settling);
    let start = Instant::now();
    loop {
        tokio::select! {
            biased;
            settled = &mut settling => return settled.expect("the store answers"),
            () = tokio::time::sleep(Duration::from_millis(2)) => env.pass(Duration::from_millis(5)),
        }
        assert!(start.elapsed() < LIMIT, "not settled within {LIMIT:?}");
    }
}

/// Returns a reaction with long leases.
pub(crate) fn reaction(name: &str) -> Reaction {
    Reaction::new(name).lease_ttl(LEASE)
}

/// Returns a policy with this number of attempts and no delay.
pub(crate) fn at_once(max_attempts: u32) -> RetryPolicy {
    RetryPolicy { max_attempts, base: Duration::ZERO, ..RetryPolicy::default() }
}

/// Returns the number in the payload of an event.
pub(crate) fn n(event: &Event) -> i64 {
    event.payload.parse::<Value>().expect("a payload is JSON")["n"].as_i64().expect("it says a number")
}

/// Returns the key of the document in which a reaction notes the events of a key.
pub(crate) fn notes(reaction: &str, key: &Key) -> Key {
    Key::new("notes", [reaction.to_owned(), key.to_string()]).expect("a short key")
}

/// Returns the effect that notes an event.
pub(crate) fn note(reaction: &str, key: &Key, event: &Event) -> Batch {
    let empty = payload(serde_json::json!({ "n": [] }));
    Batch::new().merge_or_create(&notes(reaction, key), empty, [Delta::push("/n", n(event))])
}

/// Returns the numbers that a reaction has noted for a key.
pub(crate) async fn noted(conn: &Conn, reaction: &str, key: &Key) -> Vec<i64> {
    let Some(value) = conn.value(&notes(reaction, key)).await else { return Vec::new() };
    serde_json::from_value(value["n"].clone()).expect("notes are numbers")
}

/// Returns a reaction that notes every event it handles.
pub(crate) fn noting(name: &str) -> Reaction {
    reaction(name).each(async |turn, event| Ok(note(turn.reaction(), turn.key(), &event)))
}

/// A counter of passes that checks mutual exclusion per key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turnstile {
    inside: Arc<Mutex<BTreeMap<Key, usize>>>,
    passed: Arc<AtomicUsize>,
}

impl Turnstile {
    /// Enters and leaves; panics if another handler is inside.
    pub(crate) async fn pass(&self, key: &Key) {
        let inside = {
            let mut inside = self.inside.lock().expect("no holder panics");
            let count = inside.entry(key.clone()).or_default();
            *count += 1;
            *count
        };
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        *self.inside.lock().expect("no holder panics").entry(key.clone()).or_default() -= 1;
        self.passed.fetch_add(1, Ordering::SeqCst);
        assert_eq!(inside, 1, "two at once work on {key}");
    }

    /// Returns the number of passes.
    pub(crate) fn passed(&self) -> usize {
        self.passed.load(Ordering::SeqCst)
    }
}

/// A gate at which handlers wait until a case opens it.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    waiting: Arc<AtomicUsize>,
    open: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn closed() -> Self {
        Self { waiting: Arc::default(), open: Arc::new(Semaphore::new(0)) }
    }

    /// Waits for a permit.
    pub(crate) async fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.open.acquire().await.expect("the gate stays").forget();
    }

    /// Lets `count` handlers pass.
    pub(crate) fn let_through(&self, count: usize) {
        self.open.add_permits(count);
    }

    /// Returns the number of handlers that have reached the gate.
    pub(crate) fn came(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Waits until `count` handlers have reached the gate.
    pub(crate) async fn reached_by(&self, count: usize) {
        until("a handler reaches the gate", async || self.came() >= count).await;
    }
}

/// The reaction of [`shop`] that notes the events of each stream.
pub(crate) const PROJECT: &str = "project";
/// The reaction of [`shop`] that notes events of all streams under a few keys.
pub(crate) const GATHER: &str = "gather";

/// Returns the key that an event is gathered under.
pub(crate) fn gather_key(event: &Event) -> Key {
    Key::new("gathered", [n(event) % 3]).expect("a short key")
}

/// Returns two reactions that note everything: one by stream, one by a chosen key. They retry without limit.
pub(crate) fn shop(store: &SharedStore, ttl: Duration) -> Reactions {
    let streams = || KeyPrefix::kind("shop");
    let patient = |name| noting(name).lease_ttl(ttl).retry(at_once(u32::MAX)).streams(streams());
    over(store)
        .with(patient(PROJECT).events_per_grant(3))
        .with(patient(GATHER).to(|event| Some(gather_key(event))))
}

/// The role of a child process that the parent kills.
pub(crate) async fn react(conn: Conn) {
    let running = shop(&conn.0, Duration::from_secs(1)).start().await.expect("reactions start");
    crate::process::say(&"running");
    crate::process::listen().await;
    drop(running);
}
