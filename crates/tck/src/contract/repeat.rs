//! Idempotent batches (T9 and T10): repetition by operation id or by event ids.

use crate::env::ONE_AND_TWO;
use crate::prelude::*;
use crate::process::{Process, Task};

/// A repeated operation id, also from another connection, returns the first receipt and has one effect.
pub async fn t9_same_op_id_returns_the_first_receipt(env: &Env) {
    let (k, stream, id) = (key("t9"), key("t9-s"), OpId::new());
    let batch = || {
        let batch = Batch::new().merge_or_create(&k, number(0), [Delta::inc("/n", 1)]);
        batch.append(&stream, Expect::Any, events(2)).enqueue(job("t9-job")).op_id(id)
    };
    assert_eq!(env.store.operation(id).await.unwrap(), None);
    let first = env.store.done(batch()).await;
    assert!(!first.repeated);
    env.pass(secs(1));
    for conn in [&env.store, &env.other] {
        let again = conn.done(batch()).await;
        assert_eq!(again, first.clone().into_repeated());
        let asked = conn.operation(id).await.unwrap().unwrap();
        assert_eq!(asked, first.clone().into_repeated(), "the record of the operation has the same receipt");
    }
    assert_eq!(env.store.value(&k).await, Some(json!({ "n": 1 })));
    assert_eq!(env.store.history(&stream).await.len(), 2);
}

/// The id decides, not the content: another batch under the same id is not applied. Documents only.
pub async fn t9_the_id_decides_not_the_content(env: &Env) {
    let id = OpId::new();
    let first = env.store.done(Batch::new().put(&key("t9-a"), Expect::Absent, number(1)).op_id(id)).await;
    let other = env.other.done(Batch::new().put(&key("t9-b"), Expect::Absent, number(1)).op_id(id)).await;
    assert_eq!(other.documents, first.documents);
    assert_eq!(env.store.doc(&key("t9-b")).await, None);
}

/// Many concurrent batches under one operation id are applied once, and all callers get the first receipt. Documents
/// only.
pub async fn t9_racing_repetitions_have_one_effect(env: &Env) {
    for connections in ONE_AND_TWO {
        let (k, id) = (key(&format!("t9-race-{connections}")), OpId::new());
        let work = |_: usize, conn: Conn| {
            let batch = Batch::new().merge_or_create(&k, number(0), [Delta::inc("/n", 1)]).op_id(id);
            async move { conn.done(batch).await }
        };
        let receipts = env.race(connections, 8, work).await;
        assert_eq!(receipts.iter().filter(|receipt| !receipt.repeated).count(), 1, "{receipts:?}");
        let versions = receipts.iter().map(|receipt| receipt.documents[0].version);
        assert!(versions.eq(std::iter::repeat_n(DocVersion(1), receipts.len())), "{receipts:?}");
        assert_eq!(env.other.value(&k).await, Some(json!({ "n": 1 })));
    }
}

/// A rejected batch is not recorded: under the same id it may succeed later. Documents only.
pub async fn t9_a_refused_batch_leaves_its_id_free(env: &Env) {
    let (k, id) = (key("t9-refused"), OpId::new());
    let batch = || Batch::new().put(&k, Expect::Exists, number(2)).op_id(id);
    env.store.refused(batch()).await;
    assert_eq!(env.other.operation(id).await.unwrap(), None);
    env.store.done(Batch::new().put(&k, Expect::Absent, number(1))).await;
    assert!(!env.other.done(batch()).await.repeated);
    assert!(env.store.done(batch()).await.repeated);
}

/// The first receipt of a merge contains its value. The stored one does not, on any connection. Documents only.
pub async fn t9_stored_receipts_hold_no_values(env: &Env) {
    let (k, id) = (key("t9-values"), OpId::new());
    let batch = || Batch::new().merge_or_create(&k, number(0), [Delta::inc("/n", 1)]).op_id(id);
    let first = env.store.done(batch()).await;
    assert_eq!(first.documents[0].value, Some(number(1)), "the caller need not read again");
    for conn in [&env.store, &env.other] {
        let again = conn.done(batch()).await;
        assert_eq!(
            (again.documents[0].version, &again.documents[0].value),
            (first.documents[0].version, &None)
        );
        assert_eq!(conn.operation(id).await.unwrap(), Some(again.clone()));
        assert_eq!(conn.resolve(id).await.unwrap(), Resolution::Applied(again));
    }
}

