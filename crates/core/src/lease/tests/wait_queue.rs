//! Tests of waiting: in order, past dead waiters, and without a trace of waiters that left.

use super::*;
use crate::payload::Payload;

#[tokio::test]
async fn waiters_are_granted_in_the_order_of_arrival() {
    let (store, lock) = (store(), key("order"));
    let held = asked(&store, &lock, "first").try_acquire().await.unwrap();
    let mut tasks = Vec::new();
    for i in 0..20 {
        tasks.push(in_line(&store, &lock, &format!("w{i:02}")).await);
    }
    let names: Vec<String> = (0..20).map(|i| format!("w{i:02}")).collect();
    assert_eq!(waiting(&store, &lock).await, names);
    let (order, granted) = (Arc::new(parking_lot::Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = tasks
        .into_iter()
        .map(|task| {
            let (order, granted) = (Arc::clone(&order), Arc::clone(&granted));
            tokio::spawn(async move {
                let held = task.await.unwrap().unwrap();
                assert_eq!(granted.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                order.lock().push(given_part(held.owner()));
                granted.fetch_sub(1, Ordering::SeqCst);
                held.release().await.unwrap();
            })
        })
        .collect();
    held.release().await.unwrap();
    for task in tasks {
        in_time("every waiter is granted the lease", task).await.unwrap();
    }
    assert_eq!(*order.lock(), names);
    until("no place is left", async || store.count_work(&WorkFilter::default()).await.unwrap() == 0).await;
}

#[tokio::test]
async fn no_newcomer_overtakes_the_queue() {
    let (store, lock) = (store(), key("queue"));
    let held = asked(&store, &lock, "first").try_acquire().await.unwrap();
    let waiter = in_line(&store, &lock, "waiter").await;
    let asking = tokio::spawn(asked(&store, &lock, "hasty").try_acquire());
    let LeaseError::Waited { waiters, .. } = asking.await.unwrap().unwrap_err() else { panic!() };
    assert_eq!(waiters.iter().map(|w| given_part(&w.owner)).collect::<Vec<_>>(), ["waiter"]);
    held.release().await.unwrap();
    let granted = in_time("the waiter is granted", waiter).await.unwrap().unwrap();
    let error = asked(&store, &lock, "hasty").try_acquire().await.unwrap_err();
    assert!(matches!(error, LeaseError::Held { .. }), "the holder has left the queue: {error}");
    drop(granted);
}

/// Creates a place whose owner is dead, so that it is never renewed.
async fn dead_waiter(store: &SharedStore, lock: &Key, ttl: Duration) -> Key {
    let place = keys::place(lock).unwrap();
    let claim = Claim::named(&owner("dead/1"), &place, &keys::waits().unwrap(), ttl);
    assert_eq!(store.claim(claim).await.unwrap().grants.len(), 1);
    place
}

#[tokio::test]
async fn a_dead_waiter_is_passed_over_and_removed() {
    let (store, lock) = (store(), key("dead"));
    let held = asked(&store, &lock, "first").try_acquire().await.unwrap();
    let places = [
        dead_waiter(&store, &lock, Duration::from_millis(300)).await,
        dead_waiter(&store, &lock, Duration::from_millis(100)).await,
    ];
    let waiter = in_line(&store, &lock, "alive").await;
    held.release().await.unwrap();
    let granted = in_time("the living are granted", waiter).await.unwrap().unwrap();
    for place in places {
        assert_eq!(store.work(&place).await.unwrap(), None);
    }
    drop(granted);
}

#[tokio::test]
async fn a_living_place_in_front_keeps_those_behind_waiting() {
    let (store, lock) = (store(), key("ahead"));
    let place = dead_waiter(&store, &lock, LONG).await;
    let waiter = in_line(&store, &lock, "behind").await;
    let error = asked(&store, &lock, "hasty").try_acquire().await.unwrap_err();
    assert!(matches!(error, LeaseError::Waited { .. }), "{error}");
    assert!(
        view_of(&store, &lock).await.unwrap().holder.is_none(),
        "the lease is free, and no newcomer overtakes"
    );
    assert!(!waiter.is_finished());
    let gone = Batch::new().operate(Selection::Keys(vec![place]), Operation::Remove);
    store.apply(gone).await.unwrap();
    drop(in_time("it is the first now", waiter).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_dropped_waiter_leaves_the_line() {
    let (store, lock) = (store(), key("leave"));
    let held = asked(&store, &lock, "first").try_acquire().await.unwrap();
    let leaver = in_line(&store, &lock, "leaver").await;
    let waiter = in_line(&store, &lock, "waiter").await;
    leaver.abort();
    until("it has left", async || waiting(&store, &lock).await == ["waiter"]).await;
    held.release().await.unwrap();
    drop(in_time("the next is granted", waiter).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_waiter_dropped_after_its_grant_releases() {
    let (store, lock) = (store(), key("late"));
    let held = asked(&store, &lock, "first").try_acquire().await.unwrap();
    // A separate scope, because this task holds the lease.
    let mut leaver = Box::pin(crate::lock::scope(asked(&store, &lock, "leaver").acquire()));
    let begin = tokio::time::timeout(Duration::from_millis(1), leaver.as_mut());
    assert!(begin.await.is_err(), "it waits");
    until("it stands in line", async || waiting(&store, &lock).await == ["leaver"]).await;
    held.release().await.unwrap();
    let granted = async || {
        let holder = view_of(&store, &lock).await.and_then(|view| view.holder);
        holder.is_some_and(|holder| given_part(&holder.owner) == "leaver")
    };
    until("it is granted, and has not heard of it", granted).await;
    drop(leaver);
    drop(in_time("the next is granted", asked(&store, &lock, "next").acquire()).await.unwrap());
}

#[tokio::test]
async fn a_wait_ends_at_its_deadline_and_is_never_granted_later() {
    let (store, lock) = (store(), key("deadline"));
    let held = asked(&store, &lock, "first").try_acquire().await.unwrap();
    let deadline = Instant::now() + Duration::from_millis(100);
    let waiting_until = tokio::spawn(asked(&store, &lock, "late").acquire_before(deadline));
    let error = in_time("the deadline", waiting_until).await.unwrap().unwrap_err();
    assert!(matches!(&error, LeaseError::TimedOut { key, .. } if *key == lock), "{error}");
    assert!(Instant::now() >= deadline);
    until("it has left the line", async || waiting(&store, &lock).await.is_empty()).await;
    held.release().await.unwrap();
    let next = asked(&store, &lock, "next").try_acquire().await.unwrap();
    assert_eq!(view_of(&store, &lock).await.unwrap().takeovers, 0);
    drop(next);
}

#[tokio::test]
async fn a_grant_that_comes_after_the_deadline_is_given_back() {
    let faulty = Faulty::new();
    let (store, lock): (SharedStore, Key) = (faulty.clone(), key("too-late"));
    faulty.stopped.store(true, Ordering::SeqCst);
    // On a busy machine the deadline may pass before the claim starts. The next attempt then has more time.
    for millis in [50, 500, 5_000, 20_000] {
        let deadline = Instant::now() + Duration::from_millis(millis);
        let late = asked(&store, &lock, "late").acquire_before(deadline);
        let error = in_time("the deadline", late).await.unwrap_err();
        assert!(matches!(error, LeaseError::TimedOut { .. }), "{error}");
        if faulty.stopped_claims.load(Ordering::SeqCst) > 0 {
            break;
        }
    }
    assert_eq!(
        faulty.stopped_claims.load(Ordering::SeqCst),
        1,
        "the claim was granted, and its waiter was not polled"
    );
    faulty.stopped.store(false, Ordering::SeqCst);
    faulty.let_through.notify_one();
    drop(in_time("it was given back", asked(&store, &lock, "next").acquire()).await.unwrap());
}

#[tokio::test]
async fn a_waiter_whose_entry_was_removed_queues_at_the_end_again() {
    let (store, lock) = (store(), key("place"));
    let held = asked(&store, &lock, "first").try_acquire().await.unwrap();
    let unlucky = in_line(&store, &lock, "unlucky").await;
    let filter = WorkFilter { queue: Some(keys::waits().unwrap()), ..WorkFilter::default() };
    store.apply(Batch::new().operate(Selection::Filter(filter), Operation::Remove)).await.unwrap();
    let other = in_line(&store, &lock, "other").await;
    until("it is back", async || waiting(&store, &lock).await == ["other", "unlucky"]).await;
    held.release().await.unwrap();
    in_time("the other", other).await.unwrap().unwrap().release().await.unwrap();
    drop(in_time("the unlucky", unlucky).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_store_that_fails_for_a_moment_does_not_end_a_wait() {
    let faulty = Faulty::new();
    let (store, lock): (SharedStore, Key) = (faulty.clone(), key("fails"));
    let held = asked(&store, &lock, "first").try_acquire().await.unwrap();
    let place = dead_waiter(&store, &lock, Duration::from_millis(100)).await;
    let waiter = in_line(&store, &lock, "waiter").await;
    faulty.break_writes(true);
    let taken = async || store.work(&place).await.unwrap().is_none_or(|row| row.takeovers > 0);
    until("the dead place cannot be removed", taken).await;
    faulty.break_writes(false);
    held.release().await.unwrap();
    drop(in_time("the waiter acquires the lease", waiter).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_tasks_never_overlap() {
    let (store, lock) = (store(), key("many"));
    let document = key("count");
    let inside = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..100)
        .map(|i| {
            let (store, lock, document) = (Arc::clone(&store), lock.clone(), document.clone());
            let inside = Arc::clone(&inside);
            tokio::spawn(async move {
                let held = asked(&store, &lock, &format!("t{i}")).acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                let read = store.document(&document).await.unwrap();
                let count: i64 = read.map_or(0, |document| document.value.parse().unwrap());
                tokio::task::yield_now().await;
                // A blind write after a read is correct only if no other task is inside.
                let write = Batch::new().put(&document, Expect::Any, Payload::of(&(count + 1)).unwrap());
                store.apply(held.guard(write).unwrap()).await.unwrap();
                inside.fetch_sub(1, Ordering::SeqCst);
                held.release().await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        in_time("every task has its turn", task).await.unwrap();
    }
    let count: i64 = store.document(&document).await.unwrap().unwrap().value.parse().unwrap();
    assert_eq!(count, 100);
}
