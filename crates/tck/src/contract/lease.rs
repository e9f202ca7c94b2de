//! Leases at the level of the store (K1–K7): grants, expiry and fencing.

use std::collections::BTreeSet;

use crate::env::ONE_AND_TWO;
use crate::prelude::*;
use tidelock_core::id::Fence;

/// Of concurrent first acquisitions of a row that does not exist yet, exactly one succeeds.
pub async fn k1_first_acquisition_has_one_winner(env: &Env) {
    for connections in ONE_AND_TWO {
        let lock = key(&format!("k1-{connections}"));
        let work = |i: usize, conn: Conn| {
            let lock = lock.clone();
            async move { conn.lock(&format!("worker-{i}"), &lock).await }
        };
        let answers = env.race(connections, 5, work).await;
        let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1, "exactly one may have it: {won:?}");
        let held = won[0].as_ref().unwrap().row.lease.clone().unwrap();
        for denied in lost {
            assert_eq!(
                denied.unwrap_err(),
                ClaimDenied::Held(held.clone()),
                "the error names the holder and its expiry"
            );
        }
        assert_eq!(env.store.row(&lock).await.attempts, 1);
    }
}

/// Workers that claim from a queue at the same time never get the same row, and together they get all rows.
pub async fn k1_a_lane_hands_out_each_row_once(env: &Env) {
    for connections in ONE_AND_TWO {
        let queue = queue_name(&format!("k1-{connections}"));
        let names: Vec<String> = (0..40).map(|i| format!("k1-{connections}-{i}")).collect();
        let rows = names.iter().map(|name| NewWork::once(key(name), queue.clone()));
        env.store.done(rows.fold(Batch::new(), Batch::enqueue)).await;
        let work = |i: usize, conn: Conn| {
            let queue = queue.clone();
            async move { conn.claim_lane(&format!("w{i}"), queue.as_str(), 7).await }
        };
        let grants: Vec<Grant> = env.race(connections, 8, work).await.into_iter().flatten().collect();
        let keys: BTreeSet<&Key> = grants.iter().map(|grant| &grant.row.key).collect();
        let fences: BTreeSet<Fence> = grants.iter().map(|grant| grant.fence).collect();
        assert_eq!((grants.len(), keys.len(), fences.len()), (40, 40, 40));
        for grant in &grants {
            assert_eq!(env.other.row(&grant.row.key).await, grant.row, "what was granted is what is stored");
        }
    }
}

/// The owner re-acquires and renews. Another owner is rejected until the lease expires.
pub async fn k2_owner_renews_and_others_wait(env: &Env) {
    let lock = key("k2");
    let first = env.store.lock("a", &lock).await.unwrap();
    env.pass(TTL / 2);
    let Err(ClaimDenied::Held(held)) = env.other.lock("b", &lock).await else { panic!("b must wait") };
    assert_eq!((held.owner.as_str(), held.fence), ("a", first.fence));
    assert_eq!(held.until, first.row.lease.as_ref().unwrap().since.after(TTL));
    env.store.done(Batch::new().renew(&first.lease(), TTL)).await;
    let renewed = env.store.row(&lock).await.lease.unwrap();
    assert_eq!(
        (renewed.until, renewed.fence),
        (env.now().after(TTL), first.fence),
        "the same fence, a later end"
    );
    env.pass(TTL - TICK);
    assert!(env.other.lock("b", &lock).await.is_err(), "renewal moved the end");
    env.pass(TICK);
    assert!(env.other.lock("b", &lock).await.is_ok());
}

/// An owner that acquires its lease again gets a new fence, and the older one is stale from then on.
pub async fn k2_reacquiring_makes_the_older_fence_stale(env: &Env) {
    let lock = key("k2-again");
    let first = env.store.lock("a", &lock).await.unwrap();
    let second = env.other.lock("a", &lock).await.unwrap();
    assert!(second.fence > first.fence);
    let holder = fenced(env.store.refused(Batch::new().guard_lease(&first.lease())).await);
    assert_eq!(holder, Holder::Held(second.row.lease.clone().unwrap()));
    env.store.done(Batch::new().guard_lease(&second.lease())).await;
}

/// A released lock is available at once, and the row stays.
pub async fn k2_release_opens_the_row_at_once(env: &Env) {
    let lock = key("k2-release");
    let first = env.store.lock("a", &lock).await.unwrap();
    env.store.done(Batch::new().release(&first.lease())).await;
    let row = env.store.row(&lock).await;
    assert_eq!((row.lease, row.attempts, row.due), (None, 0, None), "handed back untouched");
    let second = env.other.lock("b", &lock).await.unwrap();
    assert!(second.fence > first.fence);
    assert_eq!(second.row.takeovers, 0, "nothing ran out");
}

