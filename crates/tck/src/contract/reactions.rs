//! Reactions at the level of the store (R1–R10): rows that follow streams, attempts, backoff, blocks, and effects with
//! their ack.

use std::collections::BTreeMap;

use crate::env::ONE_AND_TWO;
use crate::prelude::*;

/// Returns a standing row that follows a stream from its start.
fn follower(name: &str, stream: &Key) -> NewWork {
    NewWork { follow: Some(stream.clone()), position: Some(Position(0)), ..standing(name) }
}

async fn claim_events(conn: &Conn, who: &str, events: usize) -> Option<Grant> {
    let claim = Claim::queues(&owner(who), [jobs()], 1, TTL).with_events(events);
    conn.claim(claim).await.unwrap().grants.pop()
}

/// Workers on two connections process each key one at a time and in order, and skip nothing.
pub async fn r1_each_key_in_order_by_one_at_a_time(env: &Env) {
    const KEYS: usize = 5;
    const EVENTS: usize = 12;
    for connections in ONE_AND_TWO {
        let stream = |i: usize| key(&format!("r1-{connections}-{i}"));
        let seen = key(&format!("r1-{connections}-seen"));
        env.store.done(Batch::new().put(&seen, Expect::Absent, payload(json!({})))).await;
        for i in 0..KEYS {
            let work = follower(&format!("r1-{connections}-w{i}"), &stream(i));
            env.store
                .done(Batch::new().append(&stream(i), Expect::Absent, events(EVENTS)).enqueue(work))
                .await;
        }
        let worker = |i: usize, conn: Conn| {
            let seen = seen.clone();
            async move {
                let who = format!("worker-{i}");
                let mut rounds = 0;
                while let Some(grant) = claim_events(&conn, &who, 5).await {
                    react(&conn, &grant, &seen).await;
                    rounds += 1;
                    assert!(rounds <= KEYS * EVENTS, "the same events come again and again");
                }
            }
        };
        env.race(connections, 6, worker).await;
        let value = env.other.value(&seen).await.unwrap();
        for i in 0..KEYS {
            let field = &value[format!("r1-{connections}-w{i}")];
            assert_eq!(field, &json!((0..EVENTS).collect::<Vec<_>>()), "key {i}: every event once, in order");
        }
    }
}

/// Handles one page: notes each event and advances. Acknowledges when no event is left.
async fn react(conn: &Conn, grant: &Grant, seen: &Key) {
    let Arg::Str(name) = grant.row.key.args().remove(0) else { panic!("rows are named by text") };
    let lease = grant.lease();
    let Some(last) = grant.events.last() else {
        conn.done(Batch::new().ack(&lease)).await;
        return;
    };
    let note = |event: &Event| {
        Delta::push(format!("/{name}"), event.payload.parse::<serde_json::Value>().unwrap()["n"].clone())
    };
    let batch = Batch::new().merge(seen, grant.events.iter().map(note)).advance(&lease, last.position);
    conn.done(batch.release(&lease)).await;
}

/// A grant contains the events after the position of the row, up to the requested number and only of its stream.
pub async fn r1_a_grant_brings_the_pending_events(env: &Env) {
    let (stream, noise) = (key("r1-s"), key("r1-noise"));
    for _ in 0..4 {
        env.store
            .done(Batch::new().append(&noise, Expect::Any, events(1)).append(&stream, Expect::Any, events(2)))
            .await;
    }
    let history = env.store.history(&stream).await;
    let from = NewWork { position: Some(history[2].position), ..follower("r1-row", &stream) };
    env.store.done(enqueue(from)).await;
    let grant = claim_events(&env.other, "w", 3).await.unwrap();
    assert_eq!(grant.events, history[3..6]);
    env.store.done(Batch::new().advance(&grant.lease(), history[5].position).release(&grant.lease())).await;
    let grant = claim_events(&env.store, "w", 100).await.unwrap();
    assert_eq!(grant.events, history[6..]);
    env.store.done(Batch::new().release(&grant.lease())).await;
    assert!(env.store.take_job("w").await.events.is_empty(), "none asked for, none given");
    let all = env
        .store
        .claim(Claim::named(&owner("w"), &key("r1-row"), &jobs(), TTL).with_events(9))
        .await
        .unwrap();
    assert_eq!(all.grants[0].events.len(), 2, "by name, too");
}

