//! Operator actions and enqueueing at the level of the store (R6): actions by name and by filter, and wake-ups.

use crate::prelude::*;

async fn blocked(env: &Env, names: &[&str]) {
    for name in names {
        env.store.done(enqueue(standing(name))).await;
        let lease = env.store.take("w", &key(name)).await.unwrap().lease();
        env.store
            .done(Batch::new().advance(&lease, Position(5)).block(&lease, format!("{name} is bad")))
            .await;
    }
}

async fn counted(conn: &Conn, batch: Batch) -> u64 {
    conn.done(batch).await.operated[0]
}

/// Unblock resumes where the row stopped, with a fresh budget, at once.
pub async fn r6_unblock_resumes_where_it_stopped(env: &Env) {
    blocked(env, &["r6-a"]).await;
    env.store.done(enqueue(standing("r6-fine").due(Due::After(secs(60))))).await;
    env.pass(secs(3));
    let names = ["r6-a", "r6-fine", "r6-missing"];
    assert_eq!(
        counted(&env.other, by_names(&names, Operation::Unblock)).await,
        1,
        "only rows that changed count"
    );
    let row = env.store.row(&key("r6-a")).await;
    assert_eq!((row.blocked, row.attempts, row.position), (None, 0, Some(Position(5))));
    assert_eq!(env.store.take_job("w").await.row.key, key("r6-a"));
    assert_eq!(counted(&env.other, by_names(&names, Operation::Unblock)).await, 0);
}

/// Reset starts at 0, unblocked, at once, and fences the holder.
pub async fn r6_reset_starts_at_the_beginning(env: &Env) {
    blocked(env, &["r6-b"]).await;
    env.store.done(enqueue(standing("r6-held").due(Due::After(secs(60))))).await;
    let held = env.store.take("w", &key("r6-held")).await.unwrap();
    env.store.done(enqueue(standing("r6-held"))).await;
    assert_eq!(counted(&env.other, by_names(&["r6-b", "r6-held", "r6-none"], Operation::Reset)).await, 2);
    let row = env.store.row(&key("r6-b")).await;
    assert_eq!((row.blocked, row.attempts, row.position, row.last_error), (None, 0, Some(Position(0)), None));
    assert_eq!(row.due, Some(env.now()));
    let row = env.store.row(&key("r6-held")).await;
    assert_eq!((row.lease, row.woken, row.due, row.position), (None, None, Some(env.now()), None));
    assert_eq!(fenced(env.store.refused(Batch::new().ack(&held.lease())).await), Holder::Nobody);
}

/// A filter without conditions selects all blocked rows, and only those.
pub async fn r6_an_empty_filter_means_all_blocked(env: &Env) {
    blocked(env, &["r6-1", "r6-2", "r6-3"]).await;
    env.store.done(enqueue(job("r6-free")).enqueue(job("r6-later").due(Due::After(secs(60))))).await;
    let before = [env.store.row(&key("r6-free")).await, env.store.row(&key("r6-later")).await];
    assert_eq!(counted(&env.other, by_filter(WorkFilter::default(), Operation::Reset)).await, 3);
    let after = [env.store.row(&key("r6-free")).await, env.store.row(&key("r6-later")).await];
    assert_eq!(before, after, "a forgotten condition never resets the whole store");
    assert_eq!(counted(&env.other, by_filter(WorkFilter::default(), Operation::Remove)).await, 0);
}

