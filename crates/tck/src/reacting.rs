//! What cases about reactions share: reactions that note what they saw, gates, and waiting for something that must come.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::model::retry::RetryPolicy;
use tidelock_core::reactions::{Reaction, ReactionEngine, Reactions, Settled};
use tidelock_core::store::{Batch, Delta, Event, SharedStore};
use tidelock_core::worker::WorkerHandle;
use tokio::sync::Semaphore;

use crate::conn::Conn;
use crate::make::payload;

/// How long leases last: no renewal falls into a case, and the clock of the store ends them.
pub(crate) const LEASE: Duration = Duration::from_mins(10);
/// How long anything may take on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(60);

/// Asks again and again until the answer is yes.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Reactions as cases run them: they look often, because the clock of the store gives no hints.
pub(crate) fn reactions(conn: &Conn) -> Reactions {
    over(&conn.0)
}

/// The same on any store.
pub(crate) fn over(store: &SharedStore) -> Reactions {
    Reactions::new(Arc::clone(store)).poll_interval(Duration::from_millis(5))
}

/// Starts one reaction.
pub(crate) async fn start(conn: &Conn, reaction: Reaction) -> WorkerHandle<ReactionEngine> {
    reactions(conn).with(reaction).start().await.expect("reactions start")
}

/// Settles while the clock goes on: somebody waits for a moment by it.
pub(crate) async fn settle_in_time(env: &crate::Env, running: &WorkerHandle<ReactionEngine>) -> Settled {
    let settling = running.settle();
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

/// A reaction with long leases.
pub(crate) fn reaction(name: &str) -> Reaction {
    Reaction::new(name).lease_ttl(LEASE)
}

/// So many attempts, without waiting.
pub(crate) fn at_once(max_attempts: u32) -> RetryPolicy {
    RetryPolicy { max_attempts, base: Duration::ZERO, ..RetryPolicy::default() }
}

/// The number that an event says.
pub(crate) fn n(event: &Event) -> i64 {
    event.payload.parse::<Value>().expect("a payload is JSON")["n"].as_i64().expect("it says a number")
}

/// The document in which a reaction notes what it saw of a key.
pub(crate) fn notes(reaction: &str, key: &Key) -> Key {
    Key::new("notes", [reaction.to_owned(), key.to_string()]).expect("a short key")
}

/// The effect of noting an event.
pub(crate) fn note(reaction: &str, key: &Key, event: &Event) -> Batch {
    let empty = payload(serde_json::json!({ "n": [] }));
    Batch::new().merge_or_create(&notes(reaction, key), empty, [Delta::push("/n", n(event))])
}

/// What a reaction has noted of a key.
pub(crate) async fn noted(conn: &Conn, reaction: &str, key: &Key) -> Vec<i64> {
    let Some(value) = conn.value(&notes(reaction, key)).await else { return Vec::new() };
    serde_json::from_value(value["n"].clone()).expect("notes are numbers")
}

/// A reaction that notes what it sees.
pub(crate) fn noting(name: &str) -> Reaction {
    reaction(name).each(|turn, event| async move { Ok(note(turn.reaction(), turn.key(), &event)) })
}

/// Counts, and lets nobody be at the same place twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turnstile {
    inside: Arc<Mutex<BTreeMap<Key, usize>>>,
    passed: Arc<AtomicUsize>,
}

impl Turnstile {
    /// Goes in and out again; panics when somebody is inside.
    pub(crate) async fn pass(&self, key: &Key) {
        let inside = {
            let mut inside = self.inside.lock().expect("nobody panics inside");
            let count = inside.entry(key.clone()).or_default();
            *count += 1;
            *count
        };
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        *self.inside.lock().expect("nobody panics inside").entry(key.clone()).or_default() -= 1;
        self.passed.fetch_add(1, Ordering::SeqCst);
        assert_eq!(inside, 1, "two at once work on {key}");
    }

    /// How often somebody passed.
    pub(crate) fn passed(&self) -> usize {
        self.passed.load(Ordering::SeqCst)
    }
}

/// Handlers wait at it until they are let through.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    waiting: Arc<AtomicUsize>,
    open: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn closed() -> Self {
        Self { waiting: Arc::default(), open: Arc::new(Semaphore::new(0)) }
    }

    /// Waits until it is let through.
    pub(crate) async fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.open.acquire().await.expect("the gate stays").forget();
    }

    /// Lets so many through.
    pub(crate) fn let_through(&self, count: usize) {
        self.open.add_permits(count);
    }

    /// How many have come so far.
    pub(crate) fn came(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Waits until so many have come.
    pub(crate) async fn reached_by(&self, count: usize) {
        until("a handler reaches the gate", async || self.came() >= count).await;
    }
}

/// The reaction of [`shop`] that notes the events of each stream.
pub(crate) const PROJECT: &str = "project";
/// The reaction of [`shop`] that notes events of all streams under a few keys.
pub(crate) const GATHER: &str = "gather";

/// The key that an event is gathered under.
pub(crate) fn gather_key(event: &Event) -> Key {
    Key::new("gathered", [n(event) % 3]).expect("a short key")
}

/// Two reactions that note everything: one by stream, one by chosen key. They never give up.
pub(crate) fn shop(store: &SharedStore, ttl: Duration) -> Reactions {
    let streams = || KeyPrefix::kind("shop");
    let patient = |name| noting(name).lease_ttl(ttl).retry(at_once(u32::MAX)).streams(streams());
    over(store)
        .with(patient(PROJECT).events_per_grant(3))
        .with(patient(GATHER).to(|event| Some(gather_key(event))))
}

/// What a process does that is to be killed.
pub(crate) async fn react(conn: Conn) {
    let running = shop(&conn.0, Duration::from_secs(1)).start().await.expect("reactions start");
    crate::process::say(&"running");
    crate::process::listen().await;
    drop(running);
}
