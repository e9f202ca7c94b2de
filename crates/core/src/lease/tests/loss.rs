//! Tests of lease loss (K5, K6): its causes, and when the holder is notified.

use super::*;
use crate::lease::LostReason;
use crate::payload::Payload;

const SHORT: Duration = Duration::from_millis(600);
/// A lease time that survives a machine on which the renewal thread is delayed by a second.
const KEPT: Duration = Duration::from_secs(2);

/// Returns the holder of the lease in the store.
async fn holder(store: &SharedStore, lock: &Key) -> LeaseRow {
    view_of(store, lock).await.unwrap().holder.unwrap()
}

/// Checks that the holder gives up before the lease expires in the store, by both clocks at one instant. The time at
/// which the token fires is no measure, because the thread that observes it may be late.
async fn check_ends_first(store: &SharedStore, lock: &Key, held: &LeaseGuard) {
    let until = holder(store, lock).await.until;
    let left = until.since(store.now().await.unwrap());
    let ours = held.deadline().saturating_duration_since(Instant::now());
    assert!(ours < left, "it gives up in {ours:?}, and the lease ends in {left:?}");
}

#[tokio::test]
async fn k5_a_holder_that_cannot_renew_is_notified_before_another_can_acquire() {
    let faulty = Faulty::new();
    let (store, lock): (SharedStore, Key) = (faulty.clone(), key("k5"));
    let held = asked(&store, &lock, "one").ttl(SHORT).try_acquire().await.unwrap();
    faulty.break_writes(true);
    check_ends_first(&store, &lock, &held).await;
    in_time("the token fires", held.token().cancelled()).await;
    let lost = held.lost().await;
    assert!(
        matches!(&lost, LostReason::CouldNotRenew { error } if error.contains("the wire is cut")),
        "{lost}"
    );
    assert!(held.is_lost());
    let refused = held.guard(Batch::new()).unwrap_err();
    assert!(matches!(refused, LeaseError::Lost { .. }), "no new work is begun: {refused}");
}

#[tokio::test]
async fn k5_a_store_that_never_answers_is_a_failure_like_any_other() {
    let faulty = Faulty::new();
    let (store, lock): (SharedStore, Key) = (faulty.clone(), key("silent"));
    let held = asked(&store, &lock, "one").ttl(SHORT).try_acquire().await.unwrap();
    faulty.silent.store(true, Ordering::SeqCst);
    check_ends_first(&store, &lock, &held).await;
    let lost = in_time("the token fires", held.lost()).await;
    assert!(matches!(lost, LostReason::CouldNotRenew { .. }), "{lost}");
}

#[tokio::test]
async fn a_renewal_that_fails_for_a_moment_is_tried_again() {
    let faulty = Faulty::new();
    let (store, lock): (SharedStore, Key) = (faulty.clone(), key("again"));
    let ttl = Duration::from_secs(3);
    let held = asked(&store, &lock, "one").ttl(ttl).try_acquire().await.unwrap();
    let first = holder(&store, &lock).await;
    faulty.break_writes(true);
    // After the first attempt, but before the deadline.
    let late = first.since.after(ttl / 2);
    super::until("an attempt has failed", async || store.now().await.unwrap() >= late).await;
    faulty.break_writes(false);
    super::until("it is renewed", async || holder(&store, &lock).await.until > first.until).await;
    assert!(!held.is_lost());
    assert_eq!(holder(&store, &lock).await.fence, held.fence());
}

#[tokio::test]
async fn a_lease_is_renewed_for_as_long_as_it_is_held() {
    let (store, lock) = (store(), key("long"));
    let held = asked(&store, &lock, "one").ttl(KEPT).try_acquire().await.unwrap();
    let end = holder(&store, &lock).await.until.after(KEPT);
    super::until("two lives have passed", async || store.now().await.unwrap() > end).await;
    assert!(!held.is_lost() && held.deadline() > Instant::now());
    assert_eq!(holder(&store, &lock).await.fence, held.fence());
    held.release().await.unwrap();
}

