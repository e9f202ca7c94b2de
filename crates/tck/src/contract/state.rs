//! State at the level of the store (S2–S11): deltas, lost updates, and unknown outcomes.

use std::collections::BTreeSet;

use crate::env::ONE_AND_TWO;
use crate::prelude::*;

/// Adds two to `/n`: once by a merge, once by a compare-and-swap with retries.
pub(crate) async fn increment(conn: &Conn, key: &Key) {
    conn.done(Batch::new().merge(key, [Delta::inc("/n", 1)])).await;
    compare_and_increment(conn, key).await;
}

/// Adds one to `/n` by compare-and-swap, continuing from the document of a conflict. Returns the new version.
pub(crate) async fn compare_and_increment(conn: &Conn, key: &Key) -> DocVersion {
    let mut current = conn.doc(key).await.expect("the document exists");
    loop {
        let value: serde_json::Value = current.value.parse().unwrap();
        let next = number(value["n"].as_i64().unwrap() + 1);
        // Other tasks run between the read and the write, which is when updates are lost.
        tokio::task::yield_now().await;
        match conn.apply(Batch::new().put(key, Expect::Exact(current.version), next)).await {
            Ok(receipt) => return receipt.documents[0].version,
            Err(error) => current = present(refusal(Err(error))),
        }
    }
}

/// 64 concurrent writers of one record all succeed. Documents only.
pub async fn s2_sixty_four_writers_all_land(env: &Env) {
    for connections in ONE_AND_TWO {
        let k = key(&format!("s2-{connections}"));
        env.store.done(Batch::new().put(&k, Expect::Absent, number(0))).await;
        let work = |_: usize, conn: Conn| {
            let k = k.clone();
            async move { compare_and_increment(&conn, &k).await }
        };
        let versions: BTreeSet<DocVersion> = env.race(connections, 64, work).await.into_iter().collect();
        assert_eq!(versions, (2..=65).map(DocVersion).collect(), "each version is handed out once");
        assert_eq!(env.other.value(&k).await, Some(json!({ "n": 64 })));
    }
}

/// A foreign writer is faster. The loser continues from the winner's state in the conflict. Documents only.
pub async fn s3_the_loser_continues_from_the_winners_state(env: &Env) {
    let k = key("s3");
    env.store.done(Batch::new().put(&k, Expect::Absent, payload(json!({ "mine": 0, "theirs": 0 })))).await;
    env.other.done(Batch::new().merge(&k, [Delta::inc("/theirs", 1)])).await;
    let mine = Batch::new().put(&k, doc_at(1), payload(json!({ "mine": 1, "theirs": 0 })));
    let mut value: serde_json::Value = present(env.store.refused(mine).await).value.parse().unwrap();
    value["mine"] = json!(1);
    env.store.done(Batch::new().put(&k, doc_at(2), payload(value))).await;
    assert_eq!(env.other.value(&k).await, Some(json!({ "mine": 1, "theirs": 1 })));
}

/// A write equal to the value that a stale reader knows is a normal write: it conflicts, or it counts. Documents only.
pub async fn s5_an_equal_write_is_not_suppressed(env: &Env) {
    let k = key("s5");
    env.store.done(Batch::new().put(&k, Expect::Absent, number(1))).await;
    env.other.done(Batch::new().put(&k, doc_at(1), number(2))).await;
    assert_eq!(present(env.store.refused(Batch::new().put(&k, doc_at(1), number(1))).await).value, number(2));
    let receipt = env.store.done(Batch::new().put(&k, Expect::Any, number(1))).await;
    assert_eq!(receipt.documents[0].version, DocVersion(3));
    assert_eq!(env.other.value(&k).await, Some(json!({ "n": 1 })));
}

/// A guard confirms a value without writing: same version, no event, nothing changed. Documents only.
pub async fn s6_a_confirmed_value_needs_no_write(env: &Env) {
    let k = key("s6");
    env.store.done(Batch::new().put(&k, Expect::Absent, number(1))).await;
    let before = Dump::of(&env.store).await;
    env.pass(secs(1));
    env.other.done(Batch::new().guard_document(&k, doc_at(1))).await;
    assert_eq!(Dump::of(&env.store).await, before);
}