/// After a takeover every write of the old holder is rejected, and no effect of its batches is applied.
pub async fn k3_a_stale_holder_writes_nothing(env: &Env) {
    let lock = key("k3");
    let old = env.store.lock("old", &lock).await.unwrap().lease();
    env.pass(TTL);
    let new = env.other.lock("new", &lock).await.unwrap();
    let before = Dump::of(&env.store).await;
    let words = [
        Effect::Ack { lease: old.clone() },
        Effect::Advance { lease: old.clone(), position: Position(1) },
        Effect::Defer { lease: old.clone(), due: Due::Now },
        Effect::Fail { lease: old.clone(), error: "no".to_owned(), due: Due::Now },
        Effect::Block { lease: old.clone(), reason: "no".to_owned() },
        Effect::Renew { lease: old.clone(), ttl: TTL },
        Effect::Release { lease: old.clone() },
        Effect::GuardLease { lease: old.clone() },
    ];
    for word in words {
        let batch = Batch::new()
            .put(&key("k3-doc"), Expect::Any, number(1))
            .append(&key("k3-stream"), Expect::Any, events(1))
            .enqueue(job("k3-job"))
            .with(word.clone());
        let refusal = env.store.refused(batch).await;
        assert!(
            matches!(&refusal, Refusal::Fenced { index: 3, fence, .. } if *fence == old.fence),
            "{word:?}"
        );
        assert_eq!(fenced(refusal), Holder::Held(new.row.lease.clone().unwrap()), "{word:?}");
        assert_eq!(Dump::of(&env.store).await, before, "{word:?} left a trace");
    }
    env.other.done(Batch::new().ack(&new.lease())).await;
}

/// A holder whose row was acknowledged, removed or reset learns the reason.
pub async fn k3_a_stale_holder_gets_the_state_of_its_row(env: &Env) {
    env.store.done(enqueue(job("k3-once")).enqueue(standing("k3-reset")).enqueue(job("k3-removed"))).await;
    let once = env.store.take("w", &key("k3-once")).await.unwrap().lease();
    let reset = env.store.take("w", &key("k3-reset")).await.unwrap().lease();
    let removed = env.store.take("w", &key("k3-removed")).await.unwrap().lease();
    env.store.done(Batch::new().ack(&once)).await;
    assert_eq!(fenced(env.store.refused(Batch::new().ack(&once)).await), Holder::Gone);
    env.other.done(by_names(&["k3-reset"], Operation::Reset)).await;
    assert_eq!(fenced(env.store.refused(Batch::new().renew(&reset, TTL)).await), Holder::Nobody);
    env.other.done(by_names(&["k3-removed"], Operation::Remove)).await;
    assert_eq!(fenced(env.store.refused(Batch::new().guard_lease(&removed)).await), Holder::Gone);
}

/// A fence belongs to one row. Presented for another row it is stale.
pub async fn k3_a_fence_of_another_row_is_stale(env: &Env) {
    let a = env.store.lock("w", &key("k3-a")).await.unwrap();
    let b = env.store.lock("w", &key("k3-b")).await.unwrap();
    let mixed = Lease { key: key("k3-a"), ..b.lease() };
    assert_eq!(fenced(env.store.refused(Batch::new().ack(&mixed)).await), Holder::Held(a.row.lease.unwrap()));
}

/// A row recreated under its old name does not accept fences from before.
pub async fn k3_fences_do_not_survive_their_row(env: &Env) {
    env.store.done(enqueue(job("k3-life"))).await;
    let first = env.store.take_job("w").await;
    env.store.done(Batch::new().ack(&first.lease())).await;
    env.store.done(enqueue(job("k3-life"))).await;
    assert_eq!(fenced(env.store.refused(Batch::new().ack(&first.lease())).await), Holder::Nobody);
    let second = env.other.take_job("w").await;
    assert!(second.fence > first.fence, "fences rise over the life of the store, not of the row");
    assert_eq!(second.row.takeovers, 0);
}

/// The lease expires at `now >= until`, for every way of claiming a row.
pub async fn k4_the_boundary_instant_is_the_end(env: &Env) {
    let lock = key("k4");
    env.store.done(enqueue(job("k4-job"))).await;
    env.store.lock("a", &lock).await.unwrap();
    env.store.take_job("a").await;
    env.pass(TTL - TICK);
    assert!(matches!(env.other.lock("b", &lock).await, Err(ClaimDenied::Held(_))), "one tick before the end");
    assert_eq!(env.other.next_job("b").await, None, "one tick before the end");
    env.pass(TICK);
    assert_eq!(env.other.lock("b", &lock).await.unwrap().row.takeovers, 1);
    assert_eq!(env.other.take_job("b").await.row.takeovers, 1);
}

