//! Idempotency keys at the level of the store (I1–I5): an idempotency record is a document with an expiry.

use crate::env::ONE_AND_TWO;
use crate::prelude::*;

const LASTS: Duration = Duration::from_secs(3_600);
/// The time for which a request may be in flight before its key is free again.
const IN_FLIGHT: Duration = Duration::from_secs(30);

fn begin(k: &Key, request: &str) -> Batch {
    let record = payload(json!({ "request": request, "state": "in flight" }));
    Batch::new().put_until(k, Expect::Absent, record, Due::After(IN_FLIGHT))
}

/// Returns the effect of the handler and the stored response, in one batch.
fn end(k: &Key, version: DocVersion, request: &str) -> Batch {
    let record = payload(json!({ "request": request, "state": "done", "status": 201, "body": "made" }));
    let batch = Batch::new().merge_or_create(&key("orders"), number(0), [Delta::inc("/n", 1)]);
    batch.put_until(k, Expect::Exact(version), record, Due::After(LASTS))
}

/// Of concurrent requests with one key, one runs. The others learn that it is in flight. Documents only.
pub async fn i1_one_request_runs(env: &Env) {
    for connections in ONE_AND_TWO {
        let k = key(&format!("i1-{connections}"));
        let work = |_: usize, conn: Conn| {
            let batch = begin(&k, "a");
            async move { conn.apply(batch).await }
        };
        let (_, losers) = one_winner(env.race(connections, 6, work).await);
        for loser in losers {
            let value: serde_json::Value = present(loser).value.parse().unwrap();
            assert_eq!(value["state"], json!("in flight"));
        }
    }
}

/// A finished request returns the stored response with the refusal, also after a restart and from another instance.
/// Documents only.
pub async fn i2_the_stored_response_is_repeated(env: &Env) {
    let k = key("i2");
    env.store.done(begin(&k, "a")).await;
    env.store.done(end(&k, DocVersion(1), "a")).await;
    let answered = |loser: Refusal| {
        let value: serde_json::Value = present(loser).value.parse().unwrap();
        assert_eq!((&value["status"], &value["body"]), (&json!(201), &json!("made")));
    };
    answered(env.store.refused(begin(&k, "a")).await);
    answered(env.other.refused(begin(&k, "a")).await);
    if env.capabilities().durable {
        answered(env.restart().await.refused(begin(&k, "a")).await);
    }
}

/// With another payload under the same key, the loser can compare, because the refusal contains the record. Documents
/// only.
pub async fn i3_another_payload_is_noticed(env: &Env) {
    let k = key("i3");
    env.store.done(begin(&k, "a")).await;
    let value: serde_json::Value = present(env.other.refused(begin(&k, "b")).await).value.parse().unwrap();
    assert_eq!(value["request"], json!("a"));
}

/// If the handler failed before any effect, or the process died, the key is usable again. Documents only.
pub async fn i4_a_failed_request_frees_its_key(env: &Env) {
    let k = key("i4");
    env.store.done(begin(&k, "a")).await;
    env.store.done(Batch::new().delete(&k, doc_at(1))).await;
    env.other.done(begin(&k, "a")).await;
    let started = env.other.doc(&k).await.unwrap().version;
    env.pass(IN_FLIGHT);
    env.store.done(begin(&k, "a")).await;
    // A process returns after its record has expired: its response and its effect are rejected together.
    document_conflict(env.other.refused(end(&k, started, "a")).await);
    assert_eq!(env.store.doc(&key("orders")).await, None, "no effect without its record");
    env.store.done(end(&k, DocVersion(started.0 + 1), "a")).await;
    assert_eq!(env.other.value(&key("orders")).await, Some(json!({ "n": 1 })));
}

/// After the time to live, the request runs again. Documents only.
pub async fn i5_after_its_time_a_key_runs_again(env: &Env) {
    let k = key("i5");
    env.store.done(begin(&k, "a")).await;
    env.store.done(end(&k, DocVersion(1), "a")).await;
    env.pass(LASTS - TICK);
    env.other.refused(begin(&k, "a")).await;
    env.pass(TICK);
    env.other.done(begin(&k, "a")).await;
    env.other.done(end(&k, DocVersion(3), "a")).await;
    assert_eq!(env.store.value(&key("orders")).await, Some(json!({ "n": 2 })));
}