/// A row without a position has seen nothing. A row that follows no stream gets no events.
pub async fn r1_rows_without_position_or_stream(env: &Env) {
    let stream = key("r1-plain");
    env.store.done(Batch::new().append(&stream, Expect::Any, events(2))).await;
    env.store.done(enqueue(NewWork { follow: Some(stream.clone()), ..job("r1-a") })).await;
    assert_eq!(claim_events(&env.store, "w", 10).await.unwrap().events.len(), 2);
    env.store.done(enqueue(NewWork { position: Some(Position(0)), ..job("r1-b") })).await;
    assert!(claim_events(&env.store, "w", 10).await.unwrap().events.is_empty());
}

/// A handler fails in the middle. The handled prefix is kept, the rest is delivered again, and the backoff is stored.
pub async fn r2_the_handled_prefix_is_kept(env: &Env) {
    let stream = key("r2");
    env.store
        .done(Batch::new().append(&stream, Expect::Any, events(5)).enqueue(follower("r2-row", &stream)))
        .await;
    let grant = claim_events(&env.store, "w", 10).await.unwrap();
    let handled = grant.events[1].position;
    let batch = Batch::new().advance(&grant.lease(), handled).fail(
        &grant.lease(),
        "third is bad",
        Due::After(secs(30)),
    );
    env.store.done(batch).await;
    let row = env.other.row(&key("r2-row")).await;
    assert_eq!(
        (row.position, row.attempts, row.lease),
        (Some(handled), 1, None),
        "the progress began a new count"
    );
    assert_eq!((row.due, row.last_error.as_deref()), (Some(env.now().after(secs(30))), Some("third is bad")));
    assert_eq!(env.other.next_job("v").await, None, "it waits");
    env.pass(secs(30));
    let grant = claim_events(&env.other, "v", 10).await.unwrap();
    assert_eq!((grant.events.len(), grant.events[0].version, grant.row.attempts), (3, StreamVersion(2), 2));
}

/// Progress never goes backwards, whatever a holder requests.
pub async fn r2_positions_never_go_back(env: &Env) {
    env.store.done(enqueue(standing("r2-back"))).await;
    let lease = env.store.take_job("w").await.lease();
    env.store.done(Batch::new().advance(&lease, Position(7)).advance(&lease, Position(3))).await;
    let row = env.other.row(&key("r2-back")).await;
    assert_eq!(
        (row.position, row.lease.map(|l| l.fence)),
        (Some(Position(7)), Some(lease.fence)),
        "the lease stays"
    );
}

/// The due time of a row in backoff survives a new enqueue: a wake-up does not defeat the backoff.
pub async fn r2_waking_does_not_defeat_the_backoff(env: &Env) {
    env.store.done(enqueue(job("r2-wake"))).await;
    let lease = env.store.take_job("w").await.lease();
    env.store.done(Batch::new().fail(&lease, "no", Due::After(secs(60)))).await;
    env.other.done(enqueue(job("r2-wake").payload(number(2)).priority(Priority::FIRST))).await;
    let row = env.store.row(&key("r2-wake")).await;
    assert_eq!(row.due, Some(env.now().after(secs(60))));
    assert_eq!(
        (row.attempts, row.payload, row.priority),
        (1, number(2), Priority::FIRST),
        "the rest is the new one's"
    );
    let lease = env.store.take("w", &key("r2-wake")).await.unwrap().lease();
    env.other.done(enqueue(job("r2-wake"))).await;
    env.store.done(Batch::new().fail(&lease, "no", Due::After(secs(90)))).await;
    assert_eq!(
        env.other.row(&key("r2-wake")).await.due,
        Some(env.now().after(secs(90))),
        "also while it is held"
    );
}

/// Defer and release do not count the attempt; fail does; ack and advance reset the count.
pub async fn r2_attempts_count_failures(env: &Env) {
    env.store.done(enqueue(standing("r2-count"))).await;
    let row = key("r2-count");
    let step = async |end: fn(Batch, &Lease) -> Batch| {
        let grant = env.store.take("w", &row).await.unwrap();
        env.store.done(end(Batch::new(), &grant.lease())).await;
        (grant.row.attempts, env.other.row(&row).await.attempts)
    };
    assert_eq!(step(|b, l| b.release(l)).await, (1, 0));
    assert_eq!(step(|b, l| b.fail(l, "1", Due::Now)).await, (1, 1));
    assert_eq!(step(|b, l| b.defer(l, Due::Now)).await, (2, 1));
    assert_eq!(step(|b, l| b.fail(l, "2", Due::Now)).await, (2, 2));
    assert_eq!(step(|b, l| b.release(l)).await, (3, 2));
    assert_eq!(step(|b, l| b.advance(l, Position(1)).fail(l, "3", Due::Now)).await, (3, 1));
    assert_eq!(env.store.row(&row).await.last_error.as_deref(), Some("3"));
    assert_eq!(step(|b, l| b.ack(l)).await, (2, 0));
    assert_eq!(env.store.row(&row).await.last_error, None, "done is done");
}