/// Expiry only makes the row claimable. Until another worker claims it, the fence of the holder stays valid.
pub async fn k4_an_ended_lease_is_good_until_taken(env: &Env) {
    let lock = key("k4-late");
    let held = env.store.lock("a", &lock).await.unwrap().lease();
    env.pass(TTL * 3);
    env.store.done(Batch::new().guard_lease(&held).put(&key("k4-doc"), Expect::Absent, number(1))).await;
    env.store.done(Batch::new().renew(&held, TTL)).await;
    assert!(
        matches!(env.other.lock("b", &lock).await, Err(ClaimDenied::Held(_))),
        "a renewal in time keeps the row"
    );
}

/// Work is due at `now >= due`, and a claim that finds nothing returns the next due time.
pub async fn k4_due_time_is_a_boundary_too(env: &Env) {
    let due = env.now().after(secs(5));
    env.store
        .done(enqueue(job("k4-due").due(Due::At(due))).enqueue(job("k4-later").due(Due::After(secs(9)))))
        .await;
    let claim = || Claim::queues(&owner("w"), [jobs(), queue_name("empty")], 5, TTL);
    let claimed = env.other.claim(claim()).await.unwrap();
    assert_eq!((claimed.grants.len(), claimed.next_at, claimed.denied), (0, Some(due), None));
    env.pass(secs(5) - TICK);
    assert!(env.store.claim(claim()).await.unwrap().grants.is_empty());
    env.pass(TICK);
    let claimed = env.store.claim(claim()).await.unwrap();
    assert_eq!((claimed.grants.len(), claimed.next_at), (1, None), "who got something has no need to sleep");
    let claimed = env.other.claim(claim()).await.unwrap();
    assert_eq!(claimed.next_at, Some(env.now().after(secs(4))));
    let claim = Claim::queues(&owner("w"), [queue_name("empty")], 5, TTL);
    assert_eq!(env.store.claim(claim).await.unwrap().next_at, None, "nothing will ever come");
}

/// The next due time accounts for leases: a leased row is available at the expiry of its lease, a blocked or idle one
/// never.
pub async fn k4_next_at_knows_leases_and_blocks(env: &Env) {
    env.store.done(enqueue(job("k4-n1"))).await;
    let grant = env.store.take_job("a").await;
    let claim = || Claim::queues(&owner("b"), [jobs()], 1, TTL);
    assert_eq!(env.other.claim(claim()).await.unwrap().next_at, Some(env.now().after(TTL)));
    env.store.done(Batch::new().block(&grant.lease(), "stuck")).await;
    assert_eq!(env.other.claim(claim()).await.unwrap().next_at, None);
    env.store.done(enqueue(standing("k4-n2"))).await;
    let rests = env.store.take_job("a").await;
    env.store.done(Batch::new().ack(&rests.lease())).await;
    assert_eq!(env.other.claim(claim()).await.unwrap(), Claimed::nothing(env.now()));
}

/// A renewed lease moves the next due time, even past rows that were due after it.
pub async fn k4_next_at_knows_renewed_leases(env: &Env) {
    env.store.done(enqueue(job("k4-r1")).enqueue(job("k4-r2"))).await;
    let (first, second) = (env.store.take_job("a").await, env.store.take_job("a").await);
    let next_at = async || {
        let claim = Claim::queues(&owner("b"), [jobs()], 1, TTL);
        env.other.claim(claim).await.unwrap().next_at
    };
    env.store.done(Batch::new().renew(&first.lease(), 3 * TTL)).await;
    assert_eq!(next_at().await, Some(env.now().after(TTL)), "the other lease was not renewed");
    env.store.done(Batch::new().renew(&second.lease(), 4 * TTL)).await;
    assert_eq!(next_at().await, Some(env.now().after(3 * TTL)));
    env.store.done(enqueue(job("k4-r3").due(Due::After(2 * TTL)))).await;
    assert_eq!(next_at().await, Some(env.now().after(2 * TTL)));
}

