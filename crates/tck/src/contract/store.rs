//! Atomic batches (T1–T8): preconditions, versions, and all-or-nothing.

use crate::env::ONE_AND_TWO;
use crate::prelude::*;

/// Many concurrent creations of one document have one winner. Each loser receives the winner's value and version.
/// Documents only.
pub async fn t1_create_if_absent_has_one_winner(env: &Env) {
    for connections in ONE_AND_TWO {
        let target = key(&format!("t1-{connections}"));
        let create = |i: usize, conn: Conn| {
            let batch = Batch::new().put(&target, Expect::Absent, number(i as i64));
            async move { conn.apply(batch).await }
        };
        let (receipt, losers) = one_winner(env.race(connections, 8, create).await);
        assert_eq!(receipt.documents[0].version, DocVersion(1));
        let stored = env.store.doc(&target).await.unwrap();
        assert_eq!(losers.len(), 7);
        for loser in losers {
            assert_eq!(present(loser), stored, "the loser needs no second read");
        }
    }
}

/// Of several work rows with one name, each required to be new, one is created.
pub async fn t1_enqueue_only_new_has_one_winner(env: &Env) {
    for connections in ONE_AND_TWO {
        let name = format!("t1-work-{connections}");
        let create = |i: usize, conn: Conn| {
            let batch = enqueue(job(&name).payload(number(i as i64)).only_new());
            async move { conn.apply(batch).await }
        };
        let (_, losers) = one_winner(env.race(connections, 8, create).await);
        for loser in losers {
            assert!(matches!(loser, Refusal::Work { exists: true, index: 0, .. }), "{loser:?}");
        }
    }
}

/// A stale version is a conflict with the current value and version. The row is unchanged. Documents only.
pub async fn t2_stale_version_conflicts(env: &Env) {
    let k = key("t2");
    env.store.done(Batch::new().put(&k, Expect::Absent, number(1))).await;
    env.other.done(Batch::new().put(&k, doc_at(1), number(2))).await;
    let before = env.store.doc(&k).await.unwrap();
    let refusal = env.store.refused(Batch::new().put(&k, doc_at(1), number(3))).await;
    assert_eq!(refusal.code().as_str(), "TL0202");
    let document = present(refusal);
    assert_eq!((document.version, &document.value), (DocVersion(2), &number(2)));
    assert_eq!(env.other.doc(&k).await.unwrap(), before, "the row is intact");
}

/// A future version conflicts like a past one, and so does any version of a document that never existed. Documents
/// only.
pub async fn t2_versions_that_never_were_conflict(env: &Env) {
    let k = key("t2-future");
    let refusal = env.store.refused(Batch::new().put(&k, doc_at(1), number(1))).await;
    assert_eq!(document_conflict(refusal), DocumentFound::Absent);
    let refusal = env.store.refused(Batch::new().put(&k, Expect::Exists, number(1))).await;
    assert_eq!(document_conflict(refusal), DocumentFound::Absent);
    env.store.done(Batch::new().put(&k, Expect::Any, number(1))).await;
    assert_eq!(present(env.store.refused(Batch::new().put(&k, doc_at(2), number(2))).await).version.0, 1);
    env.store.done(Batch::new().put(&k, Expect::Exists, number(3))).await;
    assert_eq!(env.store.doc(&k).await.unwrap().version, DocVersion(2));
}

/// Of many writers that saw the same version, one succeeds. No write is lost silently. Documents only.
pub async fn t2_concurrent_writers_of_one_version_have_one_winner(env: &Env) {
    for connections in ONE_AND_TWO {
        let k = key(&format!("t2-race-{connections}"));
        env.store.done(Batch::new().put(&k, Expect::Absent, number(-1))).await;
        let write = |i: usize, conn: Conn| {
            let batch = Batch::new().put(&k, doc_at(1), number(i as i64));
            async move { conn.apply(batch).await }
        };
        let (_, losers) = one_winner(env.race(connections, 8, write).await);
        let stored = env.other.doc(&k).await.unwrap();
        assert_eq!(stored.version, DocVersion(2));
        assert!(losers.into_iter().all(|loser| present(loser) == stored));
    }
}

