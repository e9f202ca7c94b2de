//! Read-modify-write on one document at the level of the store (X1–X5).

use super::state::compare_and_increment;
use crate::env::ONE_AND_TWO;
use crate::prelude::*;

/// A batch that is never sent writes nothing, and the next one runs. Documents only.
pub async fn x1_a_failed_transaction_lets_the_next_run(env: &Env) {
    let k = key("x1");
    env.store.done(Batch::new().put(&k, Expect::Absent, number(1))).await;
    drop(env.store.apply(Batch::new().put(&k, Expect::Any, number(9))));
    assert_eq!(
        env.other.value(&k).await,
        Some(json!({ "n": 1 })),
        "a future that is never polled does nothing"
    );
    env.store.done(Batch::new().put(&k, doc_at(1), number(2))).await;
}

/// A failed write is an error. The state is unchanged, and the next write succeeds. Documents only.
pub async fn x2_a_failed_write_leaves_the_state(env: &Env) {
    let k = key("x2");
    env.store.done(Batch::new().put(&k, Expect::Absent, number(1))).await;
    let huge = payload(json!("x".repeat(limits::PAYLOAD_BYTES)));
    let error = env.store.apply(Batch::new().put(&k, doc_at(1), huge)).await.unwrap_err();
    assert_eq!((error.outcome(), error.retry()), (Outcome::NotApplied, Retry::Never));
    let document = env.other.doc(&k).await.unwrap();
    assert_eq!((document.version, document.value), (DocVersion(1), number(1)));
    env.store.done(Batch::new().put(&k, doc_at(1), number(2))).await;
    assert_eq!(env.other.value(&k).await, Some(json!({ "n": 2 })));
}

/// Reads never write: versions and times stay, however often a document is read. Documents only.
pub async fn x3_reading_writes_nothing(env: &Env) {
    let k = key("x3");
    env.store.done(Batch::new().put(&k, Expect::Absent, number(1))).await;
    let first = env.store.doc(&k).await;
    for _ in 0..5 {
        env.pass(secs(1));
        assert_eq!(env.store.doc(&k).await, first);
        assert_eq!(env.other.doc(&k).await, first);
    }
    assert_eq!(first.unwrap().version, DocVersion(1));
}

/// N concurrent read-modify-writes have N effects. Documents only.
pub async fn x5_n_read_modify_writes_have_n_effects(env: &Env) {
    for connections in ONE_AND_TWO {
        let k = key(&format!("x5-{connections}"));
        env.store.done(Batch::new().put(&k, Expect::Absent, number(0))).await;
        let work = |_: usize, conn: Conn| {
            let k = k.clone();
            async move {
                for _ in 0..5 {
                    compare_and_increment(&conn, &k).await;
                }
            }
        };
        env.race(connections, 10, work).await;
        let document = env.other.doc(&k).await.unwrap();
        assert_eq!((document.version, document.value), (DocVersion(51), number(50)));
    }
}

/// A value that a program cannot decode is stored and returned unchanged. Documents only.
pub async fn x7_unknown_records_are_kept(env: &Env) {
    let (k, odd) = (key("x7"), payload(json!({ "schema": 99, "items": [{ "?": [null] }, 1, "x"] })));
    env.store.done(Batch::new().put(&k, Expect::Absent, odd.clone())).await;
    env.other.done(Batch::new().merge(&k, [Delta::set("/seen", true)])).await;
    let value = env.store.value(&k).await.unwrap();
    assert_eq!(value["items"], json!([{ "?": [null] }, 1, "x"]));
    assert_eq!(value["schema"], json!(99));
}
