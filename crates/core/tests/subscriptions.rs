//! Start positions of subscriptions to one stream, and the number of reads to find them.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tidelock_core::events::{Events, EventsError, StartFrom, Subscription, SubscriptionFilter};
use tidelock_core::id::{Position, StreamVersion};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::*;

/// A memory store that counts the events read from streams.
#[derive(Debug, Default)]
struct Counting {
    inner: MemoryStore,
    read: AtomicUsize,
}

#[async_trait]
impl tidelock_core::store::layer::StoreLayer for Counting {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn read_stream(&self, query: StreamQuery) -> Result<EventPage, StoreError> {
        let page = self.inner.read_stream(query).await?;
        self.read.fetch_add(page.events.len(), Ordering::SeqCst);
        Ok(page)
    }
}

const EVENTS: u64 = 5_000;

fn stream() -> Key {
    Key::single("long").unwrap()
}

/// Creates a stream of many events, with one event of another stream after each batch of 100.
async fn filled() -> Arc<Counting> {
    let store = Arc::new(Counting::default());
    let event = || NewEvent::new("Happened".parse().unwrap(), Payload::of(&1).unwrap());
    for _ in 0..EVENTS / 100 {
        let many = std::iter::repeat_with(event).take(100);
        let batch = Batch::new().append(&stream(), Expect::Any, many);
        store.apply(batch.append(&Key::single("other").unwrap(), Expect::Any, [event()])).await.unwrap();
    }
    store
}

async fn subscribed(store: &Arc<Counting>, start: StartFrom) -> Subscription {
    let shared: SharedStore = Arc::clone(store) as _;
    Events::new(shared).subscribe(SubscriptionFilter::stream(&stream()), start).await.unwrap()
}

#[tokio::test]
async fn a_subscription_from_now_reads_nothing_of_a_long_stream() {
    let store = filled().await;
    let mut now = subscribed(&store, StartFrom::Now).await;
    assert_eq!(now.now().await.unwrap(), None);
    assert_eq!(store.read.load(Ordering::SeqCst), 0);
    let event = NewEvent::new("Next".parse().unwrap(), Payload::of(&1).unwrap());
    store.apply(Batch::new().append(&stream(), Expect::Any, [event])).await.unwrap();
    assert_eq!(now.next().await.unwrap().version, StreamVersion(EVENTS));
}

#[tokio::test]
async fn a_resumed_subscription_reads_little_but_new_events() {
    let store = filled().await;
    let all = store.inner.read_stream(StreamQuery::forward(&stream(), 5_000)).await.unwrap().events;
    let last = all.last().unwrap().position;
    // The last position, positions near both ends and in the middle, and positions of another stream.
    for position in (0..250).chain(2_400..2_650).chain(last.0 - 150..=last.0).map(Position) {
        store.read.store(0, Ordering::SeqCst);
        let mut again = subscribed(&store, StartFrom::After(position)).await;
        let looked = store.read.load(Ordering::SeqCst);
        assert!(looked <= 15, "{looked} events were read to find {position}");
        let expected = all.iter().find(|event| event.position > position);
        assert_eq!(again.now().await.unwrap().as_ref(), expected, "after {position}");
    }
    store.read.store(0, Ordering::SeqCst);
    let mut end = subscribed(&store, StartFrom::After(last)).await;
    assert_eq!(end.now().await.unwrap(), None);
    assert_eq!(store.read.load(Ordering::SeqCst), 1, "the last event says that nothing is new");
}

#[tokio::test]
async fn the_place_is_found_where_the_beginning_was_removed_and_where_nothing_is() {
    let store = filled().await;
    store.apply(Batch::new().truncate(&stream(), StreamVersion(4_000))).await.unwrap();
    let left = store.inner.read_stream(StreamQuery::forward(&stream(), 5_000)).await.unwrap().events;
    let gap = async |subscription: &mut Subscription| match subscription.now().await {
        Err(EventsError::Gap { to, .. }) => assert_eq!(to, StreamVersion(3_999)),
        other => panic!("events were removed: {other:?}"),
    };
    for (position, version) in [(1, 4_000), (2_000, 4_000), (left[10].position.0, 4_011)] {
        let mut again = subscribed(&store, StartFrom::After(Position(position))).await;
        if version == 4_000 {
            gap(&mut again).await;
        }
        assert_eq!(again.now().await.unwrap().unwrap().version, StreamVersion(version), "after {position}");
    }
    let mut whole = subscribed(&store, StartFrom::Beginning).await;
    gap(&mut whole).await;
    assert_eq!(whole.now().await.unwrap().unwrap().version, StreamVersion(4_000));
    let empty = Arc::new(Counting::default());
    for start in [StartFrom::Beginning, StartFrom::Now] {
        assert_eq!(subscribed(&empty, start).await.now().await.unwrap(), None);
    }
}
