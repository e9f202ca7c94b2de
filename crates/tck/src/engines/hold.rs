//! Leases (K1–K7 through `tidelock_core::lease`): the holder, the order of the waiters, and fencing of writes.
//!
//! The clock of the store advances only when a case advances it, while holders renew by real time. The leases are so
//! long that no renewal falls into a case.

use tidelock_core::lease::{self, LeaseError, LeaseGuard, LeaseRequest, LostReason};
use tokio::task::JoinHandle;

use crate::env::ONE_AND_TWO;
use crate::prelude::*;

const LEASE: Duration = Duration::from_mins(10);

#[track_caller]
fn hold(conn: &Conn, lock: &Key, who: &str) -> LeaseRequest {
    lease::request(&conn.0, lock).owner(owner(who)).ttl(LEASE)
}

async fn waiters(conn: &Conn, lock: &Key) -> Vec<String> {
    let view = lease::view(&conn.0, lock).await.expect("the store answers");
    let waiters = view.map(|view| view.waiters).unwrap_or_default();
    waiters.iter().map(|w| w.owner.as_str().split('/').next().unwrap().to_owned()).collect()
}

/// Waits in a separate task. Returns when that task is in the wait queue.
async fn in_line(conn: &Conn, lock: &Key, who: &str) -> JoinHandle<Result<LeaseGuard, LeaseError>> {
    let task = tokio::spawn(hold(conn, lock, who).acquire());
    while waiters(conn, lock).await.last().is_none_or(|last| last != who) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    task
}

/// Of many concurrent requests for a lease, exactly one is granted. The others learn the holder.
pub async fn k1_one_of_many_holds_is_granted(env: &Env) {
    for connections in ONE_AND_TWO {
        let lock = key(&format!("hold-{connections}"));
        let asking = |i: usize, conn: Conn| hold(&conn, &lock, &format!("w{i}")).try_acquire();
        let answers = env.race(connections, 5, asking).await;
        let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1, "exactly one may have it: {won:?}");
        let held = won.into_iter().next().unwrap().unwrap();
        for error in lost {
            let LeaseError::Held { owner, fence, .. } = error.unwrap_err() else {
                panic!("expected LeaseGuard")
            };
            assert_eq!((&owner, fence), (held.owner(), held.fence()));
        }
        held.release().await.unwrap();
    }
}

/// Waiters on two connections are granted in the order of their arrival, one at a time, and leave no rows behind.
pub async fn k2_waiters_are_granted_in_order(env: &Env) {
    let lock = key("hold-order");
    let first = hold(&env.store, &lock, "first").try_acquire().await.unwrap();
    let names: Vec<String> = (0..6).map(|i| format!("w{i}")).collect();
    let mut tasks = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let conn = if i % 2 == 0 { &env.other } else { &env.store };
        tasks.push(in_line(conn, &lock, name).await);
    }
    assert_eq!(waiters(&env.store, &lock).await, names);
    // In another task: this one holds the lease and would get a different error.
    let hasty = tokio::spawn(hold(&env.other, &lock, "hasty").try_acquire()).await.unwrap();
    let Err(LeaseError::Waited { waiters: ahead, .. }) = hasty else {
        panic!("an acquisition overtakes the waiters")
    };
    assert_eq!(ahead.len(), names.len());
    let mut fence = first.fence();
    first.release().await.unwrap();
    for (i, task) in tasks.into_iter().enumerate() {
        let held = task.await.unwrap().unwrap();
        assert!(held.fence() > fence, "each grant has a higher fence");
        fence = held.fence();
        assert_eq!(waiters(&env.other, &lock).await, names[i + 1..], "the others still wait, in order");
        held.release().await.unwrap();
    }
    assert_eq!(env.store.count(&WorkFilter::default()).await, 0, "rows are left behind");
}

/// An expired lease is taken over. No batch that the old holder guards is applied, and its release changes nothing.
pub async fn k3_a_holder_that_was_taken_over_writes_nothing(env: &Env) {
    let lock = key("hold-over");
    let old = hold(&env.store, &lock, "old").try_acquire().await.unwrap();
    let write = || Batch::new().put(&key("hold-doc"), Expect::Any, number(1)).enqueue(job("hold-job"));
    env.store.done(old.guard(Batch::new()).unwrap()).await;
    env.pass(LEASE);
    let new = hold(&env.other, &lock, "new").try_acquire().await.unwrap();
    assert!(new.fence() > old.fence());
    let before = Dump::of(&env.store).await;
    let Holder::Held(holder) = fenced(env.store.refused(old.guard(write()).unwrap()).await) else {
        panic!("the lease has a holder")
    };
    assert_eq!(&holder.owner, new.owner());
    let error = old.release().await.unwrap_err();
    assert!(matches!(&error, LeaseError::Lost { reason: LostReason::Taken { .. }, .. }), "{error}");
    assert_eq!(Dump::of(&env.store).await, before, "nothing of it left a trace");
    let view = lease::view(&env.store.0, &lock).await.unwrap().unwrap();
    assert_eq!((view.takeovers, view.holder.unwrap().fence), (1, new.fence()));
    env.other.done(new.guard(write()).unwrap()).await;
    new.release().await.unwrap();
}

