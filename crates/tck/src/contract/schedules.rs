//! Schedules at the level of the store (C2–C11): a task is a standing row and a record that change together.

use crate::env::ONE_AND_TWO;
use crate::prelude::*;

fn cron() -> tidelock_core::id::QueueName {
    queue_name("cron")
}

fn task(name: &str, due: Timestamp) -> NewWork {
    NewWork::standing(key(name), cron()).due(Due::At(due))
}

/// Returns the end of a run: its record and the next fire, in one batch.
fn finish(name: &str, lease: &Lease, next: Timestamp) -> Batch {
    let record = [Delta::inc("/runs", 1), Delta::set("/next", next.as_micros())];
    let batch = Batch::new().merge_or_create(&key(name), payload(json!({ "runs": 0 })), record);
    batch.ack(lease).enqueue(task(name, next))
}

async fn fire(conn: &Conn, who: &str) -> Option<Grant> {
    conn.claim_lane(who, "cron", 1).await.pop()
}

/// A long outage is followed by one run, because a row is due once, however long ago that was.
pub async fn c2_an_outage_is_followed_by_one_run(env: &Env) {
    env.store.done(enqueue(task("c2", env.now().after(secs(7_200))))).await;
    env.pass(secs(12 * 3_600));
    let grant = fire(&env.store, "w").await.expect("it is due");
    env.store.done(finish("c2", &grant.lease(), env.now().after(secs(7_200)))).await;
    assert_eq!(fire(&env.other, "w").await, None);
    assert_eq!(env.other.value(&key("c2")).await.unwrap()["runs"], json!(1));
}

/// An earlier fire replaces a pending one: enqueueing keeps the earlier due time.
pub async fn c4_the_earlier_fire_wins(env: &Env) {
    let (soon, late) = (env.now().after(secs(10)), env.now().after(secs(60)));
    env.store.done(enqueue(task("c4", late))).await;
    env.other.done(enqueue(task("c4", soon))).await;
    assert_eq!(env.store.row(&key("c4")).await.due, Some(soon));
    env.other.done(enqueue(task("c4", late))).await;
    assert_eq!(env.store.row(&key("c4")).await.due, Some(soon));
}

/// The owner dies. The next owner restarts the task once and keeps the history. A live owner's task is not touched.
pub async fn c5_a_dead_owners_task_is_restarted_once(env: &Env) {
    env.store.done(enqueue(task("c5", env.now()))).await;
    let first = fire(&env.store, "first").await.unwrap();
    env.store.done(finish("c5", &first.lease(), env.now().after(secs(60)))).await;
    env.pass(secs(60));
    fire(&env.store, "mortal").await.unwrap();
    env.pass(TTL - TICK);
    assert_eq!(fire(&env.other, "next").await, None, "a live owner's task is not touched");
    env.pass(TICK);
    for connections in ONE_AND_TWO {
        let work =
            |i: usize, conn: Conn| async move { fire(&conn, &format!("next-{connections}-{i}")).await };
        let got: Vec<Grant> = env.race(connections, 4, work).await.into_iter().flatten().collect();
        assert_eq!(got.len(), 1, "one restart");
        assert_eq!(got[0].row.takeovers, connections as u32, "history kept");
        env.pass(TTL);
    }
    assert_eq!(
        env.other.value(&key("c5")).await.unwrap()["runs"],
        json!(1),
        "and no run is counted that did not end"
    );
}

/// A changed registration keeps the record, the position in the queue and the attempts.
pub async fn c6_a_changed_registration_keeps_history(env: &Env) {
    env.store.done(enqueue(task("c6", env.now()))).await;
    let grant = fire(&env.store, "w").await.unwrap();
    env.store.done(Batch::new().fail(&grant.lease(), "first run", Due::After(secs(5)))).await;
    let before = env.store.row(&key("c6")).await;
    env.other.done(enqueue(task("c6", env.now()).payload(payload(json!({ "cron": "0 * * * *" }))))).await;
    let after = env.store.row(&key("c6")).await;
    assert_eq!(after.payload, payload(json!({ "cron": "0 * * * *" })));
    assert_eq!(
        (after.attempts, after.last_error, after.seq),
        (before.attempts, before.last_error, before.seq)
    );
}

/// Two schedulers on one store run each fire once.
pub async fn c11_each_fire_runs_once(env: &Env) {
    const FIRES: u64 = 10;
    for connections in ONE_AND_TWO {
        let name = format!("c11-{connections}");
        env.store.done(enqueue(task(&name, env.now()))).await;
        for _ in 0..FIRES {
            let next = env.now().after(secs(60));
            let work = |i: usize, conn: Conn| {
                let name = name.clone();
                async move {
                    let Some(grant) = fire(&conn, &format!("scheduler-{i}")).await else { return 0 };
                    conn.done(finish(&name, &grant.lease(), next)).await;
                    1
                }
            };
            assert_eq!(env.race(connections, 4, work).await.into_iter().sum::<u32>(), 1);
            env.pass(secs(60));
        }
        assert_eq!(env.other.value(&key(&name)).await.unwrap()["runs"], json!(FIRES));
        env.store.done(by_names(&[&name], Operation::Remove)).await;
    }
}
