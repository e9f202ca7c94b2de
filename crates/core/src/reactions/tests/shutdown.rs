//! Shutdown of reactions, graceful and immediate.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::*;

/// A reaction whose handlers report that they have started, and wait until they are released.
fn waiting(name: &str, begun: &Arc<AtomicUsize>, go_on: &Arc<Notify>) -> Reaction {
    let (begun, go_on) = (Arc::clone(begun), Arc::clone(go_on));
    Reaction::new(name).each(move |_, event| {
        let (begun, go_on) = (Arc::clone(&begun), Arc::clone(&go_on));
        async move {
            begun.fetch_add(1, Ordering::SeqCst);
            go_on.notified().await;
            Ok(note(&event))
        }
    })
}

#[tokio::test]
async fn a_shutdown_lets_the_present_event_end_and_hands_the_rest_back() {
    let (store, stream) = (store(), key("s"));
    let (begun, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    append(&store, &stream, 0..3).await;
    let running = reactions(&store).with(waiting("r", &begun, &go_on)).start().await.unwrap();
    until("it has begun", async || begun.load(Ordering::SeqCst) == 1).await;
    let ending = tokio::spawn(running.shutdown());
    tokio::task::yield_now().await;
    go_on.notify_one();
    let stats = in_time("it ends", ending).await.unwrap();
    assert_eq!((stats.reactions["r"].handled, noted(&store).await), (1, vec![0]));
    let row = row(&store, "r", &stream).await;
    assert_eq!((row.lease, row.attempts), (None, 0), "the rest is handed back, and no attempt is lost");
    assert!(row.due.is_some());
    let held = WorkFilter { leased: Some(true), ..WorkFilter::default() };
    assert_eq!(store.count_work(&held).await.unwrap(), 0, "so is the router's row");
}

#[tokio::test]
async fn a_handler_that_outlasts_the_grace_period_is_aborted_and_its_row_released() {
    let (store, stream) = (store(), key("s"));
    let (begun, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    append(&store, &stream, 0..3).await;
    let hasty = reactions(&store).shutdown_timeout(Duration::from_millis(1));
    let running = hasty.with(waiting("r", &begun, &go_on)).start().await.unwrap();
    until("it has begun", async || begun.load(Ordering::SeqCst) == 1).await;
    in_time("it ends", running.shutdown()).await;
    let row = row(&store, "r", &stream).await;
    assert_eq!((row.lease, row.attempts, noted(&store).await), (None, 0, vec![]));
}

#[tokio::test]
async fn dropped_reactions_stop_at_once_and_leave_their_leases() {
    let (store, stream) = (store(), key("s"));
    let (begun, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    append(&store, &stream, 0..3).await;
    let running = reactions(&store).with(waiting("r", &begun, &go_on)).start().await.unwrap();
    until("it has begun", async || begun.load(Ordering::SeqCst) == 1).await;
    running.abort().await;
    until("the handler is gone", async || Arc::strong_count(&go_on) == 1).await;
    go_on.notify_one();
    assert!(row(&store, "r", &stream).await.lease.is_some());
    append(&store, &key("other"), [9]).await;
    assert_eq!((noted(&store).await, begun.load(Ordering::SeqCst)), (vec![], 1));
}