/// Every action works by filter, and the returned counts are the changed rows.
pub async fn r6_verbs_by_filter_count_changed_rows(env: &Env) {
    blocked(env, &["r6-x1", "r6-x2", "r6-y1"]).await;
    env.store
        .done(enqueue(NewWork::once(key("r6-other"), queue_name("other")).due(Due::After(secs(9)))))
        .await;
    env.store.done(enqueue(job("r6-wait").due(Due::After(secs(9)))).enqueue(job("r6-due"))).await;
    env.store.done(enqueue(job("r6-leased").due(Due::After(secs(9))))).await;
    env.store.take("w", &key("r6-leased")).await.unwrap();
    let all = || WorkFilter { queue: Some(jobs()), ..WorkFilter::default() };
    assert_eq!(counted(&env.store, by_filter(pattern("^tck r6-x.$"), Operation::Unblock)).await, 2);
    assert_eq!(counted(&env.store, by_filter(pattern("^tck r6-x.$"), Operation::Unblock)).await, 0);
    assert_eq!(counted(&env.store, by_filter(all(), Operation::RetryNow)).await, 1, "only rows that wait");
    assert_eq!(env.other.row(&key("r6-wait")).await.due, Some(env.now()));
    assert_eq!(env.other.row(&key("r6-leased")).await.due, Some(env.now().after(secs(9))));
    assert_eq!(counted(&env.store, by_filter(all(), Operation::Prioritize(Priority::FIRST))).await, 6);
    assert_eq!(counted(&env.store, by_filter(all(), Operation::Prioritize(Priority::FIRST))).await, 0);
    let held = WorkFilter { leased: Some(true), ..WorkFilter::default() };
    assert_eq!(counted(&env.store, by_filter(held, Operation::Remove)).await, 1);
    let free = WorkFilter { blocked: Some(false), ..all() };
    assert_eq!(counted(&env.store, by_filter(free, Operation::Remove)).await, 4);
    assert_eq!(
        env.other.count(&WorkFilter::default()).await,
        2,
        "the blocked row and the other queue are left"
    );
}

/// Actions by name affect exactly those names: blocked or not, leased or not.
pub async fn r6_verbs_by_name_concern_those_names(env: &Env) {
    blocked(env, &["r6-n1"]).await;
    env.store.done(enqueue(job("r6-n2")).enqueue(job("r6-n3"))).await;
    let held = env.store.take("w", &key("r6-n2")).await.unwrap();
    let urgent = Operation::Prioritize(Priority::new(8).unwrap());
    assert_eq!(counted(&env.other, by_names(&["r6-n1", "r6-n2"], urgent)).await, 2);
    env.store.done(Batch::new().guard_lease(&held.lease())).await;
    assert_eq!(env.store.row(&key("r6-n3")).await.priority, Priority::NORMAL);
    assert_eq!(counted(&env.other, by_names(&["r6-n1", "r6-n1", "r6-n2"], Operation::Remove)).await, 2);
    assert_eq!(fenced(env.store.refused(Batch::new().ack(&held.lease())).await), Holder::Gone);
    assert_eq!(counted(&env.other, by_names(&[], Operation::Remove)).await, 0, "no names, nothing");
    assert_eq!(env.other.count(&WorkFilter::default()).await, 1);
}