/// A worker that exhausts the attempts blocks the row with the error. Other keys continue, and no worker gets the
/// blocked one.
pub async fn r3_a_blocked_row_stops_no_other_row(env: &Env) {
    env.store.done(enqueue(job("r3-bad")).enqueue(job("r3-good"))).await;
    let lease = env.store.take("w", &key("r3-bad")).await.unwrap().lease();
    env.store.done(Batch::new().put(&key("r3-note"), Expect::Any, number(1)).block(&lease, "poison")).await;
    let row = env.other.row(&key("r3-bad")).await;
    let blocked = row.blocked.unwrap();
    assert_eq!((blocked.reason.as_str(), blocked.since, row.lease), ("poison", env.now(), None));
    assert_eq!((row.last_error.as_deref(), row.attempts), (Some("poison"), 1));
    assert_eq!(env.other.take_job("v").await.row.key, key("r3-good"));
    env.pass(TTL * 100);
    env.store.done(enqueue(job("r3-bad"))).await;
    let keys: Vec<Key> = env.other.claim_lane("v", "jobs", 10).await.into_iter().map(|g| g.row.key).collect();
    assert_eq!(keys, [key("r3-good")], "enqueuing again does not unblock");
}

/// Attempts also count if the worker dies each time it claims the row.
pub async fn r4_a_dying_worker_spends_the_budget(env: &Env) {
    let policy = tidelock_core::model::retry::RetryPolicy::default();
    env.store.done(enqueue(job("r4"))).await;
    for attempt in 1..=policy.max_attempts {
        let conn = if attempt.is_multiple_of(2) { &env.store } else { &env.other };
        let grant = conn.take_job(&format!("mortal-{attempt}")).await;
        assert_eq!(grant.row.attempts, attempt);
        assert!(policy.allows(grant.row.attempts));
        env.pass(TTL);
    }
    let last = env.store.take_job("survivor").await;
    assert!(!policy.allows(last.row.attempts), "the next one sees that the budget is spent");
    env.store.done(Batch::new().block(&last.lease(), "died too often")).await;
    assert_eq!(env.other.next_job("v").await, None);
}

/// A non-retryable failure blocks at the first attempt, in one commit with its effects.
pub async fn r5_blocked_at_once(env: &Env) {
    env.store.done(enqueue(standing("r5"))).await;
    let lease = env.store.take_job("w").await.lease();
    env.store.done(Batch::new().block(&lease, "never again")).await;
    assert_eq!(env.other.row(&key("r5")).await.attempts, 1);
    assert_eq!(env.other.next_job("w").await, None);
    assert_eq!(
        fenced(env.store.refused(Batch::new().ack(&lease)).await),
        Holder::Nobody,
        "the lease went with it"
    );
}

/// Effects and ack are one commit: rejected together, applied together, and never applied twice.
pub async fn r7_effects_and_ack_are_one_commit(env: &Env) {
    let (stream, sum) = (key("r7"), key("r7-sum"));
    env.store
        .done(Batch::new().append(&stream, Expect::Any, events(4)).enqueue(follower("r7-row", &stream)))
        .await;
    let project = |grant: &Grant| {
        let position = grant.events.last().unwrap().position;
        let add = i64::try_from(grant.events.len()).unwrap();
        Batch::new()
            .merge_or_create(&sum, number(0), [Delta::inc("/n", add)])
            .advance(&grant.lease(), position)
    };
    let slow = claim_events(&env.store, "slow", 3).await.unwrap();
    env.pass(TTL);
    let quick = claim_events(&env.other, "quick", 3).await.unwrap();
    fenced(env.store.refused(project(&slow)).await);
    env.other.done(project(&quick).release(&quick.lease())).await;
    fenced(env.store.refused(project(&slow)).await);
    let last = claim_events(&env.other, "quick", 3).await.unwrap();
    env.other.done(project(&last).ack(&last.lease())).await;
    assert_eq!(
        env.store.value(&sum).await,
        Some(json!({ "n": 4 })),
        "the projection equals the fold of the log"
    );
}

