//! Single-flight calls: equal questions share, others queue, errors reach all callers, and no caller is forgotten.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use tokio::sync::Notify;

use crate::hand::{Hand, assert_free, thing};
use tidelock_core::lock::{FlightError, LockError, Locks, SingleFlight};

type Flights = SingleFlight<&'static str, usize, io::Error>;

#[test]
fn equal_questions_share_one_call_and_others_wait_for_their_turn() {
    let (locks, repo) = (Locks::new(), thing("flight"));
    let flights: Flights = SingleFlight::new(locks.clone());
    let (calls, go) = (AtomicUsize::new(0), Notify::new());
    let call = || async {
        let number = calls.fetch_add(1, Ordering::SeqCst) + 1;
        go.notified().await;
        Ok(number)
    };
    let mut first = Hand::new(flights.run(&repo, "shallow", call));
    let mut attached = Hand::new(flights.run(&repo, "shallow", call));
    let mut other = Hand::new(flights.run(&repo, "deep", call));
    assert!(first.poll().is_pending() && attached.poll().is_pending() && other.poll().is_pending());
    assert_eq!(calls.load(Ordering::SeqCst), 1, "the second shares, the third waits");
    go.notify_one();
    assert!(matches!(first.poll(), Poll::Ready(Ok(1))));
    assert!(attached.is_woken());
    assert!(matches!(attached.poll(), Poll::Ready(Ok(1))));
    assert!(other.poll().is_pending());
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    go.notify_one();
    assert!(matches!(other.poll(), Poll::Ready(Ok(2))));
    let mut later = Hand::new(flights.run(&repo, "shallow", call));
    assert!(later.poll().is_pending());
    assert_eq!(calls.load(Ordering::SeqCst), 3, "a result is not kept");
    drop(later);
    assert_free(&locks);
    assert_eq!(format!("{flights:?}"), "SingleFlight { terms: 0, .. }");
}

#[test]
fn an_error_reaches_all() {
    let (locks, repo) = (Locks::new(), thing("flight-error"));
    let flights: Flights = SingleFlight::new(locks.clone());
    let go = Notify::new();
    let call = || async {
        go.notified().await;
        Err(io::Error::other("no network"))
    };
    let mut first = Hand::new(flights.run(&repo, "q", call));
    let mut second = Hand::new(flights.run(&repo, "q", call));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    go.notify_one();
    for hand in [&mut first, &mut second] {
        let Poll::Ready(Err(FlightError::Failed(error))) = hand.poll() else { panic!("both fail") };
        assert_eq!(error.to_string(), "no network");
    }
    assert_free(&locks);
}

#[test]
fn if_the_one_that_runs_goes_away_another_runs_its_own() {
    let (locks, repo) = (Locks::new(), thing("flight-gone"));
    let flights: Flights = SingleFlight::new(locks.clone());
    let mut gone = Hand::new(flights.run(&repo, "q", std::future::pending));
    let mut second = Hand::new(flights.run(&repo, "q", || async { Ok(2) }));
    let mut third = Hand::new(flights.run(&repo, "q", || async { Ok(3) }));
    assert!(gone.poll().is_pending() && second.poll().is_pending() && third.poll().is_pending());
    drop(gone);
    assert!(second.is_woken() && third.is_woken());
    assert!(matches!(second.poll(), Poll::Ready(Ok(2))));
    assert!(matches!(third.poll(), Poll::Ready(Ok(2 | 3))));
    assert_free(&locks);
}

#[tokio::test]
async fn a_panic_frees_the_key() {
    let (locks, repo) = (Locks::new(), thing("flight-panic"));
    let flights: std::sync::Arc<Flights> = std::sync::Arc::new(SingleFlight::new(locks.clone()));
    let panicking = tokio::spawn({
        let (flights, repo) = (flights.clone(), repo.clone());
        async move {
            let call = || async {
                tokio::task::yield_now().await;
                panic!("as it should")
            };
            flights.run(&repo, "q", call).await.ok()
        }
    });
    tokio::task::yield_now().await;
    assert!(matches!(flights.run(&repo, "q", || async { Ok(5) }).await, Ok(5)));
    assert!(panicking.await.is_err_and(|error| error.is_panic()));
    assert_free(&locks);
}

#[tokio::test]
async fn asking_for_its_own_call_is_reported() {
    let (locks, repo) = (Locks::new(), thing("flight-nested"));
    let flights: Flights = SingleFlight::new(locks.clone());
    let nested = || async {
        match flights.run(&repo, "q", || async { Ok(1) }).await {
            Err(FlightError::Lock(LockError::Reentrant { .. })) => Ok(42),
            other => panic!("it should be reported: {other:?}"),
        }
    };
    assert!(matches!(flights.run(&repo, "q", nested).await, Ok(42)));
    let other = || async {
        match flights.run(&repo, "another question", || async { Ok(1) }).await {
            Err(FlightError::Lock(LockError::Reentrant { .. })) => Ok(43),
            other => panic!("it should be reported: {other:?}"),
        }
    };
    assert!(matches!(flights.run(&repo, "q", other).await, Ok(43)));
    assert_free(&locks);
}