/// Every error of a batch has a stable code, a retry hint, and the guarantee that nothing was applied.
pub async fn t2_refusals_explain_themselves(env: &Env) {
    let (doc, stream) = (key("t2-doc"), key("t2-stream"));
    env.store.done(Batch::new().close(&stream, Expect::Any)).await;
    let stale = Lease { key: key("t2-row"), fence: tidelock_core::id::Fence(999), owner: None };
    let refusals = [
        (Batch::new().append(&key("t2-new"), at(3), events(1)), "TL0201", Retry::Now),
        (Batch::new().put(&doc, doc_at(9), number(1)), "TL0202", Retry::Now),
        (enqueue(NewWork { expect: Expect::Exists, ..job("t2-job") }), "TL0203", Retry::Now),
        (Batch::new().ack(&stale), "TL0204", Retry::Never),
        (Batch::new().append(&stream, Expect::Any, events(1)), "TL0205", Retry::Never),
        (Batch::new().merge(&doc, [Delta::inc("/n", 1)]), "TL0206", Retry::Never),
        (Batch::new().merge_or_create(&doc, number(1), [Delta::inc("", 1)]), "TL0207", Retry::Never),
    ];
    for (batch, code, retry) in refusals {
        let error = env.store.apply(batch).await.unwrap_err();
        assert_eq!(error.code().as_str(), code, "{error}");
        assert_eq!(error.retry(), retry, "{error}");
        assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
    }
}

/// A delete keeps the version, and a new creation continues it. A write with a version from before the delete
/// conflicts. Documents only.
pub async fn t3_delete_keeps_the_version(env: &Env) {
    let k = key("t3");
    env.store.done(Batch::new().put(&k, Expect::Absent, number(1))).await;
    env.store.done(Batch::new().put(&k, doc_at(1), number(2))).await;
    let receipt = env.other.done(Batch::new().delete(&k, doc_at(2))).await;
    assert_eq!(receipt.documents[0].version, DocVersion(3), "a delete is a write");
    assert_eq!(env.store.doc(&k).await, None);
    let refusal = env.store.refused(Batch::new().put(&k, doc_at(2), number(9))).await;
    assert_eq!(document_conflict(refusal), DocumentFound::Gone(DocVersion(3)));
    // The version of the tombstone is not a version of the document: there is none.
    let refusal = env.store.refused(Batch::new().put(&k, doc_at(3), number(9))).await;
    assert_eq!(document_conflict(refusal), DocumentFound::Gone(DocVersion(3)));
    let receipt = env.store.done(Batch::new().put(&k, Expect::Absent, number(1))).await;
    assert_eq!(receipt.documents[0].version, DocVersion(4), "the version continues");
    let looked_before = env.other.refused(Batch::new().put(&k, doc_at(2), number(9))).await;
    assert_eq!(present(looked_before).version, DocVersion(4));
}

/// A delete of a missing document changes nothing, and a second delete takes no new version. Documents only.
pub async fn t3_delete_of_nothing_changes_nothing(env: &Env) {
    let k = key("t3-nothing");
    let receipt = env.store.done(Batch::new().delete(&k, Expect::Any)).await;
    assert_eq!(receipt.documents[0].version, DocVersion(0));
    env.store.done(Batch::new().put(&k, Expect::Absent, number(1))).await;
    for _ in 0..2 {
        let receipt = env.store.done(Batch::new().delete(&k, Expect::Any)).await;
        assert_eq!(receipt.documents[0].version, DocVersion(2));
    }
    let refusal = env.store.refused(Batch::new().delete(&k, Expect::Exists)).await;
    assert_eq!(document_conflict(refusal), DocumentFound::Gone(DocVersion(2)));
}

/// A stale delete conflicts, and the row is unchanged. Documents only.
pub async fn t4_stale_delete_conflicts(env: &Env) {
    let k = key("t4");
    env.store.done(Batch::new().put(&k, Expect::Absent, number(1))).await;
    env.other.done(Batch::new().put(&k, doc_at(1), number(2))).await;
    let document = present(env.store.refused(Batch::new().delete(&k, doc_at(1))).await);
    assert_eq!((document.version, document.value), (DocVersion(2), number(2)));
    assert_eq!(env.store.value(&k).await, Some(json!({ "n": 2 })));
}

/// Of a delete and a write that both saw version 1, one succeeds. Documents only.
pub async fn t4_delete_and_write_race_has_one_winner(env: &Env) {
    for connections in ONE_AND_TWO {
        let k = key(&format!("t4-race-{connections}"));
        env.store.done(Batch::new().put(&k, Expect::Absent, number(0))).await;
        let work = |i: usize, conn: Conn| {
            let batch = Batch::new();
            let batch = if i.is_multiple_of(2) {
                batch.delete(&k, doc_at(1))
            } else {
                batch.put(&k, doc_at(1), number(i as i64))
            };
            async move { conn.apply(batch).await }
        };
        let (receipt, losers) = one_winner(env.race(connections, 6, work).await);
        assert_eq!(receipt.documents[0].version, DocVersion(2));
        assert_eq!(losers.len(), 5);
    }
}

