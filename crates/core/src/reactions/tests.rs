//! Tests of start, shutdown and lost responses of the store, which the test kit does not cover.

mod answers;
mod shutdown;
mod starting;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Reaction, Reactions, keys};
use crate::key::Key;
use crate::payload::Payload;
use crate::store::*;

/// The time limit of any step on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(30);

fn store() -> SharedStore {
    Arc::new(MemoryStore::new())
}

fn key(name: &str) -> Key {
    Key::new("test", [name]).unwrap()
}

fn reactions(store: &SharedStore) -> Reactions {
    Reactions::new(Arc::clone(store)).poll_interval(Duration::from_millis(5))
}

/// Appends events with these numbers.
async fn append(store: &SharedStore, stream: &Key, numbers: impl IntoIterator<Item = i64>) {
    let event = |n: i64| NewEvent::new("Happened".parse().unwrap(), Payload::of(&n).unwrap());
    let events: Vec<NewEvent> = numbers.into_iter().map(event).collect();
    store.apply(Batch::new().append(stream, Expect::Any, events)).await.unwrap();
}

/// The document in which handlers record numbers.
fn notes() -> Key {
    key("notes")
}

/// Returns the effect that records an event.
fn note(event: &Event) -> Batch {
    let number: i64 = event.payload.parse().unwrap();
    Batch::new().merge_or_create(&notes(), Payload::from_json("[]").unwrap(), [Delta::push("", number)])
}

/// Returns the recorded numbers.
async fn noted(store: &SharedStore) -> Vec<i64> {
    store.document(&notes()).await.unwrap().map_or_else(Vec::new, |document| document.value.parse().unwrap())
}

fn noting(name: &str) -> Reaction {
    Reaction::new(name).each(async |_, event| Ok(note(&event)))
}

async fn row(store: &SharedStore, reaction: &str, key: &Key) -> WorkRow {
    store.work(&keys::row(reaction, key).unwrap()).await.unwrap().unwrap()
}

/// Waits for a result, with a time limit.
async fn in_time<T>(what: &str, answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, answer).await.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"))
}

/// Polls until the condition holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
