//! Where subscriptions to one stream begin, and how much they read to find the place.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tidelock_core::clock::Timestamp;
use tidelock_core::events::{Events, Start, Subscription, What};
use tidelock_core::id::{Epoch, OpId, Position, StreamVersion};
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::payload::Payload;
use tidelock_core::store::*;

/// A memory store that counts the events that were read of streams.
#[derive(Debug, Default)]
struct Counting {
    inner: MemoryStore,
    read: AtomicUsize,
}

#[async_trait]
impl Store for Counting {
    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        self.inner.apply(batch).await
    }
    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        self.inner.claim(claim).await
    }
    async fn resolve(&self, id: OpId) -> Result<Resolution, StoreError> {
        self.inner.resolve(id).await
    }
    async fn operation(&self, id: OpId) -> Result<Option<Receipt>, StoreError> {
        self.inner.operation(id).await
    }
    async fn document(&self, key: &Key) -> Result<Option<Document>, StoreError> {
        self.inner.document(key).await
    }
    async fn documents(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<Document>, StoreError> {
        self.inner.documents(prefix, page).await
    }
    async fn stream(&self, key: &Key) -> Result<Option<StreamInfo>, StoreError> {
        self.inner.stream(key).await
    }
    async fn streams(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StreamInfo>, StoreError> {
        self.inner.streams(prefix, page).await
    }
    async fn read_stream(&self, query: StreamQuery) -> Result<EventPage, StoreError> {
        let page = self.inner.read_stream(query).await?;
        self.read.fetch_add(page.events.len(), Ordering::SeqCst);
        Ok(page)
    }
    async fn read_log(&self, query: LogQuery) -> Result<EventPage, StoreError> {
        self.inner.read_log(query).await
    }
    async fn work(&self, key: &Key) -> Result<Option<WorkRow>, StoreError> {
        self.inner.work(key).await
    }
    async fn works(&self, filter: &WorkFilter, page: Page) -> Result<PageOf<WorkRow>, StoreError> {
        self.inner.works(filter, page).await
    }
    async fn count_work(&self, filter: &WorkFilter) -> Result<u64, StoreError> {
        self.inner.count_work(filter).await
    }
    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        self.inner.sweep(sweep).await
    }
    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    async fn declare_cut(&self, reason: &str) -> Result<HistoryCut, StoreError> {
        self.inner.declare_cut(reason).await
    }

    fn watch(&self) -> Watch {
        self.inner.watch()
    }
    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.inner.now().await
    }
    async fn info(&self) -> Result<StoreInfo, StoreError> {
        self.inner.info().await
    }
}

const EVENTS: u64 = 5_000;

fn stream() -> Key {
    Key::single("long").unwrap()
}

/// A stream of many events, with one of another stream after each batch of 100.
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

async fn subscribed(store: &Arc<Counting>, start: Start) -> Subscription {
    let shared: SharedStore = Arc::clone(store) as _;
    Events::new(shared).subscribe(What::stream(&stream()), start).await.unwrap()
}

#[tokio::test]
async fn who_follows_a_long_stream_from_now_on_reads_nothing_of_it() {
    let store = filled().await;
    let mut now = subscribed(&store, Start::Now).await;
    assert_eq!(now.now().await.unwrap(), None);
    assert_eq!(store.read.load(Ordering::SeqCst), 0);
    let event = NewEvent::new("Next".parse().unwrap(), Payload::of(&1).unwrap());
    store.apply(Batch::new().append(&stream(), Expect::Any, [event])).await.unwrap();
    assert_eq!(now.next().await.unwrap().version, StreamVersion(EVENTS));
}

#[tokio::test]
async fn who_comes_back_to_a_long_stream_reads_what_is_new_and_little_else() {
    let store = filled().await;
    let all = store.inner.read_stream(StreamQuery::forward(&stream(), 5_000)).await.unwrap().events;
    let last = all.last().unwrap().position;
    // The last one, those near both ends and in the middle, those that are of another stream.
    for position in (0..250).chain(2_400..2_650).chain(last.0 - 150..=last.0).map(Position) {
        store.read.store(0, Ordering::SeqCst);
        let mut again = subscribed(&store, Start::After(position)).await;
        let looked = store.read.load(Ordering::SeqCst);
        assert!(looked <= 15, "{looked} events were read to find {position}");
        let expected = all.iter().find(|event| event.position > position);
        assert_eq!(again.now().await.unwrap().as_ref(), expected, "after {position}");
    }
    store.read.store(0, Ordering::SeqCst);
    let mut end = subscribed(&store, Start::After(last)).await;
    assert_eq!(end.now().await.unwrap(), None);
    assert_eq!(store.read.load(Ordering::SeqCst), 1, "the last event says that nothing is new");
}

#[tokio::test]
async fn the_place_is_found_where_the_beginning_was_removed_and_where_nothing_is() {
    let store = filled().await;
    store.apply(Batch::new().truncate(&stream(), StreamVersion(4_000))).await.unwrap();
    let left = store.inner.read_stream(StreamQuery::forward(&stream(), 5_000)).await.unwrap().events;
    for (position, version) in [(1, 4_000), (2_000, 4_000), (left[10].position.0, 4_011)] {
        let mut again = subscribed(&store, Start::After(Position(position))).await;
        assert_eq!(again.now().await.unwrap().unwrap().version, StreamVersion(version), "after {position}");
    }
    let mut whole = subscribed(&store, Start::Beginning).await;
    assert_eq!(whole.now().await.unwrap().unwrap().version, StreamVersion(4_000));
    let empty = Arc::new(Counting::default());
    for start in [Start::Beginning, Start::Now] {
        assert_eq!(subscribed(&empty, start).await.now().await.unwrap(), None);
    }
}
