//! T5, T12 and T14: several rows of one snapshot, in the order of the request, with the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidelock_core::payload::Payload;
use tidelock_core::store::limits as contract;

use crate::prelude::*;

/// How often each connection reads beside a writer.
const ROUNDS: u32 = 40;

fn value_of(payload: &Payload) -> i64 {
    let value: serde_json::Value = payload.parse().expect("JSON");
    value["n"].as_i64().expect("a number")
}

/// Applies the numbered batches one after another while both connections read [`ROUNDS`] times. Returns the number of the last batch,
/// and a read after it.
async fn beside_a_writer<T>(
    env: &Env,
    batch: impl Fn(i64) -> Batch + Send + 'static,
    read: impl AsyncFn(&Conn) -> T,
) -> (i64, T) {
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (stop, conn) = (Arc::clone(&stop), env.store.clone());
        async move {
            let mut n = 0;
            loop {
                conn.done(batch(n)).await;
                if stop.load(Ordering::SeqCst) {
                    return n;
                }
                n += 1;
                tokio::task::yield_now().await;
            }
        }
    });
    for _ in 0..ROUNDS {
        tokio::join!(read(&env.other), read(&env.store));
        tokio::task::yield_now().await;
    }
    stop.store(true, Ordering::SeqCst);
    let last = writer.await.expect("the writer ends");
    (last, read(&env.other).await)
}

/// Rows of every kind that one batch writes are read together or not at all, beside a writer.
pub async fn t14_a_read_of_rows_is_one_snapshot(env: &Env) {
    let (a, b, stream, row) = (key("t14-a"), key("t14-b"), key("t14-s"), key("t14-w"));
    let gets = [
        Get::Document(a.clone()),
        Get::Stream(stream.clone()),
        Get::Work(row.clone()),
        Get::Document(b.clone()),
    ];
    let batch = move |n| {
        let event = NewEvent::new(event_type("E"), number(n));
        let work = NewWork::standing(row.clone(), jobs()).payload(number(n));
        let batch = Batch::new().put(&a, Expect::Any, number(n)).append(&stream, Expect::Any, [event]);
        batch.enqueue(work).put(&b, Expect::Any, number(n))
    };
    let (last, read) = beside_a_writer(env, batch, async |conn: &Conn| {
        let mut found = conn.read(&gets).await.unwrap();
        let values = [
            found.take_document(0).map(|document| value_of(&document.value)),
            found.take_stream(1).and_then(|info| info.head).map(|head| head.0.cast_signed()),
            found.take_work(2).map(|row| value_of(&row.payload)),
            found.take_document(3).map(|document| value_of(&document.value)),
        ];
        assert!(values.iter().all(|value| *value == values[0]), "rows of several batches: {values:?}");
        values[0]
    })
    .await;
    assert_eq!(read, Some(last));
}

/// Documents that one batch writes are read together or not at all. Documents only.
pub async fn t14_documents_of_one_read_are_one_snapshot(env: &Env) {
    let keys: Vec<Key> = (0..4).map(|n| key(&format!("t14-d{n}"))).collect();
    let gets: Vec<Get> = keys.iter().cloned().map(Get::Document).collect();
    let batch = move |n| keys.iter().fold(Batch::new(), |batch, key| batch.put(key, Expect::Any, number(n)));
    let (last, read) = beside_a_writer(env, batch, async |conn: &Conn| {
        let mut found = conn.read(&gets).await.unwrap();
        let values: Vec<_> =
            (0..gets.len()).map(|n| found.take_document(n).map(|found| value_of(&found.value))).collect();
        assert!(values.iter().all(|value| *value == values[0]), "documents of several batches: {values:?}");
        values[0]
    })
    .await;
    assert_eq!(read, Some(last));
}

/// Rows come in the order of the request, once for each time that they are requested, and `None` where there is none.
pub async fn t14_a_read_answers_in_the_order_of_the_request(env: &Env) {
    let (k, id, unknown) = (key("t14-same"), OpId::new(), key("t14-unknown"));
    let event = NewEvent::new(event_type("E"), number(1));
    let batch = Batch::new().put(&k, Expect::Absent, number(1)).append(&k, Expect::Absent, [event]);
    let receipt = env.store.done(batch.enqueue(NewWork::once(k.clone(), jobs())).op_id(id)).await;
    let all = |k: &Key| [Get::Work(k.clone()), Get::Document(k.clone()), Get::Stream(k.clone())];
    let gets = [all(&unknown), all(&k), all(&unknown), all(&k)].concat();
    let gets = [gets, vec![Get::Operation(OpId::new()), Get::Operation(id)]].concat();
    let mut found = env.other.read(&gets).await.unwrap();
    assert_eq!((found.rows.len(), found.now), (gets.len(), env.now()));
    for at in [0, 6] {
        assert!(found.rows[at..at + 3].iter().all(Option::is_none), "{found:?}");
    }
    for at in [3, 9] {
        assert_eq!(found.take_work(at), env.store.work(&k).await.unwrap());
        assert_eq!(found.take_document(at + 1), env.store.document(&k).await.unwrap());
        assert_eq!(found.take_stream(at + 2), env.store.stream(&k).await.unwrap());
    }
    assert_eq!((found.take_operation(12), found.take_operation(13)), (None, Some(receipt.into_repeated())));
    assert_eq!(found.take_work(3), None, "a row is taken once");
}