/// During concurrent claims, a row is unblocked once and granted once.
pub async fn r6_operators_and_workers_race(env: &Env) {
    let names: Vec<String> = (0..20).map(|i| format!("r6-race-{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    blocked(env, &names).await;
    let work = |i: usize, conn: Conn| async move {
        if i < 4 {
            return (counted(&conn, by_filter(WorkFilter::default(), Operation::Unblock)).await, 0);
        }
        let mut got = 0;
        for _ in 0..5 {
            got += conn.claim_lane(&format!("w{i}"), "jobs", 20).await.len();
        }
        (0, got)
    };
    let answers = env.race(2, 8, work).await;
    assert_eq!(answers.iter().map(|(unblocked, _)| unblocked).sum::<u64>(), 20);
    let rest = env.store.claim_lane("last", "jobs", 20).await.len();
    assert_eq!(answers.iter().map(|(_, got)| got).sum::<usize>() + rest, 20);
}

/// Enqueueing an existing row wakes it: it takes the earlier due time, and the new queue, priority and payload. The rest
/// stays.
pub async fn r6_enqueuing_again_wakes(env: &Env) {
    let first = NewWork { position: Some(Position(3)), follow: Some(key("s")), ..standing("r6-wake") };
    env.store.done(enqueue(first.due(Due::After(secs(60))).payload(number(1)))).await;
    let before = env.store.row(&key("r6-wake")).await;
    env.pass(secs(1));
    let later = NewWork { position: Some(Position(9)), ..job("r6-wake") }.due(Due::After(secs(120)));
    env.other.done(enqueue(later)).await;
    assert_eq!(env.store.row(&key("r6-wake")).await, before, "a later due time changes nothing");
    let moved = NewWork { follow: Some(key("t")), ..NewWork::once(key("r6-wake"), queue_name("moved")) };
    env.other
        .done(enqueue(moved.payload(number(2)).priority(Priority::FIRST).due(Due::After(secs(5)))))
        .await;
    let row = env.store.row(&key("r6-wake")).await;
    assert_eq!((row.due, row.queue.as_str()), (Some(env.now().after(secs(5))), "moved"));
    assert_eq!(
        (row.payload.clone(), row.priority, row.follow.clone()),
        (number(2), Priority::FIRST, Some(key("t")))
    );
    assert_eq!((row.position, row.lifetime, row.seq), (before.position, Lifetime::Standing, before.seq));
    assert_eq!(row.enqueued_at, before.enqueued_at);
}

/// A row woken while it is leased runs again after the ack, whether it is a job or standing. The latest payload counts.
pub async fn r6_a_row_woken_while_held_runs_again(env: &Env) {
    for work in [job("r6-again"), standing("r6-stay")] {
        let k = work.key.clone();
        env.store.done(enqueue(work.clone())).await;
        let grant = env.store.take("w", &k).await.unwrap();
        let due = env.now().after(secs(5));
        env.other.done(enqueue(work.clone().due(Due::At(due)).payload(number(2)))).await;
        env.other.done(enqueue(work.clone().due(Due::After(secs(50))))).await;
        let row = env.store.row(&k).await;
        assert_eq!((row.woken, row.lease), (Some(due), grant.row.lease.clone()), "the earliest wish is kept");
        env.store.done(Batch::new().ack(&grant.lease())).await;
        let row = env.other.row(&k).await;
        assert_eq!((row.due, row.woken, row.payload, row.attempts), (Some(due), None, number(2), 0));
        env.other.done(by_names(&["r6-again", "r6-stay"], Operation::Remove)).await;
    }
}

/// If a row is woken while it is leased, a later defer or release keeps the earlier due time.
pub async fn r6_a_wake_during_the_lease_beats_a_later_due_time(env: &Env) {
    let row = key("r6-defer");
    env.store.done(enqueue(standing("r6-defer"))).await;
    let lease = env.store.take("w", &row).await.unwrap().lease();
    env.other.done(enqueue(standing("r6-defer").due(Due::After(secs(2))))).await;
    env.store.done(Batch::new().defer(&lease, Due::After(secs(60)))).await;
    assert_eq!(env.store.row(&row).await.due, Some(env.now().after(secs(2))));
    let lease = env.store.take("w", &row).await.unwrap().lease();
    env.other.done(enqueue(standing("r6-defer").due(Due::Now))).await;
    env.store.done(Batch::new().release(&lease)).await;
    let after = env.store.row(&row).await;
    assert_eq!((after.due, after.woken, after.attempts), (Some(env.now()), None, 0));
    let lease = env.store.take("w", &row).await.unwrap().lease();
    env.store.done(Batch::new().defer(&lease, Due::After(secs(7)))).await;
    assert_eq!(env.store.row(&row).await.due, Some(env.now().after(secs(7))));
}

/// An acknowledged job is deleted. A standing row stays idle, with its position, until it is enqueued again.
pub async fn r6_jobs_go_and_standing_rows_rest(env: &Env) {
    env.store.done(enqueue(job("r6-go")).enqueue(standing("r6-rest"))).await;
    for name in ["r6-go", "r6-rest"] {
        let lease = env.store.take("w", &key(name)).await.unwrap().lease();
        env.store.done(Batch::new().advance(&lease, Position(4)).ack(&lease)).await;
    }
    assert_eq!(env.other.find_row(&key("r6-go")).await, None);
    let row = env.other.row(&key("r6-rest")).await;
    assert_eq!((row.due, row.position, row.lease, row.attempts), (None, Some(Position(4)), None, 0));
    env.pass(secs(1_000));
    assert_eq!(env.other.next_job("w").await, None);
    env.store.done(enqueue(standing("r6-rest"))).await;
    assert_eq!(env.other.take_job("w").await.row.position, Some(Position(4)));
}
