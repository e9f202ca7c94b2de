//! Document expiry (T11), and what a sweep may remove.

use crate::dump::pages;
use std::sync::Arc;

use tidelock_core::housekeeping::{Housekeeping, INTERVAL, last_sweep};

use crate::prelude::*;

fn until(k: &Key, expect: Expect<DocVersion>, n: i64, lasts: u64) -> Batch {
    Batch::new().put_until(k, expect, number(n), Due::After(secs(lasts)))
}

fn tombstones(before: Timestamp) -> Sweep {
    Sweep { tombstones_before: Some(before), ..Sweep::default() }
}

/// An expired document is absent for every reader and every precondition from that instant on.
/// Documents only.
pub async fn t11_expired_documents_are_absent_for_everyone(env: &Env) {
    let k = key("t11");
    env.store.done(until(&k, Expect::Absent, 1, 10)).await;
    let ends = env.now().after(secs(10));
    assert_eq!(env.other.doc(&k).await.unwrap().expires_at, Some(ends));
    env.pass(secs(10) - TICK);
    assert!(env.other.doc(&k).await.is_some(), "one tick before");
    env.store.done(Batch::new().guard_document(&k, doc_at(1))).await;
    env.pass(TICK);
    for conn in [&env.store, &env.other] {
        assert_eq!(conn.doc(&k).await, None);
        assert!(pages(async |page| conn.documents(&all_keys(), page).await).await.is_empty());
        for expect in [Expect::Exists, doc_at(1)] {
            let refusal = conn.refused(Batch::new().guard_document(&k, expect)).await;
            assert_eq!(document_conflict(refusal), DocumentFound::Gone(DocVersion(1)));
        }
        let merge = conn.refused(Batch::new().merge(&k, [Delta::inc("/n", 1)])).await;
        assert!(matches!(merge, Refusal::NotFound { .. }), "{merge:?}");
    }
    let receipt = env.other.done(Batch::new().put(&k, Expect::Absent, number(2))).await;
    assert_eq!(receipt.documents[0].version, DocVersion(2), "the version continues");
    env.pass(secs(1_000));
    assert!(env.store.doc(&k).await.is_some(), "a new write without an end has none");
}

/// A merge keeps the expiry of the document; a put replaces it. Documents only.
pub async fn t11_a_merge_keeps_the_end(env: &Env) {
    let k = key("t11-merge");
    env.store.done(until(&k, Expect::Absent, 1, 10)).await;
    let ends = env.now().after(secs(10));
    env.pass(secs(4));
    env.store.done(Batch::new().merge(&k, [Delta::inc("/n", 1)])).await;
    assert_eq!(env.store.doc(&k).await.unwrap().expires_at, Some(ends));
    env.store.done(until(&k, Expect::Any, 5, 60)).await;
    assert_eq!(env.store.doc(&k).await.unwrap().expires_at, Some(env.now().after(secs(60))));
    env.store.done(Batch::new().put(&k, Expect::Any, number(1))).await;
    assert_eq!(env.store.doc(&k).await.unwrap().expires_at, None);
}

/// A merge that recreates an expired document starts from the initial value. Documents only.
pub async fn t11_a_merge_does_not_revive_an_expired_document(env: &Env) {
    let k = key("t11-revive");
    env.store.done(until(&k, Expect::Absent, 100, 10)).await;
    env.pass(secs(10));
    let receipt = env.store.done(Batch::new().merge_or_create(&k, number(0), [Delta::inc("/n", 1)])).await;
    assert_eq!(receipt.documents[0].version, DocVersion(2));
    let document = env.other.doc(&k).await.unwrap();
    assert_eq!((document.value, document.expires_at), (number(1), None));
}

/// A document that expires at once is never visible, not even to later effects of its batch. Documents only.
pub async fn t11_a_document_may_end_at_once(env: &Env) {
    let k = key("t11-once");
    let batch = Batch::new().put_until(&k, Expect::Absent, number(1), Due::Now);
    env.store.done(batch.guard_document(&k, Expect::Absent)).await;
    assert_eq!(env.other.doc(&k).await, None);
    let past = Batch::new().put_until(&k, Expect::Absent, number(1), Due::At(Timestamp::EPOCH));
    assert_eq!(env.other.done(past).await.documents[0].version, DocVersion(2));
    assert_eq!(env.store.doc(&k).await, None);
}