/// A slow handler keeps its lease by renewal. Without renewal its commit is rejected.
pub async fn r8_renewal_keeps_the_lease(env: &Env) {
    env.store.done(enqueue(job("r8"))).await;
    let grant = env.store.take_job("slow").await;
    for _ in 0..5 {
        env.pass(TTL - TICK);
        assert_eq!(env.other.next_job("other").await, None);
        env.store.done(Batch::new().renew(&grant.lease(), TTL)).await;
    }
    env.pass(TTL);
    env.other.take_job("other").await;
    fenced(
        env.store.refused(Batch::new().put(&key("r8-doc"), Expect::Any, number(1)).ack(&grant.lease())).await,
    );
    assert_eq!(env.store.doc(&key("r8-doc")).await, None);
}

/// A commit to the stream that a leased row follows succeeds, and so does one that wakes the row.
pub async fn r9_commits_do_not_wait_for_reactions(env: &Env) {
    let stream = key("r9");
    env.store
        .done(Batch::new().append(&stream, Expect::Any, events(1)).enqueue(follower("r9-row", &stream)))
        .await;
    let grant = claim_events(&env.store, "w", 10).await.unwrap();
    let batch = Batch::new().append(&stream, at(0), events(2)).enqueue(follower("r9-row", &stream));
    env.other.done(batch).await;
    assert_eq!(env.store.row(&key("r9-row")).await.lease.map(|l| l.fence), Some(grant.fence));
    env.store.done(Batch::new().advance(&grant.lease(), grant.events[0].position).ack(&grant.lease())).await;
    let again = claim_events(&env.other, "w", 10).await.expect("woken while held: it runs again");
    assert_eq!(again.events.len(), 2);
    env.store.done(Batch::new().advance(&again.lease(), again.events[1].position).ack(&again.lease())).await;
    assert_eq!(env.other.next_job("w").await, None, "nothing is left");
}

/// 100 poisoned keys at the head starve no other key.
pub async fn r10_poisoned_keys_starve_no_other_key(env: &Env) {
    for i in 0..100 {
        env.store.done(enqueue(job(&format!("r10-bad-{i:03}")).priority(Priority::FIRST))).await;
    }
    env.pass(TICK);
    for i in 0..5 {
        env.store.done(enqueue(job(&format!("r10-good-{i}")))).await;
    }
    let mut good = 0;
    // Every poisoned row fails and returns after a delay; the good ones must be reached in few rounds.
    for _ in 0..15 {
        for grant in env.other.claim_lane("w", "jobs", 10).await {
            let bad = grant.row.key.to_string().contains("bad");
            let batch = Batch::new();
            let batch = if bad {
                batch.fail(&grant.lease(), "poison", Due::After(secs(5)))
            } else {
                batch.ack(&grant.lease())
            };
            good += u32::from(!bad);
            env.store.done(batch).await;
        }
        env.pass(secs(1));
    }
    assert_eq!(good, 5);
}

/// A continuous flow of urgent work cannot starve the rest: a share of every claim goes by age alone.
pub async fn r10_urgent_work_cannot_starve_the_rest(env: &Env) {
    env.store.done(enqueue(job("r10-old").priority(Priority::LAST))).await;
    env.pass(TICK);
    let mut claims = 0;
    let found = loop {
        claims += 1;
        for i in 0..2 {
            env.store.done(enqueue(job(&format!("r10-{claims}-{i}")).priority(Priority::FIRST))).await;
        }
        let grant = env.other.take_job("w").await;
        env.store.done(Batch::new().ack(&grant.lease())).await;
        if grant.row.key == key("r10-old") || claims >= 64 {
            break claims;
        }
    };
    assert!(found < 64, "the old row waited for {found} claims of one");
}

/// Within a claim priority decides, then age. Rows are granted in that order.
pub async fn r10_urgency_then_age_decides(env: &Env) {
    let mut expected = BTreeMap::new();
    for i in 0..12_u8 {
        let level = (i * 7) % 10;
        env.store.done(enqueue(job(&format!("r10-p{i}")).priority(Priority::new(level).unwrap()))).await;
        expected.insert((u8::MAX - level, i), key(&format!("r10-p{i}")));
        env.pass(TICK);
    }
    let mut urgent = 0;
    // The share that goes by age differs from claim to claim. Of three single claims at least two go by priority.
    for _ in 0..3 {
        let grant = env.other.take_job("w").await;
        urgent += u32::from(expected.first_key_value().is_some_and(|(_, first)| *first == grant.row.key));
        expected.retain(|_, k| *k != grant.row.key);
    }
    assert!(urgent >= 2, "only {urgent} of three claims took the most urgent row");
}
