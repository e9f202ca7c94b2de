//! Resolution of unknown outcomes (D4).

use crate::env::ONE_AND_TWO;
use crate::prelude::*;

fn deposit(account: &Key, id: OpId) -> Batch {
    Batch::new().merge_or_create(account, number(0), [Delta::inc("/n", 1)]).op_id(id)
}

/// Resolving an applied batch returns its receipt, on every connection, and changes nothing. Documents only.
pub async fn d4_resolve_returns_the_receipt_of_an_applied_batch(env: &Env) {
    let (k, id) = (key("d4-applied"), OpId::new());
    let first = env.store.done(deposit(&k, id)).await;
    for conn in [&env.store, &env.other] {
        assert_eq!(conn.resolve(id).await.unwrap(), Resolution::Applied(first.clone().into_repeated()));
        assert_eq!(conn.done(deposit(&k, id)).await, first.clone().into_repeated());
    }
    assert_eq!(env.store.value(&k).await, Some(json!({ "n": 1 })));
}

/// Resolving an id without a batch makes it void: a later batch under that id is rejected. Documents only.
pub async fn d4_a_void_id_is_refused(env: &Env) {
    let (k, id) = (key("d4-void"), OpId::new());
    assert_eq!(env.store.resolve(id).await.unwrap(), Resolution::NotApplied);
    for conn in [&env.store, &env.other] {
        let refusal = conn.refused(deposit(&k, id)).await;
        assert_eq!(refusal, Refusal::OperationVoid { id });
        assert_eq!((refusal.code().as_str(), refusal.outcome()), ("TL0213", Outcome::NotApplied));
        assert_eq!(conn.resolve(id).await.unwrap(), Resolution::NotApplied);
        assert_eq!(conn.operation(id).await.unwrap(), None, "there is no receipt");
    }
    assert_eq!(env.store.doc(&k).await, None, "nothing was applied");
    assert!(!env.other.done(deposit(&k, OpId::new())).await.repeated, "a new id is free");
}

/// A void id rejects a batch of every noun, even one that the store decides from its cache.
pub async fn d4_a_void_id_is_refused_for_every_noun(env: &Env) {
    let (stream, k, id) = (key("d4-stream"), key("d4-doc"), OpId::new());
    // The connection has cached the rows, so that it may decide from its cache.
    let all = |id: OpId, expect| {
        let batch = Batch::new().append(&stream, expect, events(2)).enqueue(job(&format!("d4-{id}")));
        batch.merge_or_create(&k, number(0), [Delta::inc("/n", 1)]).op_id(id)
    };
    env.store.done(all(OpId::new(), Expect::Absent)).await;
    env.other.resolve(id).await.unwrap();
    let before = Dump::of(&env.other).await;
    assert_eq!(env.store.refused(all(id, at(1))).await, Refusal::OperationVoid { id });
    assert_eq!(env.store.refused(all(id, at(7))).await, Refusal::OperationVoid { id }, "before any other");
    assert_eq!(Dump::of(&env.other).await, before);
}

/// A void id stays void over a restart, and a receipt stays a receipt. Documents only.
pub async fn d4_a_void_id_survives_a_restart(env: &Env) {
    if !env.capabilities().durable {
        return;
    }
    let (k, void, applied) = (key("d4-restart"), OpId::new(), OpId::new());
    let first = env.store.done(deposit(&k, applied)).await;
    env.store.resolve(void).await.unwrap();
    let store = env.restart().await;
    assert_eq!(store.refused(deposit(&k, void)).await, Refusal::OperationVoid { id: void });
    assert_eq!(store.resolve(void).await.unwrap(), Resolution::NotApplied);
    assert_eq!(store.resolve(applied).await.unwrap(), Resolution::Applied(first.into_repeated()));
}

/// A batch and resolves of its id run at the same time. All agree, and the batch takes effect once or not at all.
/// Documents only.
pub async fn d4_a_batch_in_flight_is_waited_for_or_made_impossible(env: &Env) {
    for connections in ONE_AND_TWO {
        for round in 0..20 {
            let (k, id) = (key(&format!("d4-race-{connections}-{round}")), OpId::new());
            let work = |n: usize, conn: Conn| {
                let batch = deposit(&k, id);
                async move {
                    for _ in 0..(n + round) % 4 {
                        tokio::task::yield_now().await;
                    }
                    match n {
                        0 => match conn.apply(batch).await {
                            Ok(receipt) => Resolution::Applied(receipt.into_repeated()),
                            Err(ApplyError::Refused(refusal)) => {
                                assert_eq!(*refusal, Refusal::OperationVoid { id });
                                Resolution::NotApplied
                            }
                            Err(error) => panic!("{error:?}"),
                        },
                        _ => conn.resolve(id).await.unwrap(),
                    }
                }
            };
            let told = env.race(connections, 4, work).await;
            assert!(told.iter().all(|resolution| *resolution == told[0]), "round {round}: {told:?}");
            let applied = matches!(told[0], Resolution::Applied(_));
            assert_eq!(env.store.value(&k).await, applied.then(|| json!({ "n": 1 })), "round {round}");
        }
    }
}

/// A client whose reply was lost resolves the id. If nothing was applied, it deposits under a new id. There is one
/// deposit, never two. Documents only.
pub async fn d4_a_lost_reply_leads_to_one_deposit(env: &Env) {
    let k = key("d4-deposit");
    for round in 0..60_u32 {
        let id = OpId::new();
        let (conn, sent) = (env.store.clone(), deposit(&k, id));
        let caller = tokio::spawn(async move { drop(conn.apply(sent).await) });
        for _ in 0..round % 6 {
            tokio::task::yield_now().await;
        }
        // The client is gone, and the batch may still be in flight.
        caller.abort();
        if env.other.resolve(id).await.unwrap() == Resolution::NotApplied {
            env.other.done(deposit(&k, OpId::new())).await;
        }
        let _ = caller.await;
    }
    // All batches in flight have arrived: this one follows them on the same connection.
    env.store.done(Batch::new().put(&key("d4-last"), Expect::Any, number(1))).await;
    env.store.done(Batch::new().merge(&k, [Delta::inc("/n", 0)])).await;
    assert_eq!(env.store.value(&k).await, Some(json!({ "n": 60 })), "one deposit for each round");
}

/// A void record is removed with the other operation records of its age. Documents only.
pub async fn d4_void_records_are_swept_by_age(env: &Env) {
    let (old, young) = (OpId::new(), OpId::new());
    env.store.resolve(old).await.unwrap();
    env.pass(secs(60));
    env.store.resolve(young).await.unwrap();
    let sweep = Sweep { operations_before: Some(env.now()), ..Sweep::default() };
    assert_eq!(env.other.sweep(sweep).await.unwrap(), Swept { operations: 1, ..Swept::default() });
    let k = key("d4-swept");
    assert!(!env.store.done(deposit(&k, old)).await.repeated, "a forgotten id can be used again");
    assert_eq!(env.store.refused(deposit(&k, young)).await, Refusal::OperationVoid { id: young });
}