/// Operation ids survive a restart. Documents only.
pub async fn t9_op_ids_survive_a_restart(env: &Env) {
    if !env.capabilities().durable {
        return;
    }
    let (k, id) = (key("t9-restart"), OpId::new());
    let batch = || Batch::new().merge_or_create(&k, number(0), [Delta::inc("/n", 1)]).op_id(id);
    let first = env.store.done(batch()).await;
    let store = env.restart().await;
    assert_eq!(store.operation(id).await.unwrap(), Some(first.clone().into_repeated()));
    assert_eq!(store.done(batch()).await, first.into_repeated());
    assert_eq!(store.value(&k).await, Some(json!({ "n": 1 })));
}

/// The same operation id from several processes at once has one effect. Documents only.
pub async fn t9_processes_share_operation_ids(env: &Env) {
    let (true, Some(address)) = (env.capabilities().processes, env.address().await) else { return };
    let id = OpId::new();
    let mut children = Vec::new();
    for _ in 0..4 {
        let task = Task::Operation { name: "t9-processes".to_owned(), id };
        children.push(Process::start(env.backend.as_ref(), &address, task).await);
    }
    for child in &mut children {
        child.go().await;
    }
    let mut first = 0;
    for child in children {
        first += child.finish::<bool>().await.into_iter().filter(|repeated| !repeated).count();
    }
    assert_eq!(first, 1, "exactly one process applied it");
    assert_eq!(env.store.value(&key("t9-processes")).await, Some(json!({ "n": 1 })));
}

/// Repeated event ids return the first receipt, whatever the batch expects of the stream, and append no second event.
pub async fn t10_same_event_ids_return_the_first_receipt(env: &Env) {
    let (stream, batch) = (key("t10"), events(3));
    let append = |expect| Batch::new().append(&stream, expect, batch.clone());
    let first = env.store.done(append(Expect::Absent)).await;
    env.pass(secs(5));
    env.store.done(Batch::new().append(&stream, at(2), events(2))).await;
    for conn in [&env.store, &env.other] {
        for expect in [Expect::Absent, Expect::Any, at(2), at(99), Expect::Exists] {
            let again = conn.done(append(expect)).await;
            assert_eq!(again, first.clone().into_repeated(), "expecting {expect:?}");
        }
    }
    assert_eq!(env.store.history(&stream).await.len(), 5);
}

/// Several appends in one batch are recognised together, even if the stream was closed since.
pub async fn t10_several_streams_are_recognised_together(env: &Env) {
    let (a, b) = (key("t10-a"), key("t10-b"));
    let (of_a, of_b) = (events(2), events(1));
    let batch =
        || Batch::new().append(&a, Expect::Absent, of_a.clone()).append(&b, Expect::Absent, of_b.clone());
    let first = env.store.done(batch()).await;
    env.store.done(Batch::new().close(&a, Expect::Any)).await;
    assert_eq!(env.other.done(batch()).await, first.into_repeated());
}

/// An append without events leaves no trace, so it does not keep the others from being recognised.
pub async fn t10_empty_appends_are_passed_over(env: &Env) {
    let (a, b, list) = (key("t10-full"), key("t10-empty"), events(2));
    let noted = |e: NewEvent| NewEvent { meta: number(1), correlation: Some("c".to_owned()), ..e };
    let list: Vec<NewEvent> = list.into_iter().map(noted).collect();
    let batch = || {
        let batch = Batch::new().append(&b, Expect::Any, []).append(&a, Expect::Absent, list.clone());
        batch.append(&b, Expect::Any, [])
    };
    let first = env.store.done(batch()).await;
    assert_eq!(env.other.done(batch()).await, first.into_repeated());
    assert_eq!(env.store.history(&a).await.len(), 2);
}

/// A part of an earlier append is also recognised, and the receipt contains its versions and positions.
pub async fn t10_a_stretch_of_an_append_is_recognised(env: &Env) {
    let (stream, all) = (key("t10-part"), events(5));
    let first = env.store.done(Batch::new().append(&stream, Expect::Absent, all.clone())).await;
    let again = env.other.done(Batch::new().append(&stream, Expect::Any, all[1..4].to_vec())).await;
    let (appended, whole) = (&again.appended[0], &first.appended[0]);
    assert!(again.repeated);
    assert_eq!((appended.first_version, appended.last_version), (StreamVersion(1), StreamVersion(3)));
    assert!(appended.first_position > whole.first_position && appended.last_position < whole.last_position);
}