/// Concurrent increments from two connections add up, and each version is issued once. Documents only.
pub async fn s7_increments_make_the_sum(env: &Env) {
    for connections in ONE_AND_TWO {
        let k = key(&format!("s7-{connections}"));
        env.store.done(Batch::new().put(&k, Expect::Absent, payload(json!({ "n": 0, "log": [] })))).await;
        let work = |i: usize, conn: Conn| {
            let k = k.clone();
            async move {
                let mut versions = Vec::new();
                for n in 0..10 {
                    let deltas = [Delta::inc("/n", 1), Delta::push("/log", i * 100 + n)];
                    versions.push(conn.done(Batch::new().merge(&k, deltas)).await.documents[0].version);
                }
                versions
            }
        };
        let versions: Vec<Vec<DocVersion>> = env.race(connections, 8, work).await;
        assert!(versions.iter().all(|own| own.is_sorted_by(|a, b| a < b)), "versions rise for every writer");
        let unique: BTreeSet<DocVersion> = versions.into_iter().flatten().collect();
        assert_eq!(unique, (2..=81).map(DocVersion).collect());
        let value = env.other.value(&k).await.unwrap();
        let log: BTreeSet<u64> =
            value["log"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap()).collect();
        assert_eq!((&value["n"], log.len()), (&json!(80), 80), "no push is lost or doubled");
    }
}

/// Each delta changes its part of a value as specified. Documents only.
pub async fn s7_deltas_change_parts_of_a_value(env: &Env) {
    let cases = [
        (json!({}), Delta::inc("/a/b", 5), json!({ "a": { "b": 5 } })),
        (json!({ "a": 1 }), Delta::inc("/a", -3), json!({ "a": -2 })),
        (json!({ "a": 1.5 }), Delta::inc("/a", 1), json!({ "a": 2.5 })),
        (json!(41), Delta::inc("", 1), json!(42)),
        (json!({ "a": null }), Delta::inc("/a", 1), json!({ "a": 1 })),
        (json!({}), Delta::push("/l", "x"), json!({ "l": ["x"] })),
        (json!({ "l": [1] }), Delta::push("/l", 2), json!({ "l": [1, 2] })),
        (json!({ "a": 1 }), Delta::set("/a", json!([1])), json!({ "a": [1] })),
        (json!({ "l": [1, 2] }), Delta::set("/l/1", 9), json!({ "l": [1, 9] })),
        (json!({ "a": 1 }), Delta::set("", json!(7)), json!(7)),
        (json!({ "a": 1, "b": 2 }), Delta::remove("/a"), json!({ "b": 2 })),
        (json!({ "a": 1 }), Delta::remove("/x/y"), json!({ "a": 1 })),
        (json!({ "l": [1, 2, 3] }), Delta::remove("/l/1"), json!({ "l": [1, 3] })),
        (json!({}), Delta::set("/a~1b/~0", 1), json!({ "a/b": { "~": 1 } })),
        (json!({}), Delta::set("/'; --/%", 1), json!({ "'; --": { "%": 1 } })),
        (json!({ "a": u64::MAX - 1 }), Delta::inc("/a", 1), json!({ "a": u64::MAX })),
    ];
    for (i, (from, delta, to)) in cases.into_iter().enumerate() {
        let k = key(&format!("s7-delta-{i}"));
        env.store.done(Batch::new().put(&k, Expect::Absent, payload(from.clone()))).await;
        let receipt = env.other.done(Batch::new().merge(&k, [delta.clone()])).await;
        assert_eq!(env.store.value(&k).await, Some(to.clone()), "{from} and {delta:?}");
        assert_eq!(receipt.documents[0].value, Some(payload(to)), "the receipt says what came out");
    }
}

/// A delta that does not fit is rejected with its path, and no part of the merge is applied. Documents only.
pub async fn s7_a_delta_that_does_not_fit_is_refused(env: &Env) {
    let cases = [
        (json!({ "a": "text" }), Delta::inc("/a", 1), "/a"),
        (json!({ "a": 1 }), Delta::push("/a", 1), "/a"),
        (json!({ "a": 1 }), Delta::set("/a/b", 1), "/a/b"),
        (json!({ "l": [] }), Delta::set("/l/0", 1), "/l/0"),
        (json!({ "a": u64::MAX }), Delta::inc("/a", 1), "/a"),
        (json!({ "a": i64::MIN }), Delta::inc("/a", -1), "/a"),
        (json!({}), Delta::set("no-slash", 1), "no-slash"),
    ];
    for (i, (value, delta, place)) in cases.into_iter().enumerate() {
        let k = key(&format!("s7-misfit-{i}"));
        env.store.done(Batch::new().put(&k, Expect::Absent, payload(value.clone()))).await;
        let merge = Batch::new().merge(&k, [Delta::set("/first", true), delta]);
        let refusal = env.other.refused(merge).await;
        assert_eq!(refusal.code().as_str(), "TL0207");
        assert!(matches!(&refusal, Refusal::Delta { path, index: 0, .. } if path == place), "{refusal:?}");
        assert_eq!(env.store.value(&k).await, Some(value));
        assert_eq!(env.store.doc(&k).await.unwrap().version, DocVersion(1));
    }
}