/// `next_ready` claims nothing, and reports when the first row of any of the queues is ready.
pub async fn k4_next_ready_reads_when_the_first_row_is_ready(env: &Env) {
    let next = async |conn: &Conn| {
        conn.next_ready(&[queue_name("a"), queue_name("b"), queue_name("a")]).await.unwrap()
    };
    let now = env.now();
    assert_eq!(next(&env.store).await, NextReady { at: None, now });
    let later = NewWork::once(key("later"), queue_name("b")).due(Due::At(now.after(secs(60))));
    let elsewhere = NewWork::once(key("elsewhere"), queue_name("c"));
    env.store.done(Batch::new().enqueue(later).enqueue(elsewhere)).await;
    let seen = next(&env.other).await;
    assert_eq!((seen, seen.is_ready()), (NextReady { at: Some(now.after(secs(60))), now }, false));
    env.store
        .done(Batch::new().enqueue(NewWork::once(key("now"), queue_name("a")).priority(Priority::LAST)))
        .await;
    env.pass(secs(1));
    let seen = next(&env.other).await;
    assert_eq!((seen, seen.is_ready()), (NextReady { at: Some(now), now: env.now() }, true));
    assert_eq!(next(&env.store).await, seen, "the row was not taken");
    assert_eq!(env.store.row(&key("now")).await.attempts, 0);
    assert_eq!(env.store.next_ready(&[]).await.unwrap(), NextReady { at: None, now: env.now() });
}

/// `next_ready` accounts for leases as claims do. A leased row is ready when its lease expires, a blocked or idle one
/// never.
pub async fn k4_next_ready_knows_leases_and_blocks(env: &Env) {
    env.store.done(enqueue(job("k4-read"))).await;
    let next = async || env.other.next_ready(&[jobs()]).await.unwrap().at;
    assert_eq!(next().await, Some(env.now()));
    let grant = env.store.take_job("a").await;
    assert_eq!(next().await, Some(env.now().after(TTL)));
    env.store.done(Batch::new().renew(&grant.lease(), 3 * TTL)).await;
    assert_eq!(next().await, Some(env.now().after(3 * TTL)));
    env.store.done(Batch::new().block(&grant.lease(), "stuck")).await;
    assert_eq!(next().await, None);
    env.store.done(enqueue(standing("k4-rests"))).await;
    let rests = env.store.take_job("a").await;
    env.store.done(Batch::new().ack(&rests.lease())).await;
    assert_eq!(next().await, None);
}

/// A rejected claim by name returns the reason.
pub async fn k4_a_denied_claim_by_name_gets_the_reason(env: &Env) {
    assert_eq!(env.store.take("w", &key("k4-none")).await, Err(ClaimDenied::NotFound));
    assert_eq!(env.store.find_row(&key("k4-none")).await, None, "asking creates nothing");
    let held = env.store.lock("w", &key("k4-held")).await.unwrap();
    assert_eq!(
        env.other.take("v", &key("k4-held")).await,
        Err(ClaimDenied::Held(held.row.lease.clone().unwrap()))
    );
    env.store.done(Batch::new().block(&held.lease(), "out of paper")).await;
    for who in ["v", "w"] {
        assert_eq!(
            env.other.lock(who, &key("k4-held")).await,
            Err(ClaimDenied::Blocked("out of paper".to_owned()))
        );
    }
    env.store.done(enqueue(job("k4-future").due(Due::After(secs(60))))).await;
    assert!(env.other.take("w", &key("k4-future")).await.is_ok(), "by name, whether it is due or not");
}

/// Each takeover raises the fence and is counted, and so is the attempt of the dead worker.
pub async fn k7_each_takeover_raises_the_fence(env: &Env) {
    env.store.done(enqueue(job("k7"))).await;
    let mut last = Fence(0);
    for round in 0..5_u32 {
        let conn = if round.is_multiple_of(2) { &env.store } else { &env.other };
        let grant = conn.take_job(&format!("w{round}")).await;
        assert!(grant.fence > last);
        assert_eq!((grant.row.takeovers, grant.row.attempts), (round, round + 1));
        assert_eq!(grant.row.lease.as_ref().unwrap().fence, grant.fence);
        last = grant.fence;
        env.pass(TTL);
    }
}

/// Every grant has a higher fence than all earlier ones, over all rows, queues and connections.
pub async fn k7_fences_rise_over_the_whole_store(env: &Env) {
    let mut last = Fence(0);
    for i in 0..30_u32 {
        let conn = if i.is_multiple_of(2) { &env.store } else { &env.other };
        let name = format!("k7-{}", i % 7);
        let grant = if i.is_multiple_of(3) {
            conn.lock("w", &key(&name)).await.unwrap()
        } else {
            conn.done(enqueue(job(&format!("k7-job-{i}")))).await;
            conn.take_job("w").await
        };
        assert!(grant.fence > last, "grant {i}: {} after {last}", grant.fence);
        last = grant.fence;
        let _ = conn.lock("another", &key("k7-0")).await;
    }
}