/// A reused id with other content, in another stream, in another order or only in part is an error that names it.
pub async fn t10_reused_event_ids_are_refused(env: &Env) {
    let (stream, all) = (key("t10-reuse"), events(3));
    env.store.done(Batch::new().append(&stream, Expect::Absent, all.clone())).await;
    let (a, b, c) = (all[0].clone(), all[1].clone(), all[2].clone());
    let other_payload = event("Happened", 99).with_id(b.id);
    let other_type = NewEvent { event_type: event_type("Otherwise"), ..b.clone() };
    let new = || event("Happened", 7);
    let cases: Vec<(&str, Key, Vec<NewEvent>, EventId)> = vec![
        ("payload", stream.clone(), vec![other_payload], b.id),
        ("type", stream.clone(), vec![other_type], b.id),
        ("note", stream.clone(), vec![NewEvent { meta: number(1), ..b.clone() }], b.id),
        ("correlation", stream.clone(), vec![NewEvent { correlation: Some("c".into()), ..b.clone() }], b.id),
        ("stream", key("t10-elsewhere"), vec![b.clone()], b.id),
        ("order", stream.clone(), vec![b.clone(), a.clone()], a.id),
        ("gap", stream.clone(), vec![a.clone(), c.clone()], c.id),
        ("some are new", stream.clone(), vec![c.clone(), new()], c.id),
        ("new ones first", stream.clone(), vec![new(), a.clone()], a.id),
    ];
    let before = Dump::of(&env.store).await;
    for (what, target, list, blamed) in cases {
        for expect in [Expect::Any, at(2)] {
            let refusal = env.other.refused(Batch::new().append(&target, expect, list.clone())).await;
            assert_eq!(refusal.code().as_str(), "TL0208", "{what}: {refusal:?}");
            let Refusal::EventIdReused { id, stream: found, .. } = refusal else { panic!("{what}") };
            assert_eq!((id, &found), (blamed, &stream), "{what}");
        }
        assert_eq!(Dump::of(&env.store).await, before, "{what}");
    }
}

/// A repeated append in a batch with other effects is rejected, because it is unknown whether those were applied.
pub async fn t10_repeating_mixed_batches_needs_an_op_id(env: &Env) {
    let (stream, list, doc) = (key("t10-mixed"), events(1), key("t10-doc"));
    env.store.done(Batch::new().append(&stream, Expect::Any, list.clone())).await;
    let mixed = Batch::new().put(&doc, Expect::Any, number(1)).append(&stream, Expect::Any, list.clone());
    let refusal = env.other.refused(mixed).await;
    let Refusal::EventIdReused { index, id, .. } = refusal else { panic!("{refusal:?}") };
    assert_eq!((index, id), (1, list[0].id));
    assert_eq!(env.store.doc(&doc).await, None, "nothing of it was applied");
}

/// A duplicate id within a batch is rejected before any lookup.
pub async fn t10_an_id_twice_in_one_batch_is_refused(env: &Env) {
    let one = event("Happened", 1);
    let twice = Batch::new().append(&key("t10-x"), Expect::Any, [one.clone()]);
    let twice = twice.append(&key("t10-y"), Expect::Any, [one.clone()]);
    let refusal = env.store.refused(twice).await;
    assert!(matches!(refusal, Refusal::EventIdReused { index: 1, id, .. } if id == one.id), "{refusal:?}");
    assert!(env.store.log().await.is_empty());
}

/// The same append from many tasks at once appends one set of events, and all tasks get the same numbers.
pub async fn t10_racing_repetitions_append_once(env: &Env) {
    for connections in ONE_AND_TWO {
        for expect in [Expect::Absent, Expect::Any] {
            let stream = key(&format!("t10-race-{connections}-{expect:?}"));
            let list = events(3);
            let work = |_: usize, conn: Conn| {
                let batch = Batch::new().append(&stream, expect, list.clone());
                async move { conn.done(batch).await }
            };
            let receipts = env.race(connections, 8, work).await;
            assert_eq!(receipts.iter().filter(|receipt| !receipt.repeated).count(), 1, "{receipts:?}");
            assert!(receipts.iter().all(|receipt| receipt.appended == receipts[0].appended));
            assert_eq!(env.other.history(&stream).await.len(), 3);
        }
    }
}

/// Event ids survive a restart.
pub async fn t10_event_ids_survive_a_restart(env: &Env) {
    if !env.capabilities().durable {
        return;
    }
    let (stream, list) = (key("t10-restart"), events(2));
    let batch = || Batch::new().append(&stream, Expect::Absent, list.clone());
    let first = env.store.done(batch()).await;
    let store = env.restart().await;
    assert_eq!(store.done(batch()).await, first.into_repeated());
}