/// A sweep removes expired documents, counts them, and changes nothing else. Documents only.
pub async fn t11_a_sweep_removes_expired_documents(env: &Env) {
    let names: Vec<Key> = (0..6).map(|i| key(&format!("t11-{i}"))).collect();
    let lasts = |i: usize| if i < 4 { 10 } else { 20 };
    for (i, k) in names.iter().enumerate() {
        env.store.done(until(k, Expect::Absent, 1, lasts(i))).await;
    }
    env.store.done(Batch::new().put(&key("t11-stays"), Expect::Absent, number(1))).await;
    assert_eq!(env.store.sweep(Sweep::default()).await.unwrap(), Swept::default(), "nothing has expired yet");
    env.pass(secs(10));
    let before = Dump::of(&env.other).await;
    let swept = env.store.sweep(Sweep { limit: 3, ..Sweep::default() }).await.unwrap();
    assert_eq!(swept, Swept { expired: 3, ..Swept::default() }, "no more than was asked for");
    let swept = env.other.sweep(Sweep::default()).await.unwrap();
    assert_eq!(swept.expired, 1, "the rest");
    assert_eq!(env.other.sweep(Sweep::default()).await.unwrap(), Swept::default());
    assert_eq!(Dump::of(&env.other).await, before, "a reader does not notice a sweep");
    let refusal = env.store.refused(Batch::new().guard_document(&names[0], Expect::Exists)).await;
    assert_eq!(document_conflict(refusal), DocumentFound::Gone(DocVersion(1)), "the version is remembered");
}

/// Swept tombstones are forgotten, but no version is ever issued again. Documents only.
pub async fn t11_versions_never_restart_after_a_sweep(env: &Env) {
    let (k, other) = (key("t11-floor"), key("t11-new"));
    for n in 0..5 {
        env.store.done(Batch::new().put(&k, Expect::Any, number(n))).await;
    }
    env.store.done(Batch::new().delete(&k, doc_at(5))).await;
    assert_eq!(env.store.sweep(tombstones(env.now())).await.unwrap().tombstones, 0, "not older than now");
    env.pass(TICK);
    assert_eq!(env.store.sweep(tombstones(env.now())).await.unwrap().tombstones, 1);
    let refusal = env.other.refused(Batch::new().put(&k, doc_at(4), number(9))).await;
    assert_eq!(document_conflict(refusal), DocumentFound::Absent, "the tombstone is gone");
    let receipt = env.other.done(Batch::new().delete(&k, Expect::Any)).await;
    assert_eq!(receipt.documents[0].version, DocVersion(6));
    let receipt = env.other.done(Batch::new().put(&k, Expect::Absent, number(1))).await;
    assert_eq!(receipt.documents[0].version, DocVersion(7), "an older read always conflicts");
    let receipt = env.store.done(Batch::new().put(&other, Expect::Absent, number(1))).await;
    assert!(
        receipt.documents[0].version > DocVersion(6),
        "the same holds for every key, because swept keys are not recorded"
    );
}

/// The record of swept versions survives a restart. Documents only.
pub async fn t11_the_floor_survives_a_restart(env: &Env) {
    if !env.capabilities().durable {
        return;
    }
    let k = key("t11-restart");
    env.store.done(Batch::new().put(&k, Expect::Any, number(1)).put(&k, Expect::Any, number(2))).await;
    env.store.done(Batch::new().delete(&k, Expect::Any)).await;
    env.pass(secs(1));
    assert_eq!(env.store.sweep(tombstones(env.now())).await.unwrap().tombstones, 1);
    let store = env.restart().await;
    let receipt = store.done(Batch::new().put(&k, Expect::Absent, number(1))).await;
    assert_eq!(receipt.documents[0].version, DocVersion(4));
}

/// A connection opened before the sweep does not reissue a forgotten version either. Documents only.
pub async fn t11_every_connection_knows_the_floor(env: &Env) {
    let k = key("t11-two");
    // Both connections have seen the key and may have cached it.
    env.store.done(Batch::new().put(&k, Expect::Absent, number(1))).await;
    env.other.done(Batch::new().put(&k, doc_at(1), number(2))).await;
    env.store.done(Batch::new().delete(&k, doc_at(2))).await;
    env.pass(secs(1));
    assert_eq!(env.other.sweep(tombstones(env.now())).await.unwrap().tombstones, 1);
    let receipt = env.store.done(Batch::new().put(&k, Expect::Absent, number(1))).await;
    assert_eq!(receipt.documents[0].version, DocVersion(4));
    let receipt = env.other.done(Batch::new().put(&key("t11-two-b"), Expect::Absent, number(1))).await;
    assert_eq!(receipt.documents[0].version, DocVersion(4));
}