/// A stolen lease goes to the thief at once. The old holder is fenced, and the reason is stored with the lease.
pub async fn k3_a_stolen_lease_fences_its_holder(env: &Env) {
    let lock = key("hold-steal");
    let old = hold(&env.store, &lock, "old").note("busy").try_acquire().await.unwrap();
    let thief = tokio::spawn(hold(&env.other, &lock, "thief").steal("it hangs")).await.unwrap().unwrap();
    env.store.refused(Batch::new().guard_lease(old.lease()).put(&lock, Expect::Any, number(1))).await;
    env.other.done(thief.guard(Batch::new().put(&lock, Expect::Any, number(2))).unwrap()).await;
    assert_eq!(env.store.value(&lock).await, Some(json!({ "n": 2 })));
    let view = lease::view(&env.store.0, &lock).await.unwrap().unwrap();
    assert_eq!(view.note, None, "a note goes with its holder");
    let stolen = view.stolen.unwrap();
    assert_eq!((stolen.reason.as_str(), stolen.at), ("it hangs", env.now()));
    assert_eq!((&stolen.by, &stolen.from, stolen.fence), (thief.owner(), old.owner(), old.fence()));
    assert!(old.release().await.is_err());
    thief.release().await.unwrap();
    assert!(env.store.claim_lane("w", "tidelock.leases", 9).await.is_empty(), "a lease is never due");
}

/// A release before the end of `at_least` excludes others until then, by the clock of the store.
pub async fn k4_at_least_is_kept_to_the_instant(env: &Env) {
    let (lock, at_least) = (key("hold-least"), Duration::from_mins(5));
    let held = hold(&env.store, &lock, "one").at_least(at_least).try_acquire().await.unwrap();
    held.release().await.unwrap();
    let until = lease::view(&env.other.0, &lock).await.unwrap().unwrap().holder.unwrap().until;
    let lasts = until.since(env.now());
    // The holder counts by the real time that has passed, which is not much.
    assert!(lasts <= at_least && lasts > at_least - Duration::from_mins(2), "{lasts:?}");
    env.pass(lasts - TICK);
    assert!(matches!(hold(&env.other, &lock, "two").try_acquire().await, Err(LeaseError::Held { .. })));
    env.pass(TICK);
    hold(&env.other, &lock, "two").try_acquire().await.unwrap().release().await.unwrap();
}

/// A dead waiter is skipped when its place expires, and its place is removed.
pub async fn k4_a_dead_waiter_is_passed_over(env: &Env) {
    let lock = key("hold-dead");
    let first = hold(&env.store, &lock, "first").try_acquire().await.unwrap();
    // A place as a waiter creates it, but without renewal.
    let place = Key::of("tidelock.lease-wait", &[lock.to_string().into(), EventId::new().0.into()]).unwrap();
    let claim = Claim::named(&owner("dead/1"), &place, &queue_name("tidelock.lease-waits"), secs(5));
    assert_eq!(env.other.claim(claim).await.unwrap().grants.len(), 1);
    assert_eq!(waiters(&env.store, &lock).await, ["dead"]);
    let alive = in_line(&env.store, &lock, "alive").await;
    first.release().await.unwrap();
    env.pass(secs(5) - TICK);
    let hasty = hold(&env.other, &lock, "hasty").try_acquire().await;
    assert!(matches!(hasty, Err(LeaseError::Waited { .. })), "the place has not ended");
    env.pass(TICK);
    alive.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(env.store.find_row(&place).await, None);
}

/// All leases can be listed in pages, with their holders and waiters.
pub async fn k2_leases_are_listed(env: &Env) {
    let mut held = Vec::new();
    for name in ["c", "a", "b"] {
        held.push(hold(&env.store, &key(name), name).note(name).try_acquire().await.unwrap());
    }
    env.store.done(enqueue(job("after")).enqueue(NewWork::once(Key::single("zz").unwrap(), jobs()))).await;
    let waiter = in_line(&env.other, &key("b"), "waiter").await;
    let first = lease::list(&env.other.0, Page::first(2)).await.unwrap();
    let next = lease::list(&env.other.0, Page::after(&first.next.clone().unwrap(), 2)).await.unwrap();
    let all: Vec<_> = first.rows.iter().chain(&next.rows).collect();
    assert_eq!(all.iter().map(|view| &view.key).collect::<Vec<_>>(), [&key("a"), &key("b"), &key("c")]);
    assert_eq!(all.iter().map(|view| view.waiters.len()).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!(all[0].note.as_deref(), Some("a"));
    assert_eq!(next.next, None);
    waiter.abort();
    for one in held {
        one.release().await.unwrap();
    }
}
