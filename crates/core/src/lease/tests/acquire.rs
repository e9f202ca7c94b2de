//! Tests of acquiring, releasing and stealing leases.

use super::*;
use crate::lease::LostReason;
use crate::payload::Payload;

#[tokio::test]
async fn one_holds_and_the_other_gets_the_holder() {
    let (store, lock) = (store(), key("a"));
    let held = asked(&store, &lock, "one").try_acquire().await.unwrap();
    let error = tokio::spawn(asked(&store, &lock, "two").try_acquire()).await.unwrap().unwrap_err();
    let LeaseError::Held { key, owner, fence, since, until } = error else { panic!("{error}") };
    assert_eq!((&key, &owner, fence), (&lock, held.owner(), held.fence()));
    assert_eq!(until, since.after(LONG));
    held.release().await.unwrap();
    let next = asked(&store, &lock, "two").try_acquire().await.unwrap();
    assert!(next.fence() > fence);
}

#[tokio::test]
async fn two_holds_of_one_owner_do_not_share_a_lease() {
    let (store, lock) = (store(), key("same"));
    let held = asked(&store, &lock, "same").try_acquire().await.unwrap();
    let error = tokio::spawn(asked(&store, &lock, "same").try_acquire()).await.unwrap().unwrap_err();
    assert!(matches!(error, LeaseError::Held { .. }), "{error}");
    assert!(store.apply(held.guard(Batch::new()).unwrap()).await.is_ok());
}

#[tokio::test]
async fn a_lease_does_not_touch_a_job_of_the_same_key() {
    let (store, name) = (store(), key("job"));
    store.apply(Batch::new().enqueue(NewWork::once(name.clone(), "jobs".parse().unwrap()))).await.unwrap();
    let job = store.work(&name).await.unwrap().unwrap();
    let held = asked(&store, &name, "one").try_acquire().await.unwrap();
    held.release().await.unwrap();
    assert_eq!(store.work(&name).await.unwrap(), Some(job));
}

#[tokio::test]
async fn a_released_lease_leaves_nothing_behind() {
    let (store, lock) = (store(), key("b"));
    let held = asked(&store, &lock, "one").note("something").try_acquire().await.unwrap();
    assert_eq!(store.count_work(&WorkFilter::default()).await.unwrap(), 1);
    held.release().await.unwrap();
    assert_eq!(store.count_work(&WorkFilter::default()).await.unwrap(), 0);
    assert_eq!(view_of(&store, &lock).await, None);
}

#[tokio::test]
async fn a_dropped_guard_releases_in_the_background() {
    let (store, lock) = (store(), key("c"));
    let held = asked(&store, &lock, "one").try_acquire().await.unwrap();
    let token = held.token();
    drop(held);
    assert!(token.is_cancelled(), "no task works under the lease");
    until("it is released", async || view_of(&store, &lock).await.is_none()).await;
}

#[tokio::test]
async fn a_lease_is_never_due_for_a_lane() {
    let (store, lock) = (store(), key("queue"));
    let held = asked(&store, &lock, "one").note("mine").at_least(LONG).try_acquire().await.unwrap();
    let claim = || Claim::queues(&owner("w"), [keys::queue().unwrap(), keys::waits().unwrap()], 9, LONG);
    assert!(store.claim(claim()).await.unwrap().grants.is_empty());
    let thief = tokio::spawn(asked(&store, &lock, "thief").steal("test")).await.unwrap().unwrap();
    drop(held);
    thief.release().await.unwrap();
    assert!(view_of(&store, &lock).await.unwrap().holder.is_none());
    assert!(store.claim(claim()).await.unwrap().grants.is_empty());
}

#[tokio::test]
async fn a_guarded_batch_keeps_its_id_and_counts_the_guard_first() {
    let (store, lock) = (store(), key("d"));
    let held = asked(&store, &lock, "one").try_acquire().await.unwrap();
    let id = OpId::new();
    let batch = Batch::new().op_id(id).put(&lock, Expect::Absent, Payload::null());
    let guarded = held.guard(batch).unwrap();
    assert_eq!(guarded.id(), Some(id));
    assert!(matches!(&guarded.effects()[0], Effect::GuardLease { lease } if lease == held.lease()));
    assert_eq!(guarded.effects().len(), 2);
}

#[tokio::test]
async fn a_thief_fences_the_holder_and_leaves_its_reason() {
    let (store, lock) = (store(), key("e"));
    let held = asked(&store, &lock, "one").note("busy").try_acquire().await.unwrap();
    let behind = in_line(&store, &lock, "waiter").await;
    let thief = tokio::spawn(asked(&store, &lock, "thief").steal("it hangs")).await.unwrap().unwrap();
    let refused = store.apply(Batch::new().guard_lease(held.lease())).await.unwrap_err();
    assert!(matches!(refused.refusal(), Some(Refusal::Fenced { .. })), "{refused}");
    let lost = in_time("the holder is notified", held.lost()).await;
    assert_eq!(lost, LostReason::Taken { by: thief.owner().clone(), fence: thief.fence() });
    let view = view_of(&store, &lock).await.unwrap();
    assert_eq!(view.note, None, "a note goes with its holder");
    let stolen = view.stolen.unwrap();
    assert_eq!((&stolen.by, &stolen.from), (thief.owner(), held.owner()));
    assert_eq!((stolen.fence, stolen.reason.as_str()), (held.fence(), "it hangs"));
    let error = held.release().await.unwrap_err();
    assert!(matches!(error, LeaseError::Lost { reason: LostReason::Taken { .. }, .. }), "{error}");
    assert!(!thief.is_lost(), "the release of the robbed changes nothing");
    thief.release().await.unwrap();
    let waiter = in_time("the queue continues", behind).await.unwrap().unwrap();
    assert!(view_of(&store, &lock).await.unwrap().stolen.is_some(), "the record stays");
    drop(waiter);
}

