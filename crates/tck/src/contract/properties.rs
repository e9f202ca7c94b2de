//! Property tests on whole histories: random batches whose invariants must hold, and the differential run against the
//! reference.

use std::collections::BTreeMap;

use crate::env::ONE_AND_TWO;
use crate::prelude::*;
use crate::rng::Rng;
use crate::{differential, run};

/// Seeded sequences of batches, claims, clock moves and sweeps have the same answers as on the reference store.
pub async fn t6_random_histories_agree_with_the_reference(env: &Env) {
    differential::check(env.backend.as_ref()).await;
}

/// Random batches from two connections at once leave versions without gaps, and every number only increases.
pub async fn o4_random_batches_keep_every_number_rising(env: &Env) {
    let seed = run::seed();
    let work = |i: usize, conn: Conn| async move {
        let mut rng = Rng::new(seed.wrapping_add(i as u64));
        let mut versions: BTreeMap<Key, DocVersion> = BTreeMap::new();
        for n in 0..40 {
            let target = key(&format!("o4-{}", rng.below(3)));
            let mut batch = Batch::new();
            if rng.one_in(2) {
                batch = batch.append(&target, Expect::Any, events(rng.below(3)));
            }
            batch = match rng.below(4) {
                0 => batch.put(&target, Expect::Any, number(n)),
                1 => batch.merge_or_create(&target, number(0), [Delta::inc("/n", 1)]),
                2 => batch.delete(&target, Expect::Any),
                _ => batch.guard_stream(&key("o4-none"), Expect::Exists),
            };
            let Ok(receipt) = conn.apply(batch).await else { continue };
            for written in receipt.documents {
                let before = versions.insert(written.key, written.version);
                assert!(before.is_none_or(|before| before <= written.version), "seed {seed}: a version fell");
            }
        }
    };
    env.race(2, 8, work).await;
    for i in 0..3 {
        let history = env.other.history(&key(&format!("o4-{i}"))).await;
        assert!(history.iter().enumerate().all(|(i, e)| e.version.0 == i as u64), "seed {seed}: a hole");
        assert!(history.is_sorted_by(|a, b| a.position < b.position), "seed {seed}");
    }
}

/// The result of one compare-and-swap or merge.
#[derive(Debug)]
struct Step {
    version: DocVersion,
    value: i64,
}

/// Concurrent compare-and-swaps and merges on one document have one order: each version once, each value one more.
/// Documents only.
pub async fn s7_a_counter_is_linearizable(env: &Env) {
    const TASKS: usize = 8;
    const STEPS: usize = 10;
    for connections in ONE_AND_TWO {
        let k = key(&format!("s7-linear-{connections}"));
        env.store.done(Batch::new().put(&k, Expect::Absent, number(0))).await;
        let work = |i: usize, conn: Conn| {
            let k = k.clone();
            async move {
                let mut steps = Vec::new();
                for n in 0..STEPS {
                    steps.push(if (i + n).is_multiple_of(2) {
                        add_by_merge(&conn, &k).await
                    } else {
                        add_by_cas(&conn, &k).await
                    });
                }
                steps
            }
        };
        let histories = env.race(connections, TASKS, work).await;
        for own in &histories {
            assert!(own.is_sorted_by(|a, b| a.version < b.version), "a task sees its own steps in order");
        }
        let mut all: Vec<Step> = histories.into_iter().flatten().collect();
        all.sort_by_key(|step| step.version);
        assert_eq!(all.len(), TASKS * STEPS);
        for (i, step) in all.iter().enumerate() {
            let expected = (DocVersion(i as u64 + 2), i as i64 + 1);
            assert_eq!(
                (step.version, step.value),
                expected,
                "step {i}: a value was lost or a version given twice"
            );
        }
    }
}

async fn add_by_merge(conn: &Conn, k: &Key) -> Step {
    let written = conn.done(Batch::new().merge(k, [Delta::inc("/n", 1)])).await.documents.remove(0);
    let value: serde_json::Value = written.value.expect("a merge says what it arrived at").parse().unwrap();
    Step { version: written.version, value: value["n"].as_i64().unwrap() }
}

async fn add_by_cas(conn: &Conn, k: &Key) -> Step {
    loop {
        let current = conn.doc(k).await.unwrap();
        let value: serde_json::Value = current.value.parse().unwrap();
        let next = value["n"].as_i64().unwrap() + 1;
        tokio::task::yield_now().await;
        if let Ok(receipt) =
            conn.apply(Batch::new().put(k, Expect::Exact(current.version), number(next))).await
        {
            return Step { version: receipt.documents[0].version, value: next };
        }
    }
}

/// With random claims, renewals, acknowledgements and expiry, no two workers hold a row at once, and fences only
/// increase.
pub async fn k7_random_claims_never_overlap(env: &Env) {
    let seed = run::seed();
    let mut rng = Rng::new(seed);
    for i in 0..6 {
        env.store.done(enqueue(standing(&format!("k7-{i}")))).await;
    }
    let mut held: BTreeMap<Key, (String, Grant)> = BTreeMap::new();
    let mut last = tidelock_core::id::Fence(0);
    for step in 0..150 {
        let conn = if rng.one_in(2) { &env.store } else { &env.other };
        let who = format!("w{}", rng.below(3));
        match rng.below(5) {
            0 => env.pass(secs(rng.below(12) as u64)),
            1 | 2 => {
                for grant in conn.claim_lane(&who, "jobs", 1 + rng.below(3)).await {
                    if let Some((_, before)) = held.get(&grant.row.key) {
                        let until = before.row.lease.as_ref().unwrap().until;
                        assert!(until.has_come(env.now()), "seed {seed}, step {step}: taken before its end");
                    }
                    assert!(grant.fence > last, "seed {seed}, step {step}: {} after {last}", grant.fence);
                    last = grant.fence;
                    held.insert(grant.row.key.clone(), (who.clone(), grant));
                }
            }
            _ => {
                let Some((_, (_, grant))) = held.pop_first() else { continue };
                let batch = Batch::new();
                let lease = grant.lease();
                let batch = match rng.below(3) {
                    0 => batch.release(&lease),
                    1 => batch.fail(&lease, "no", Due::After(secs(3))),
                    _ => batch.ack(&lease).enqueue(NewWork::standing(lease.key.clone(), jobs())),
                };
                conn.done(batch).await;
            }
        }
    }
}
