//! Exact numbers in merges (D16): untouched numbers keep their text, and additions are exact or rejected.

use tidelock_core::payload::Payload;

use crate::prelude::*;

const BEFORE: &str = r#"{"big":12345678901234567.89,"tiny":1e-400,"id":123456789012345678901,"list":[1.50,0.1],"n":9007199254740993}"#;

/// Returns the text of a document.
async fn text(conn: &Conn, document: &Key) -> String {
    conn.doc(document).await.unwrap().value.to_string()
}

fn fraction(path: &str, by: f64) -> Delta {
    Delta::Inc { path: path.to_owned(), by: serde_json::Number::from_f64(by).unwrap() }
}

/// Fractions and long numbers beside the target of a merge keep every digit, in the row and in the receipt. Documents
/// only.
pub async fn d16_a_merge_preserves_numbers_that_it_does_not_touch(env: &Env) {
    let document = key("d16-beside");
    env.store.done(Batch::new().put(&document, Expect::Absent, Payload::from_json(BEFORE).unwrap())).await;
    let deltas =
        [Delta::inc("/n", 1), Delta::push("/list", 3), Delta::set("/new", "x"), Delta::remove("/none")];
    let receipt = env.other.done(Batch::new().merge(&document, deltas)).await;
    let after = r#"{"big":12345678901234567.89,"tiny":1e-400,"id":123456789012345678901,"list":[1.50,0.1,3],"n":9007199254740994,"new":"x"}"#;
    assert_eq!(receipt.documents[0].value.as_ref().map(Payload::as_str), Some(after));
    assert_eq!(text(&env.store, &document).await, after);
    assert_eq!(text(&env.connect().await, &document).await, after);
}

/// A sum that no reader could read back unchanged is rejected, and nothing changes. Documents only.
pub async fn d16_a_sum_that_cannot_be_exact_is_refused(env: &Env) {
    let document = key("d16-sum");
    env.store.done(Batch::new().put(&document, Expect::Absent, Payload::from_json(BEFORE).unwrap())).await;
    for delta in [
        fraction("/n", 0.5),
        Delta::inc("/big", 1),
        Delta::inc("/tiny", 1),
        Delta::inc("/id", 1),
        fraction("/n", 1e300),
    ] {
        let refusal = env.store.refused(Batch::new().merge(&document, [delta])).await;
        let Refusal::Delta { needed, .. } = refusal else { panic!("{refusal}") };
        assert_eq!(needed, "a sum that is exact");
    }
    assert_eq!(text(&env.other, &document).await, BEFORE);
}

/// Decimals add exactly, even in a race. Documents only.
pub async fn d16_decimals_add_exactly(env: &Env) {
    for connections in crate::env::ONE_AND_TWO {
        let document = key(&format!("d16-cents-{connections}"));
        env.store
            .done(Batch::new().put(&document, Expect::Absent, Payload::from_json("0.00").unwrap()))
            .await;
        let added = env.race(connections, 8, |_, conn| {
            let document = document.clone();
            async move {
                for _ in 0..5 {
                    conn.done(Batch::new().merge(&document, [fraction("", 0.1)])).await;
                }
            }
        });
        added.await;
        assert_eq!(text(&env.store, &document).await, "4.00");
    }
}
