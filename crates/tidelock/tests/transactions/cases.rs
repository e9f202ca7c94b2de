//! Guarantees of a batch and a run in a user's transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidelock::outbox::Message;
use tidelock::prelude::*;
use tidelock::store::{Operation, Pattern, Resolution, Selection, WorkFilter};
use tidelock::workflow::Worker;

use crate::kinds::{Kind, Site};

pub(crate) const ORDER: Workflow<u32, u32> = Workflow::new("order");

pub(crate) fn sales() -> Key {
    Key::single("sales").unwrap()
}

fn event(n: u32) -> NewEvent {
    NewEvent::new(EventType::new("Sold").unwrap(), Payload::of(&n).unwrap())
}

pub(crate) fn append(expect: Expect<StreamVersion>) -> Batch {
    Batch::new().append(&sales(), expect, [event(1)])
}

/// Returns the number of rows, the number of events, and whether the run exists.
async fn seen<K: Kind>(site: &mut Site<K>) -> (i64, usize, bool) {
    let events = site.tide.store().read_stream(StreamQuery::forward(&sales(), 9)).await.unwrap().events.len();
    let run = site.tide.runs().handle(ORDER, "order-17").status().await;
    (K::count(site).await, events, run.is_ok())
}

pub(crate) async fn a_commit_shows_the_row_the_event_and_the_run_together<K: Kind>() {
    let mut site = K::open().await;
    let (tide, mut tx) = K::begin(&mut site).await;
    K::insert(&mut tx).await;
    K::apply(&tide, &mut tx, append(Expect::Absent)).await.unwrap();
    let run = K::start(tide.start(ORDER, &3).id("order-17"), &mut tx).await.unwrap();
    assert_eq!(run.run(), "order-17");
    assert!(tide.store().stream(&sales()).await.unwrap().is_none(), "an open transaction shows nothing");
    assert_eq!(run.status().await.unwrap_err().code().as_str(), "TL1001");
    K::commit(tx).await;
    assert_eq!(seen(&mut site).await, (1, 1, true));
}

pub(crate) async fn a_rollback_leaves_nothing<K: Kind>() {
    let mut site = K::open().await;
    // The store has cached the row that the transaction changes.
    site.tide.apply(append(Expect::Absent)).await.unwrap();
    let (tide, mut tx) = K::begin(&mut site).await;
    K::insert(&mut tx).await;
    K::apply(&tide, &mut tx, append(Expect::Exact(StreamVersion(0)))).await.unwrap();
    K::start(tide.start(ORDER, &3).id("order-17"), &mut tx).await.unwrap();
    K::roll_back(tx).await;
    assert_eq!(seen(&mut site).await, (0, 1, false));
    // Neither does the store keep a row of it.
    site.tide.apply(append(Expect::Exact(StreamVersion(0)))).await.unwrap();
    site.tide.start(ORDER, &4).id("order-17").await.unwrap();
    assert_eq!(seen(&mut site).await, (0, 2, true));
}

pub(crate) async fn a_refused_batch_leaves_the_transaction_usable<K: Kind>() {
    let mut site = K::open().await;
    let (tide, mut tx) = K::begin(&mut site).await;
    K::insert(&mut tx).await;
    let half = Batch::new().put(&Key::single("d").unwrap(), Expect::Absent, Payload::null());
    let half = half.and(append(Expect::Exact(StreamVersion(5))));
    let refused = K::apply(&tide, &mut tx, half).await.unwrap_err();
    assert_eq!(refused.code().unwrap().as_str(), "TL0201");
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    K::insert(&mut tx).await;
    K::apply(&tide, &mut tx, append(Expect::Absent)).await.unwrap();
    K::commit(tx).await;
    assert_eq!(seen(&mut site).await, (2, 1, false));
    assert!(site.tide.store().document(&Key::single("d").unwrap()).await.unwrap().is_none());
}

pub(crate) async fn an_operation_is_applied_once<K: Kind>() {
    let mut site = K::open().await;
    let id = OpId::new();
    let batch = append(Expect::Any).op_id(id);
    let (tide, mut tx) = K::begin(&mut site).await;
    K::insert(&mut tx).await;
    let first = K::apply(&tide, &mut tx, batch.clone()).await.unwrap();
    let second = K::apply(&tide, &mut tx, batch.clone()).await.unwrap();
    K::commit(tx).await;
    assert!(!first.repeated && second.repeated);
    let outside = site.tide.apply(batch.clone()).await.unwrap();
    assert_eq!((outside.repeated, &outside.appended), (true, &first.appended));
    let (tide, mut tx) = K::begin(&mut site).await;
    let later = K::apply(&tide, &mut tx, batch).await.unwrap();
    K::roll_back(tx).await;
    assert_eq!((later.repeated, &later.appended), (true, &first.appended));
    assert!(matches!(site.tide.store().resolve(id).await.unwrap(), Resolution::Applied(_)));
    assert_eq!(seen(&mut site).await, (1, 1, false));
}

pub(crate) async fn a_run_is_executed_after_the_commit_and_not_before<K: Kind>() {
    let mut site = K::open().await;
    let executed = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&executed);
    let code = async move |_: &Ctx, n: u32| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(n * 2)
    };
    // The worker polls once an hour: only hints wake it.
    let worker = Worker::new(site.tide.store().clone()).poll_interval(Duration::from_hours(1));
    let worker = worker.register(ORDER, code).start().await.unwrap();
    for commit in [false, true] {
        let (tide, mut tx) = K::begin(&mut site).await;
        K::insert(&mut tx).await;
        let run = K::start(tide.start(ORDER, &21).id("order-17"), &mut tx).await.unwrap();
        assert_eq!(executed.load(Ordering::SeqCst), 0);
        if commit {
            K::commit(tx).await;
            tide.hint();
            assert_eq!(run.result().await.unwrap(), 42);
        } else {
            K::roll_back(tx).await;
            tide.hint();
            assert!(run.status().await.is_err());
        }
    }
    assert_eq!(executed.load(Ordering::SeqCst), 1);
    worker.shutdown().await;
}

