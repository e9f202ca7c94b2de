//! Workflows at the level of the store (W2–W20): run rows, journals and signals that change in one batch.

use crate::env::ONE_AND_TWO;
use crate::prelude::*;

fn runs() -> tidelock_core::id::QueueName {
    queue_name("runs")
}

/// Returns the start of a run: its record, the first entry of its journal and its work row, all or nothing.
fn start(name: &str, input: i64) -> Batch {
    let k = key(name);
    Batch::new()
        .put(&k, Expect::Absent, payload(json!({ "input": input, "status": "running" })))
        .append(&k, Expect::Absent, [event("Started", input)])
        .enqueue(NewWork { follow: Some(k.clone()), ..NewWork::standing(k, runs()) })
}

/// Returns a signal: it is durable once it is sent, and it wakes the run.
fn signal(name: &str, id: OpId) -> Batch {
    let k = key(name);
    let batch =
        Batch::new().guard_stream(&k, Expect::Exists).append(&k, Expect::Any, [event("Signalled", 1)]);
    batch.enqueue(NewWork { expect: Expect::Exists, ..NewWork::standing(k, runs()) }).op_id(id)
}

async fn drive(conn: &Conn, who: &str) -> Option<Grant> {
    let claim = Claim::queues(&owner(who), [runs()], 1, TTL).with_events(100);
    conn.claim(claim).await.unwrap().grants.pop()
}

/// A worker is killed inside step 3. The next worker gets the journal with steps 1 and 2, but not step 3.
pub async fn w2_the_journal_comes_with_the_grant(env: &Env) {
    env.store.done(start("w2", 1)).await;
    let first = drive(&env.store, "mortal").await.unwrap();
    for step in 1..=2 {
        let record = [event("StepDone", step)];
        env.store
            .done(Batch::new().guard_lease(&first.lease()).append(&key("w2"), Expect::Any, record))
            .await;
    }
    env.pass(TTL);
    let second = drive(&env.other, "next").await.unwrap();
    let types: Vec<&str> = second.events.iter().map(|e| e.event_type.as_str()).collect();
    assert_eq!(types, ["Started", "StepDone", "StepDone"]);
    let late =
        Batch::new().guard_lease(&first.lease()).append(&key("w2"), Expect::Any, [event("StepDone", 3)]);
    fenced(env.store.refused(late).await);
}

/// Right after start returns, the run exists and any worker can pick it up.
pub async fn w3_a_started_run_is_picked_up(env: &Env) {
    env.store.done(start("w3", 1)).await;
    let grant = drive(&env.other, "anybody").await.unwrap();
    assert_eq!((grant.row.key, grant.events.len()), (key("w3"), 1));
}

/// A wake-up while a worker holds the run is not lost when that worker dies, even if the run was idle before.
pub async fn w3_a_wake_is_not_lost_with_a_dead_driver(env: &Env) {
    env.store.done(start("w3-rest", 1)).await;
    let resting = drive(&env.store, "w").await.unwrap();
    env.store.done(Batch::new().ack(&resting.lease())).await;
    // Driven by name while it is idle; then a signal arrives; then the worker dies.
    env.store.take("mortal", &key("w3-rest")).await.unwrap();
    env.other.done(signal("w3-rest", OpId::new())).await;
    env.pass(TTL);
    let grant = drive(&env.other, "next").await.expect("the signal wakes the run once the lease has ended");
    assert_eq!(grant.events.len(), 2);
    // The wake-up also survives the death of the next worker.
    env.pass(TTL);
    let grant = drive(&env.store, "third").await.expect("still asked for");
    env.store.done(Batch::new().ack(&grant.lease())).await;
    env.pass(TTL);
    assert_eq!(drive(&env.store, "fourth").await, None, "done");
}

/// A wake-up while a worker holds a run with a distant timer precedes the timer when the worker dies.
pub async fn w3_a_wake_beats_a_far_timer_when_the_driver_dies(env: &Env) {
    env.store.done(enqueue(NewWork::standing(key("w3-far"), runs()).due(Due::After(secs(3_600))))).await;
    env.store.take("mortal", &key("w3-far")).await.unwrap();
    env.other.done(enqueue(NewWork::standing(key("w3-far"), runs()))).await;
    let claim = Claim::queues(&owner("next"), [runs()], 1, TTL);
    assert_eq!(env.other.claim(claim).await.unwrap().next_at, Some(env.now().after(TTL)));
    env.pass(TTL);
    assert!(drive(&env.other, "next").await.is_some());
}