/// One failing precondition among ten effects on streams, documents and work changes nothing, wherever it occurs in the
/// batch.
pub async fn t6_one_failing_precondition_changes_nothing(env: &Env) {
    let (stream, doc) = (key("t6-stream"), key("t6-doc"));
    env.store
        .done(Batch::new().append(&stream, Expect::Absent, events(2)).put(&doc, Expect::Any, number(1)))
        .await;
    env.store.done(enqueue(job("t6-held")).enqueue(standing("t6-idle").due(Due::After(secs(60))))).await;
    let lease = env.store.take("w", &key("t6-held")).await.unwrap().lease();
    let before = Dump::of(&env.store).await;
    let effects = || {
        let events = vec![event("A", 1), event("B", 2)];
        let all = Batch::new()
            .append(&stream, at(1), events)
            .append(&key("t6-new"), Expect::Absent, self::events(1))
            .close(&key("t6-closed"), Expect::Absent)
            .put(&doc, doc_at(1), number(2))
            .put(&key("t6-other"), Expect::Absent, number(2))
            .merge(&doc, [Delta::inc("/n", 5)])
            .delete(&key("t6-other"), Expect::Exists)
            .enqueue(job("t6-job"))
            .ack(&lease)
            .operate(Selection::Keys(vec![key("t6-idle")]), Operation::RetryNow);
        all.effects().to_vec()
    };
    let build = |effects: Vec<Effect>| effects.into_iter().fold(Batch::new(), Batch::with);
    for failing in 0..=effects().len() {
        let mut all = effects();
        all.insert(failing, Effect::GuardDocument { key: key("t6-missing"), expect: Expect::Exists });
        let refusal = env.store.refused(build(all)).await;
        let Refusal::Document { index, .. } = refusal else { panic!("{refusal:?}") };
        assert_eq!(index, failing, "the refusal names the effect");
        assert_eq!(Dump::of(&env.other).await, before, "effect {failing} of a refused batch left a trace");
    }
    env.store.done(build(effects())).await;
    assert_ne!(Dump::of(&env.other).await, before);
}

/// Effects of a batch see the earlier effects of the same batch.
pub async fn t6_later_effects_see_earlier_ones(env: &Env) {
    let (doc, stream, row) = (key("t6-seen"), key("t6-seen-s"), key("t6-seen-w"));
    let batch = Batch::new()
        .put(&doc, Expect::Absent, number(1))
        .guard_document(&doc, doc_at(1))
        .merge(&doc, [Delta::inc("/n", 1)])
        .put(&doc, doc_at(2), number(7))
        .append(&stream, Expect::Absent, events(2))
        .guard_stream(&stream, at(1))
        .append(&stream, at(1), self::events(1))
        .delete(&doc, doc_at(3))
        .put(&doc, Expect::Absent, number(8))
        .enqueue(job("t6-seen-w"))
        .operate(Selection::Keys(vec![row.clone()]), Operation::Prioritize(Priority::FIRST));
    let receipt = env.store.done(batch).await;
    let versions: Vec<u64> = receipt.documents.iter().map(|d| d.version.0).collect();
    assert_eq!(versions, [1, 2, 3, 4, 5]);
    assert_eq!(receipt.documents[1].value, Some(number(2)), "a merge says what it arrived at");
    assert_eq!(receipt.operated, [1]);
    assert_eq!(receipt.appended.len(), 2);
    assert_eq!(receipt.appended[1].first_version, StreamVersion(2));
    assert_eq!(env.store.row(&row).await.priority, Priority::FIRST);
    assert_eq!(env.store.doc(&doc).await.unwrap().version, DocVersion(5));
    let again = Batch::new().put(&doc, doc_at(5), number(1)).guard_document(&doc, doc_at(5));
    assert!(matches!(env.store.refused(again).await, Refusal::Document { index: 1, .. }));
}

/// A selection by filter sees the rows that earlier effects of its batch created.
pub async fn t6_filters_see_earlier_effects(env: &Env) {
    env.store.done(enqueue(job("t6-f1"))).await;
    let filter = WorkFilter { queue: Some(jobs()), ..WorkFilter::default() };
    let batch = enqueue(job("t6-f2"))
        .operate(Selection::Filter(filter.clone()), Operation::Prioritize(Priority::LAST))
        .operate(Selection::Keys(vec![key("t6-f1")]), Operation::Remove)
        .operate(Selection::Filter(filter), Operation::Prioritize(Priority::FIRST));
    let receipt = env.store.done(batch).await;
    assert_eq!(receipt.operated, [2, 1, 1]);
    assert_eq!(env.store.row(&key("t6-f2")).await.priority, Priority::FIRST);
}

/// An empty batch, and one with appends of no events, are applied and change nothing.
pub async fn t6_empty_batches_change_nothing(env: &Env) {
    let before = Dump::of(&env.store).await;
    let receipt = env.store.done(Batch::new()).await;
    assert_eq!((receipt.at, receipt.appended.len(), receipt.documents.len()), (env.now(), 0, 0));
    let receipt = env.store.done(Batch::new().append(&key("t6-none"), Expect::Absent, [])).await;
    assert!(receipt.appended.is_empty());
    assert_eq!(Dump::of(&env.store).await, before);
}