#[tokio::test]
async fn stealing_a_free_lease_acquires_it() {
    let (store, lock) = (store(), key("f"));
    let held = asked(&store, &lock, "one").steal("nothing to steal").await.unwrap();
    assert_eq!(view_of(&store, &lock).await.unwrap().stolen, None);
    assert!(!held.is_lost());
}

#[tokio::test]
async fn at_least_shortens_the_lease_instead_of_releasing_it() {
    let (store, lock) = (store(), key("g"));
    // Long enough for a refusal within this time, even on a busy machine.
    let at_least = Duration::from_secs(2);
    let held = asked(&store, &lock, "one").at_least(at_least).try_acquire().await.unwrap();
    held.release().await.unwrap();
    let holder = view_of(&store, &lock).await.unwrap().holder.unwrap();
    let lasts = holder.until.since(holder.since);
    assert!(lasts >= at_least && lasts < LONG / 2, "{lasts:?}");
    let refused = asked(&store, &lock, "two").try_acquire().await.unwrap_err();
    assert!(matches!(refused, LeaseError::Held { .. }), "{refused}");
    let next = in_time("it ends", asked(&store, &lock, "two").acquire()).await.unwrap();
    assert!(view_of(&store, &lock).await.unwrap().holder.unwrap().since >= holder.until);
    drop(next);
}

#[tokio::test]
async fn at_least_that_has_passed_is_a_release() {
    let (store, lock) = (store(), key("h"));
    let held = asked(&store, &lock, "one").at_least(Duration::from_nanos(1)).try_acquire().await.unwrap();
    held.release().await.unwrap();
    assert_eq!(view_of(&store, &lock).await, None);
}

#[tokio::test]
async fn a_re_entrant_request_is_rejected() {
    let (store, lock) = (store(), key("i"));
    let task = tokio::spawn(async move {
        let (taken, held) = (line!(), crate::lease::request(&store, &lock).try_acquire().await.unwrap());
        for (line, again) in [
            (2, crate::lease::request(&store, &lock).try_acquire().await),
            (3, in_time("not a hang", crate::lease::request(&store, &lock).acquire()).await),
            (4, crate::lease::request(&store, &lock).steal("from myself").await),
        ] {
            let LeaseError::Reentrant { key, held_at, asked_at } = again.unwrap_err() else { panic!() };
            assert_eq!(key, lock);
            let here = |line: u32| format!("{}:{line}:", file!());
            assert!(held_at.starts_with(&here(taken)), "{held_at}");
            assert!(asked_at.starts_with(&here(taken + line)), "{asked_at}");
        }
        assert!(!held.is_lost());
        held.release().await.unwrap();
        asked(&store, &lock, "five").try_acquire().await.unwrap()
    });
    drop(in_time("the task ends", task).await.unwrap());
}

#[tokio::test]
async fn a_guard_that_was_handed_over_is_its_new_tasks() {
    let (store, lock) = (store(), key("j"));
    let (first, locked) = (Arc::clone(&store), lock.clone());
    let held = tokio::spawn(async move { asked(&first, &locked, "one").try_acquire().await.unwrap() });
    let held = held.await.unwrap();
    let task = tokio::spawn(async move {
        let before = asked(&store, &lock, "two").try_acquire().await.unwrap_err();
        assert!(matches!(before, LeaseError::Held { .. }), "{before}");
        held.adopt();
        let after = asked(&store, &lock, "two").try_acquire().await.unwrap_err();
        assert!(matches!(after, LeaseError::Reentrant { .. }), "{after}");
    });
    task.await.unwrap();
}

#[tokio::test]
async fn a_blocked_lease_reports_its_reason() {
    let (store, lock) = (store(), key("k"));
    let held = asked(&store, &lock, "one").try_acquire().await.unwrap();
    store.apply(Batch::new().block(held.lease(), "out of paper")).await.unwrap();
    let error = asked(&store, &lock, "two").acquire().await.unwrap_err();
    assert!(matches!(&error, LeaseError::Blocked { reason, .. } if reason == "out of paper"), "{error}");
    let error = held.release().await.unwrap_err();
    assert!(matches!(error, LeaseError::Lost { reason: LostReason::Revoked, .. }), "{error}");
}

#[tokio::test]
async fn a_future_dropped_before_its_grant_is_polled_holds_nothing() {
    let faulty = Faulty::new();
    let (store, lock): (SharedStore, Key) = (faulty.clone(), key("l"));
    faulty.stopped.store(true, Ordering::SeqCst);
    let task = tokio::spawn(asked(&store, &lock, "one").try_acquire());
    until("the claim was granted, and its waiter was not polled", async || {
        faulty.stopped_claims.load(Ordering::SeqCst) == 1
    })
    .await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    faulty.stopped.store(false, Ordering::SeqCst);
    faulty.let_through.notify_one();
    let next = in_time("it is released", asked(&store, &lock, "two").acquire()).await.unwrap();
    drop(next);
}