/// The same id and input give the same run. Another input is an error that contains the existing run.
pub async fn w4_the_same_id_is_the_same_run(env: &Env) {
    for connections in ONE_AND_TWO {
        let name = format!("w4-{connections}");
        let work = |i: usize, conn: Conn| {
            let batch = start(&name, i as i64);
            async move { conn.apply(batch).await }
        };
        let (_, losers) = one_winner(env.race(connections, 6, work).await);
        let run = env.other.doc(&key(&name)).await.unwrap();
        assert!(
            losers.into_iter().all(|loser| present(loser) == run),
            "the loser compares inputs without a read"
        );
        assert_eq!(env.other.history(&key(&name)).await.len(), 1);
        assert_eq!(env.other.row(&key(&name)).await.attempts, 0);
    }
}

/// A signal before its wait is kept. A duplicate id counts once, from any connection.
pub async fn w8_early_and_double_signals(env: &Env) {
    env.store.done(start("w8", 1)).await;
    let id = OpId::new();
    assert!(!env.store.done(signal("w8", id)).await.repeated);
    for conn in [&env.store, &env.other] {
        assert!(conn.done(signal("w8", id)).await.repeated);
    }
    let grant = drive(&env.other, "w").await.unwrap();
    let types: Vec<&str> = grant.events.iter().map(|e| e.event_type.as_str()).collect();
    assert_eq!(types, ["Started", "Signalled"], "delivered later, once");
}

/// The same signal from many concurrent senders counts once.
pub async fn w8_racing_duplicates_count_once(env: &Env) {
    for connections in ONE_AND_TWO {
        let (name, id) = (format!("w8-{connections}"), OpId::new());
        env.store.done(start(&name, 1)).await;
        let work = |_: usize, conn: Conn| {
            let batch = signal(&name, id);
            async move { conn.done(batch).await.repeated }
        };
        let repeated = env.race(connections, 8, work).await;
        assert_eq!(repeated.iter().filter(|r| !**r).count(), 1);
        assert_eq!(env.other.history(&key(&name)).await.len(), 2);
    }
}

/// A signal to an unknown or a finished run is rejected with a specific kind, and nothing is stored.
pub async fn w9_unknown_and_finished_runs_refuse_signals(env: &Env) {
    let id = OpId::new();
    let unknown = env.store.refused(signal("w9-unknown", id)).await;
    assert_eq!(stream_conflict(unknown), StreamFound::Absent);
    assert_eq!(env.store.operation(id).await.unwrap(), None);
    env.store.done(start("w9", 1)).await;
    let grant = drive(&env.store, "w").await.unwrap();
    let k = key("w9");
    let end = Batch::new()
        .append(&k, Expect::Any, [event("Finished", 1)])
        .close(&k, Expect::Any)
        .ack(&grant.lease());
    env.store.done(end).await;
    let finished = env.other.refused(signal("w9", OpId::new())).await;
    assert!(matches!(finished, Refusal::StreamClosed { .. }), "{finished:?}");
}

/// If a timeout and a signal fall on the same instant, exactly one wins, and the loser is rejected.
pub async fn w10_a_time_limit_and_a_signal_race(env: &Env) {
    for connections in ONE_AND_TWO {
        for round in 0..8 {
            let wait = key(&format!("w10-{connections}-{round}"));
            let open = payload(json!({ "by": null }));
            env.store.done(Batch::new().put(&wait, Expect::Absent, open)).await;
            let work = |i: usize, conn: Conn| {
                let by = if i.is_multiple_of(2) { "timeout" } else { "signal" };
                let batch = Batch::new().put(&wait, doc_at(1), payload(json!({ "by": by })));
                let batch = batch.append(&wait, Expect::Absent, [event(by, 1)]);
                async move { conn.apply(batch).await }
            };
            let (_, losers) = one_winner(env.race(connections, 2, work).await);
            let winner = env.other.value(&wait).await.unwrap();
            let journal = env.other.history(&wait).await;
            assert_eq!((journal.len(), json!(journal[0].event_type.as_str())), (1, winner["by"].clone()));
            assert!(losers.into_iter().all(|loser| present(loser).version == DocVersion(2)));
        }
    }
}