/// A failing guard rejects the batch like a failing effect. A guard that holds changes nothing.
pub async fn t6_guards_have_no_effect(env: &Env) {
    let (doc, stream, lock) = (key("t6-g"), key("t6-gs"), key("t6-gw"));
    env.store
        .done(Batch::new().put(&doc, Expect::Any, number(1)).append(&stream, Expect::Any, events(1)))
        .await;
    let lease = env.store.lock("w", &lock).await.unwrap().lease();
    let before = Dump::of(&env.store).await;
    let holds = Batch::new().guard_document(&doc, doc_at(1)).guard_stream(&stream, at(0)).guard_lease(&lease);
    let receipt = env.other.done(holds).await;
    assert!(receipt.documents.is_empty() && receipt.appended.is_empty());
    env.store.refused(Batch::new().guard_document(&doc, Expect::Absent)).await;
    assert_eq!(
        stream_conflict(env.store.refused(Batch::new().guard_stream(&stream, at(1))).await),
        StreamFound::At(StreamVersion(0))
    );
    env.store.refused(Batch::new().guard_stream(&stream, Expect::Absent)).await;
    assert_eq!(Dump::of(&env.store).await, before);
}

/// Concurrent batches share a flush but not their outcome: a batch that conflicts fails alone.
pub async fn t7_a_conflict_fails_no_other_batch(env: &Env) {
    let taken = key("t7-taken");
    env.store.done(Batch::new().put(&taken, Expect::Absent, number(0))).await;
    for connections in ONE_AND_TWO {
        let work = |i: usize, conn: Conn| {
            let own = key(&format!("t7-{connections}-{i}"));
            // The conflicting half writes first and conflicts last: all its effects must be rolled back.
            let batch =
                Batch::new().append(&own, Expect::Absent, events(2)).put(&own, Expect::Absent, number(1));
            let batch =
                if i.is_multiple_of(2) { batch.put(&taken, Expect::Absent, number(9)) } else { batch };
            async move { (own, conn.apply(batch).await) }
        };
        for (i, (own, answer)) in env.race(connections, 24, work).await.into_iter().enumerate() {
            let landed = i % 2 == 1;
            assert_eq!(answer.is_ok(), landed, "batch {i}: {answer:?}");
            assert_eq!(env.other.doc(&own).await.is_some(), landed, "batch {i}");
            assert_eq!(env.other.history(&own).await.len(), if landed { 2 } else { 0 }, "batch {i}");
        }
    }
    let positions: Vec<_> = env.store.log().await.iter().map(|e| e.position).collect();
    assert!(positions.is_sorted_by(|a, b| a < b), "positions rise, and none is used twice");
}

/// A rejected batch that touched the same rows before does not affect a concurrent one.
pub async fn t7_a_refused_neighbour_leaves_no_trace_in_shared_rows(env: &Env) {
    for connections in ONE_AND_TWO {
        let shared = key(&format!("t7-shared-{connections}"));
        env.store.done(Batch::new().put(&shared, Expect::Absent, number(0))).await;
        let work = |i: usize, conn: Conn| {
            let batch =
                Batch::new().merge(&shared, [Delta::inc("/n", 1)]).append(&shared, Expect::Any, events(1));
            let batch =
                if i.is_multiple_of(3) { batch.guard_stream(&key("t7-no"), Expect::Exists) } else { batch };
            async move { conn.apply(batch).await.is_ok() }
        };
        let landed = env.race(connections, 24, work).await.into_iter().filter(|ok| *ok).count();
        assert_eq!(landed, 16);
        assert_eq!(env.other.value(&shared).await, Some(json!({ "n": 16 })));
        let versions: Vec<u64> = env.store.history(&shared).await.iter().map(|e| e.version.0).collect();
        assert_eq!(versions, (0..16).collect::<Vec<u64>>());
    }
}

/// Of appends that expect the same version, one succeeds. The others receive the current version of the stream.
pub async fn t8_appends_at_the_same_version_have_one_winner(env: &Env) {
    for connections in ONE_AND_TWO {
        let stream = key(&format!("t8-{connections}"));
        env.store.done(Batch::new().append(&stream, Expect::Absent, events(5))).await;
        let work = |_: usize, conn: Conn| {
            let batch = Batch::new().append(&stream, at(4), events(1));
            async move { conn.apply(batch).await }
        };
        let (receipt, losers) = one_winner(env.race(connections, 8, work).await);
        assert_eq!(receipt.appended[0].first_version, StreamVersion(5));
        for loser in losers {
            assert_eq!(stream_conflict(loser), StreamFound::At(StreamVersion(5)));
        }
        assert_eq!(env.other.history(&stream).await.len(), 6);
    }
}