/// Deltas on a deleted record, or on one that never existed, return `NotFound` and create nothing. Documents only.
pub async fn s8_deltas_on_nothing_create_nothing(env: &Env) {
    let (never, deleted) = (key("s8-never"), key("s8-deleted"));
    env.store.done(Batch::new().put(&deleted, Expect::Absent, number(5))).await;
    env.other.done(Batch::new().delete(&deleted, Expect::Any)).await;
    for k in [never, deleted] {
        let batch =
            Batch::new().put(&key("s8-beside"), Expect::Any, number(1)).merge(&k, [Delta::inc("/n", 1)]);
        let refusal = env.store.refused(batch).await;
        assert_eq!(refusal, Refusal::NotFound { index: 1, key: k.clone() });
        assert_eq!(env.store.doc(&k).await, None);
    }
    assert_eq!(env.store.doc(&key("s8-beside")).await, None);
    let receipt = env
        .store
        .done(Batch::new().merge_or_create(&key("s8-deleted"), number(1), [Delta::inc("/n", 1)]))
        .await;
    assert_eq!(
        receipt.documents[0].version,
        DocVersion(3),
        "the document is created on request, and its version continues"
    );
    assert_eq!(env.other.value(&key("s8-deleted")).await, Some(json!({ "n": 2 })));
}

/// Deletes race with deltas. Every acknowledged delta applied to a document, and no delta revives one. Documents only.
pub async fn s8_deltas_and_a_delete_race(env: &Env) {
    for connections in ONE_AND_TWO {
        let k = key(&format!("s8-race-{connections}"));
        env.store.done(Batch::new().put(&k, Expect::Absent, number(0))).await;
        let work = |i: usize, conn: Conn| {
            let batch = Batch::new();
            let batch = if i == 3 {
                batch.delete(&k, Expect::Exists)
            } else {
                batch.merge(&k, [Delta::inc("/n", 1)])
            };
            async move { conn.apply(batch).await }
        };
        let answers = env.race(connections, 8, work).await;
        let deleted = answers[3].as_ref().unwrap().documents[0].version;
        for (i, answer) in answers.into_iter().enumerate().filter(|(i, _)| *i != 3) {
            match answer {
                Ok(receipt) => {
                    assert!(receipt.documents[0].version < deleted, "task {i} wrote after the delete")
                }
                Err(error) => assert!(matches!(refusal(Err(error)), Refusal::NotFound { .. })),
            }
        }
        assert_eq!(env.other.doc(&k).await, None, "nothing is left");
    }
}

/// A caller that was cancelled during a write learns the outcome by its operation id. Documents only.
pub async fn s11_an_operation_id_resolves_the_outcome(env: &Env) {
    let k = key("s11");
    env.store.done(Batch::new().put(&k, Expect::Absent, number(0))).await;
    let mut applied = 0;
    for round in 0..20_u32 {
        let id = OpId::new();
        let batch = || Batch::new().merge(&k, [Delta::inc("/n", 1)]).op_id(id);
        let conn = env.store.clone();
        let sent = batch();
        // The caller is dropped after a few polls: the write may or may not have happened.
        let caller = tokio::spawn(async move { drop(conn.apply(sent).await) });
        for _ in 0..round % 5 {
            tokio::task::yield_now().await;
        }
        caller.abort();
        let _ = caller.await;
        // A retry under the same id resolves it, on any connection, and a lookup agrees.
        let receipt = env.other.done(batch()).await;
        applied += 1;
        let asked = env.other.operation(id).await.unwrap().unwrap();
        assert_eq!(asked.documents, receipt.into_repeated().documents);
        assert_eq!(
            env.other.value(&k).await,
            Some(json!({ "n": applied })),
            "round {round}: applied exactly once"
        );
    }
    assert_eq!(
        env.store.operation(OpId::new()).await.unwrap(),
        None,
        "an id that was never used was not applied"
    );
}