/// Of two processes that poll, one drives. The other learns which process does and until when.
pub async fn w11_one_drives_and_the_other_is_denied_as_leased(env: &Env) {
    for connections in ONE_AND_TWO {
        let name = format!("w11-{connections}");
        env.store.done(start(&name, 1)).await;
        let work = |i: usize, conn: Conn| {
            let run = key(&name);
            async move { conn.take(&format!("driver-{i}"), &run).await }
        };
        let answers = env.race(connections, 4, work).await;
        let driver = answers.iter().flatten().next().expect("one drives").row.lease.clone().unwrap();
        assert_eq!(answers.iter().flatten().count(), 1);
        assert_eq!(driver.until, env.now().after(TTL));
        for denied in answers.into_iter().filter_map(Result::err) {
            assert_eq!(denied, ClaimDenied::Held(driver.clone()));
        }
        assert_eq!(drive(&env.other, "sweeper").await, None);
    }
}

/// A failing or unknown definition at the head backs off with a reason and a next attempt, and the others progress.
pub async fn w12_a_parked_run_lets_the_others_progress(env: &Env) {
    env.store.done(start("w12-unknown", 1)).await;
    env.pass(TICK);
    for i in 0..3 {
        env.store.done(start(&format!("w12-{i}"), 1)).await;
    }
    let head = env.store.take("w", &key("w12-unknown")).await.unwrap();
    let next_try = env.now().after(secs(30));
    env.store.done(Batch::new().fail(&head.lease(), "no such definition", Due::At(next_try))).await;
    for _ in 0..3 {
        let grant = drive(&env.other, "w").await.unwrap();
        assert_ne!(grant.row.key, key("w12-unknown"));
        env.store.done(Batch::new().ack(&grant.lease())).await;
    }
    let claimed = env.other.claim(Claim::queues(&owner("w"), [runs()], 1, TTL)).await.unwrap();
    assert_eq!((claimed.grants.len(), claimed.next_at), (0, Some(next_try)));
    let parked = env.other.row(&key("w12-unknown")).await;
    assert_eq!((parked.last_error.as_deref(), parked.attempts), (Some("no such definition"), 1));
}

/// The effect of a step is in the batch of its record: the counts agree, whichever worker was fenced in between.
pub async fn w18_effect_and_record_are_one_batch(env: &Env) {
    env.store.done(start("w18", 1).put(&key("w18-account"), Expect::Absent, number(0))).await;
    let step = |grant: &Grant| {
        let head = grant.events.last().unwrap().version;
        Batch::new()
            .guard_lease(&grant.lease())
            .append(&key("w18"), Expect::Exact(head), [event("StepDone", 1)])
            .merge(&key("w18-account"), [Delta::inc("/n", 1)])
    };
    for round in 0..6 {
        let grant = drive(&env.store, &format!("driver-{round}")).await.unwrap();
        if round % 2 == 0 {
            env.store.done(step(&grant)).await;
            stream_conflict(env.store.refused(step(&grant)).await);
        }
        env.pass(TTL);
        let next = drive(&env.other, "next").await.unwrap();
        fenced(env.store.refused(step(&grant)).await);
        env.other.done(Batch::new().defer(&next.lease(), Due::Now)).await;
    }
    let records =
        env.other.history(&key("w18")).await.iter().filter(|e| e.event_type.as_str() == "StepDone").count();
    assert_eq!((records, env.other.value(&key("w18-account")).await), (3, Some(json!({ "n": 3 }))));
}

/// A sweep never touches live rows: work rows, journals and documents without an expiry stay, whatever their age.
pub async fn w20_a_sweep_never_touches_the_living(env: &Env) {
    env.store.done(start("w20", 1)).await;
    env.pass(secs(1_000_000));
    let before = Dump::of(&env.store).await;
    let now = Some(env.now());
    let sweep = Sweep { tombstones_before: now, operations_before: now, ..Sweep::default() };
    assert_eq!(env.other.sweep(sweep).await.unwrap(), Swept::default());
    assert_eq!(Dump::of(&env.store).await, before);
}