/// Operation records are swept by age; a forgotten id can be used again. Documents only.
pub async fn t11_operation_records_are_swept_by_age(env: &Env) {
    let (old, young) = (OpId::new(), OpId::new());
    let batch = |id| Batch::new().merge_or_create(&key("t11-op"), number(0), [Delta::inc("/n", 1)]).op_id(id);
    env.store.done(batch(old)).await;
    env.pass(secs(60));
    env.store.done(batch(young)).await;
    let sweep = Sweep { operations_before: Some(env.now()), ..Sweep::default() };
    assert_eq!(env.other.sweep(sweep).await.unwrap(), Swept { operations: 1, ..Swept::default() });
    assert_eq!(env.store.operation(old).await.unwrap(), None);
    assert!(env.store.operation(young).await.unwrap().is_some());
    assert!(!env.store.done(batch(old)).await.repeated);
    assert!(env.store.done(batch(young)).await.repeated);
    assert_eq!(env.store.value(&key("t11-op")).await, Some(json!({ "n": 3 })));
}

/// Operation records with a future date, from a clock that was ahead, do not keep older ones from being removed.
/// Documents only.
pub async fn t11_future_dated_records_do_not_stop_the_sweep(env: &Env) {
    let batch = || Batch::new().put(&key("t11-ahead"), Expect::Any, number(1)).op_id(OpId::new());
    let start = env.now();
    env.clock.set(start.after(secs(86_400)));
    for _ in 0..3 {
        env.store.done(batch()).await;
    }
    env.clock.set(start);
    for _ in 0..4 {
        env.store.done(batch()).await;
    }
    env.pass(secs(60));
    let sweep = Sweep { operations_before: Some(env.now()), limit: 2, ..Sweep::default() };
    for _ in 0..2 {
        assert_eq!(env.other.sweep(sweep).await.unwrap(), Swept { operations: 2, ..Swept::default() });
    }
    assert_eq!(env.other.sweep(sweep).await.unwrap(), Swept::default());
}

/// With housekeeping in several processes, one of them sweeps in each interval, and all removable rows are removed.
/// Documents only.
pub async fn t11_housekeeping_sweeps_once_for_all_processes(env: &Env) {
    let (expired, deleted) = (key("t11-expired"), key("t11-deleted"));
    let batch = Batch::new().put_until(&expired, Expect::Absent, number(1), Due::After(secs(60)));
    env.store.done(batch.put(&deleted, Expect::Absent, number(1)).op_id(OpId::new())).await;
    env.store.done(Batch::new().delete(&deleted, Expect::Exists)).await;
    env.pass(secs(8 * 86_400));
    let young = OpId::new();
    env.store.done(Batch::new().put(&key("t11-stays"), Expect::Any, number(1)).op_id(young)).await;

    let houses = [&env.store, &env.other].map(|conn| Housekeeping::new(Arc::clone(&conn.0)));
    let first = houses[0].sweep_if_due().await.unwrap().expect("the first sweep is due");
    // The expired document leaves a tombstone, which is old already.
    assert_eq!((first.removed.expired, first.removed.operations, first.complete), (1, 1, true));
    assert!(matches!(first.removed.tombstones, 1 | 2), "{first:?}");
    assert!(env.other.operation(young).await.unwrap().is_some(), "what is young stays");
    if env.capabilities().documents_only {
        return;
    }
    assert_eq!(last_sweep(&*env.other.0).await.unwrap(), Some(first));
    for house in &houses {
        assert_eq!(house.sweep_if_due().await.unwrap(), None, "the next one is not due");
    }
    env.pass(INTERVAL);
    let second = houses[1].sweep_if_due().await.unwrap().expect("a minute later it is");
    assert!(second.complete && second.removed.operations == 0, "{second:?}");
    assert_eq!(houses[0].sweep_if_due().await.unwrap(), None, "and once is enough");
}