/// A read sees a document as every reader does: neither deleted nor expired, and an operation unless it is void. Documents only.
pub async fn t14_a_read_hides_the_same_items_as_other_reads(env: &Env) {
    let (deleted, expires, stays) = (key("t14-gone"), key("t14-until"), key("t14-stays"));
    let (void, applied) = (OpId::new(), OpId::new());
    let until = env.now().after(secs(5));
    let batch = Batch::new().put(&deleted, Expect::Any, number(1)).put(&stays, Expect::Any, number(2));
    env.store.done(batch.put_until(&expires, Expect::Any, number(3), Due::At(until)).op_id(applied)).await;
    env.store.done(Batch::new().delete(&deleted, Expect::Any)).await;
    assert_eq!(env.store.resolve(void).await.unwrap(), Resolution::NotApplied);
    let gets = [
        Get::Document(deleted),
        Get::Document(expires),
        Get::Document(stays),
        Get::Operation(void),
        Get::Operation(applied),
    ];
    let seen = async || -> Vec<bool> {
        env.other.read(&gets).await.unwrap().rows.iter().map(Option::is_some).collect()
    };
    env.pass(secs(5) - TICK);
    assert_eq!(seen().await, [false, true, true, false, true]);
    env.pass(TICK);
    assert_eq!(seen().await, [false, false, true, false, true]);
}

/// A read has a limit, and a typed refusal beyond it. Awkward keys are keys like others. Documents only.
pub async fn t12_reads_are_bounded(env: &Env) {
    let awkward =
        ["", "'", "\"", "%", "_", "\\", "{a,b}", "NULL", "ä\u{10ffff}", "a\nb", "'; DROP TABLE work; --"];
    let keys: Vec<Key> = awkward.iter().map(|text| Key::new("t12", [*text]).unwrap()).collect();
    let put = |batch: Batch, key: &Key| batch.put(key, Expect::Absent, number(1));
    env.store.done(keys.iter().fold(Batch::new(), put)).await;
    let gets: Vec<Get> = keys.iter().cycle().take(contract::READ_ROWS).cloned().map(Get::Document).collect();
    let found = env.other.read(&gets).await.unwrap();
    for (get, row) in gets.iter().zip(&found.rows) {
        let Some(StoredRow::Document(document)) = row else { panic!("{get:?} is missing") };
        assert_eq!(*get, Get::Document(document.key.clone()));
    }
    let more = [gets, vec![Get::Document(key("t12-one-more"))]].concat();
    let error = env.store.read(&more).await.unwrap_err();
    assert_eq!((error.kind, error.code().as_str()), (StoreErrorKind::Invalid, "TL0105"), "{error}");
    assert_eq!((error.retry(), error.outcome()), (Retry::Never, Outcome::NotApplied));
    let nothing = env.store.read(&[]).await.unwrap();
    assert_eq!(nothing, RowSet { rows: Vec::new(), now: env.now() });
}

/// Every page says what time it is by the store's clock, an empty one as well.
pub async fn t5_pages_carry_the_clock(env: &Env) {
    let (k, everything) = (key("t5-clock"), KeyPrefix::all());
    for _ in 0..2 {
        env.pass(secs(1));
        let page = || Page::first(10);
        let nows = [
            env.store.documents(&everything, page()).await.unwrap().now,
            env.store.streams(&everything, page()).await.unwrap().now,
            env.store.works(&WorkFilter::default(), page()).await.unwrap().now,
            env.store.read_stream(StreamQuery::forward(&k, 10)).await.unwrap().now,
            env.store.read_log(LogQuery::all(10)).await.unwrap().now,
        ];
        assert_eq!(nows, [env.now(); 5]);
        let event = NewEvent::new(event_type("E"), number(1));
        let batch = Batch::new().put(&k, Expect::Any, number(1)).append(&k, Expect::Any, [event]);
        env.store.done(batch.enqueue(NewWork::once(k.clone(), jobs()))).await;
    }
}