pub(crate) async fn a_run_that_exists_is_found_and_another_one_is_refused<K: Kind>() {
    let mut site = K::open().await;
    site.tide.start(ORDER, &3).id("order-17").await.unwrap();
    let (tide, mut tx) = K::begin(&mut site).await;
    let found = K::start(tide.start(ORDER, &3).id("order-17"), &mut tx).await.unwrap();
    assert_eq!(found.run(), "order-17");
    let taken = K::start(tide.start(ORDER, &4).id("order-17"), &mut tx).await.err().unwrap();
    assert_eq!(taken.code().unwrap().as_str(), "TL1002");
    let invalid = K::start(tide.start(ORDER, &4).id(""), &mut tx).await.err().unwrap();
    assert_eq!(invalid.kind(), ErrorKind::Invalid);
    K::insert(&mut tx).await;
    K::commit(tx).await;
    assert_eq!(seen(&mut site).await, (1, 0, true));
}

/// Every statement of the write path, with values that a driver could change.
pub(crate) async fn every_kind_of_row_and_value_is_written<K: Kind>() {
    let mut site = K::open().await;
    let odd = "ä \u{0} \u{10FFFF} \" \\ 🌊";
    let meta = Payload::of(&[odd]).unwrap();
    let sold = NewEvent { meta, correlation: Some(odd.to_owned()), ..event(7) };
    let (document, work) = (Key::new("d", [odd]).unwrap(), Key::new("w", [odd, "b"]).unwrap());
    let job = |key: &Key| NewWork::once(key.clone(), "queue".parse().unwrap());
    let later = job(&work).due(Due::At(Timestamp::from_micros(i64::MAX / 2)));
    let batch = Batch::new()
        .append(&sales(), Expect::Absent, [event(8), sold.clone(), event(9)])
        .put(&document, Expect::Absent, Payload::of(&[odd]).unwrap())
        .merge_or_create(
            &Key::single("sum").unwrap(),
            Payload::of(&1).unwrap(),
            [Delta::inc("", i64::MAX - 9)],
        )
        .enqueue(later)
        .enqueue(job(&Key::single("gone").unwrap()))
        .op_id(OpId::new());
    let (tide, mut tx) = K::begin(&mut site).await;
    let receipt = K::apply(&tide, &mut tx, batch).await.unwrap();
    let mails =
        Outbox::new("mails").put(Batch::new(), &Message::new("ada@example.com", &odd).unwrap()).unwrap();
    K::apply(&tide, &mut tx, mails.truncate(&sales(), StreamVersion(1))).await.unwrap();
    let gone = WorkFilter { pattern: Some(Pattern::new("^gone").unwrap()), ..WorkFilter::default() };
    let remove = Batch::new().operate(Selection::Filter(gone), Operation::Remove);
    K::apply(
        &tide,
        &mut tx,
        remove.delete(&document, Expect::Exact(receipt.documents.first().unwrap().version)),
    )
    .await
    .unwrap();
    K::commit(tx).await;
    let store = site.tide.store();
    let events = store.read_stream(StreamQuery::forward(&sales(), 9)).await.unwrap().events;
    assert_eq!(events.iter().map(|event| event.version.0).collect::<Vec<_>>(), [1, 2]);
    let sum = store.document(&Key::single("sum").unwrap()).await.unwrap().unwrap();
    assert_eq!(sum.value, Payload::of(&(i64::MAX - 8)).unwrap());
    assert!(store.document(&document).await.unwrap().is_none());
    let row = store.work(&work).await.unwrap().unwrap();
    assert_eq!(row.due, Some(Timestamp::from_micros(i64::MAX / 2)));
    assert!(store.work(&Key::single("gone").unwrap()).await.unwrap().is_none());
    let (tide, mut tx) = K::begin(&mut site).await;
    let again = Batch::new().append(&Key::single("other").unwrap(), Expect::Absent, [sold]);
    assert_eq!(K::apply(&tide, &mut tx, again).await.unwrap_err().code().unwrap().as_str(), "TL0208");
    K::roll_back(tx).await;
}

/// A call that is dropped at any await leaves a transaction that can be rolled back, and no trace in the store.
#[cfg(feature = "postgres")]
pub(crate) async fn a_cancelled_call_leaves_nothing<K: Kind>() {
    let mut site = K::open().await;
    for polls in 0.. {
        let (tide, mut tx) = K::begin(&mut site).await;
        K::insert(&mut tx).await;
        let ended = poll_some(polls, K::apply(&tide, &mut tx, append(Expect::Absent))).await;
        drop(tx);
        site.mine = K::connect(&site.place).await;
        assert_eq!(seen(&mut site).await, (0, 0, false), "after {polls} polls");
        if let Some(applied) = ended {
            applied.unwrap();
            break;
        }
    }
    site.tide.apply(append(Expect::Absent)).await.unwrap();
}

/// Polls a future this many times, and then drops it.
#[cfg(feature = "postgres")]
async fn poll_some<T>(polls: u32, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return std::task::Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}