#[test]
fn a_blocked_executor_loses_no_lease() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (store, lock) = (store(), key("blocked"));
        let held = crate::lease::request(&store, &lock).ttl(KEPT).try_acquire().await.unwrap();
        // The test case: the only thread of the executor is blocked for longer than the lease lasts.
        std::thread::sleep(KEPT * 2);
        assert!(!held.is_lost());
        let write = held.guard(Batch::new().put(&lock, Expect::Absent, Payload::null())).unwrap();
        store.apply(write).await.unwrap();
        assert_eq!(holder(&store, &lock).await.fence, held.fence());
        held.release().await.unwrap();
    });
}

#[tokio::test]
async fn a_replaced_holder_is_rejected_with_the_new_holder() {
    let faulty = Faulty::new();
    let (store, lock): (SharedStore, Key) = (faulty.clone(), key("over"));
    let old = asked(&store, &lock, "old").ttl(SHORT).try_acquire().await.unwrap();
    faulty.break_writes(true);
    let lost = in_time("the old one gives up", old.lost()).await;
    assert!(matches!(lost, LostReason::CouldNotRenew { .. }), "{lost}");
    // The place in the queue cannot be removed while writes fail, and a takeover needs none.
    let taken = async || {
        asked(&store, &lock, "new").try_acquire().await.is_ok_and(|held| {
            std::mem::forget(held);
            true
        })
    };
    super::until("the new one takes over", taken).await;
    faulty.break_writes(false);
    let new = holder(&store, &lock).await;
    assert!(new.fence > old.fence());
    for word in [
        Batch::new().guard_lease(old.lease()).put(&lock, Expect::Any, Payload::null()),
        Batch::new().renew(old.lease(), LONG),
        Batch::new().release(old.lease()),
    ] {
        let refused = store.apply(word).await.unwrap_err();
        assert!(matches!(refused.refusal(), Some(Refusal::Fenced { .. })), "{refused}");
    }
    let error = old.release().await.unwrap_err();
    let LeaseError::Lost { reason: LostReason::Taken { by, fence }, .. } = error else { panic!("{error}") };
    assert_eq!((by, fence), (new.owner, new.fence));
    assert_eq!(store.document(&lock).await.unwrap(), None);
    assert_eq!(view_of(&store, &lock).await.unwrap().takeovers, 1);
}

#[tokio::test]
async fn a_holder_learns_with_its_next_renewal_that_its_row_is_gone() {
    let (store, lock) = (store(), key("removed"));
    let held = asked(&store, &lock, "one").ttl(SHORT).try_acquire().await.unwrap();
    let remove = Batch::new().operate(Selection::Keys(vec![held.lease().key.clone()]), Operation::Remove);
    store.apply(remove).await.unwrap();
    assert_eq!(in_time("the holder is notified", held.lost()).await, LostReason::Revoked);
}

#[tokio::test]
async fn k6_a_failing_release_changes_nothing_that_was_committed() {
    let faulty = Faulty::new();
    let (store, lock): (SharedStore, Key) = (faulty.clone(), key("k6"));
    let held = asked(&store, &lock, "one").try_acquire().await.unwrap();
    let write = held.guard(Batch::new().put(&lock, Expect::Absent, Payload::of(&1).unwrap())).unwrap();
    store.apply(write).await.unwrap();
    let before = store.document(&lock).await.unwrap();
    faulty.break_writes(true);
    let token = held.token();
    let error = held.release().await.unwrap_err();
    assert!(matches!(error, LeaseError::Write(_)), "{error}");
    assert!(token.is_cancelled(), "the holder is done all the same");
    assert_eq!(store.document(&lock).await.unwrap(), before);
    faulty.break_writes(false);
    super::until("the release is made up for", async || view_of(&store, &lock).await.is_none()).await;
    assert_eq!(store.document(&lock).await.unwrap(), before);
}
