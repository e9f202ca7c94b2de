//! Hostile callers: wakers that panic, acquire locks and drop guards; futures that move; tasks that wait at several
//! places at once.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::hand::{ALONE, Hand, PULL, asking, assert_free, granted, graph, taking, thing};
use tidelock_core::lock::{LockClass, LockError, Locks, Modes, SingleFlight, declare};

type Deed = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// A waker that runs an action when it wakes, or when its last clone is dropped.
#[derive(Default)]
struct Wicked {
    waking: Deed,
    dropping: Deed,
}

impl Wicked {
    fn dropping(deed: impl FnOnce() + Send + 'static) -> Waker {
        Waker::from(Arc::new(Self { dropping: Mutex::new(Some(Box::new(deed))), waking: Mutex::default() }))
    }

    fn waking(deed: impl FnOnce() + Send + 'static) -> Waker {
        Waker::from(Arc::new(Self { waking: Mutex::new(Some(Box::new(deed))), dropping: Mutex::default() }))
    }
}

impl Wake for Wicked {
    fn wake(self: Arc<Self>) {
        let deed = self.waking.lock().unwrap().take();
        deed.into_iter().for_each(|deed| deed());
    }
}

impl Drop for Wicked {
    fn drop(&mut self) {
        let deed = self.dropping.get_mut().unwrap().take();
        deed.into_iter().for_each(|deed| deed());
    }
}

fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Polls once, inside a task.
async fn once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| match Pin::new(&mut *future).poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(
        |_| if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending },
    )
    .await;
}

/// Runs a test on a separate thread, and returns whether it ended.
fn ends(test: impl FnOnce() + Send + 'static) -> bool {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        test();
        done.send(()).ok();
    });
    ended.recv_timeout(Duration::from_secs(20)).is_ok()
}

#[test]
fn a_waker_may_drop_a_guard_of_the_same_lock_when_it_goes() {
    // The waker owns the future, as in a task that owns its future and is owned by its waker.
    let replaced = [false, true];
    for replaced in replaced {
        assert!(ends(move || {
            let locks: &'static Locks = Box::leak(Box::default());
            let x = Box::leak(Box::new(thing("wicked")));
            let guard = locks.try_lock(&*x).expect("free");
            let waker = Wicked::dropping(move || drop(guard));
            let mut lock = locks.lock(&*x);
            assert!(poll_with(&mut lock, &waker).is_pending());
            drop(waker);
            if replaced {
                let _ = poll_with(&mut lock, Waker::noop());
            }
            drop(lock);
        }));
    }
}

#[test]
fn a_waker_may_drop_a_wait_with_a_deadline_when_it_goes() {
    for replaced in [false, true] {
        assert!(ends(move || {
            let locks: &'static Locks = Box::leak(Box::default());
            let (x, y) = (Box::leak(Box::new(thing("wicked-x"))), Box::leak(Box::new(thing("wicked-y"))));
            let (guard, _other) = (locks.try_lock(&*x).expect("free"), locks.try_lock(&*y).expect("free"));
            let far = Instant::now() + Duration::from_secs(1_000);
            let mut other = locks.lock_before(&*y, far);
            assert!(poll_with(&mut other, Waker::noop()).is_pending());
            let waker = Wicked::dropping(move || drop(other));
            let mut lock = locks.lock_before(&*x, far);
            assert!(poll_with(&mut lock, &waker).is_pending());
            drop(waker);
            drop(guard);
            if replaced {
                let _ = poll_with(&mut lock, Waker::noop());
            }
            drop(lock);
        }));
    }
}

#[test]
fn a_panicking_waker_does_not_stop_other_wakeups() {
    let (locks, g) = (Locks::new(), graph());
    let guard = taking(&locks, g.mode(ALONE));
    let mut bad = locks.lock(g.mode(PULL));
    assert!(poll_with(&mut bad, &Wicked::waking(|| panic!("as it should"))).is_pending());
    let mut good = asking(&locks, g.mode(PULL));
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(guard)));
    assert!(dropped.is_err(), "the panic is not swallowed");
    drop(granted(&mut good));
    drop(bad);
    assert_free(&locks);
}

#[test]
fn a_waker_that_panics_does_not_stop_the_clock() {
    let (locks, x) = (Locks::new(), thing("clock"));
    let _guard = taking(&locks, &x);
    let (rung, ringing) = std::sync::mpsc::channel();
    let mut bad = locks.lock_before(&x, Instant::now() + Duration::from_millis(200));
    let waker = Wicked::waking(move || {
        rung.send(()).ok();
        panic!("as it should");
    });
    assert!(poll_with(&mut bad, &waker).is_pending());
    ringing.recv_timeout(Duration::from_secs(20)).expect("it rings");
    let (rung, ringing) = std::sync::mpsc::channel();
    let mut next = locks.lock_before(&x, Instant::now() + Duration::from_millis(200));
    assert!(poll_with(&mut next, &Wicked::waking(move || rung.send(()).unwrap_or_default())).is_pending());
    ringing.recv_timeout(Duration::from_secs(20)).expect("and rings again");
    assert!(matches!(poll_with(&mut next, Waker::noop()), Poll::Ready(Err(LockError::TimedOut { .. }))));
}

#[test]
fn a_hand_off_that_closes_a_cycle_fails_the_waiter() {
    let (locks, x, y) = (Locks::new(), thing("hand-x"), thing("hand-y"));
    let guard = taking(&locks, &x);
    let mut other = Hand::new(async {
        let _y = locks.lock(&y).await?;
        yield_once().await;
        locks.lock(&x).await.map(|_| ())
    });
    assert!(other.poll().is_pending());
    let mut task = Hand::new(async {
        let mut first = locks.lock(&x);
        assert!(once(&mut first).await.is_none(), "it waits for x, and is not polled again");
        locks.lock(&y).await.map(|_| ())
    });
    assert!(task.poll().is_pending() && other.poll().is_pending());
    drop(guard);
    assert!(task.is_woken());
    assert!(matches!(task.poll(), Poll::Ready(Err(LockError::Deadlock { .. }))));
    drop(task);
    assert!(matches!(other.poll(), Poll::Ready(Ok(()))));
    assert_free(&locks);
}

#[test]
fn two_locks_of_one_join_may_close_a_cycle_when_one_is_granted() {
    let (locks, x, z) = (Locks::new(), thing("join-x"), thing("join-z"));
    let guard = taking(&locks, &x);
    let mut other = Hand::new(async {
        let _z = locks.lock(&z).await?;
        yield_once().await;
        locks.lock(&x).await.map(|_| ())
    });
    assert!(other.poll().is_pending());
    let mut both = Hand::new(async { tokio::try_join!(locks.lock(&x), locks.lock(&z)).map(|_| ()) });
    assert!(both.poll().is_pending() && other.poll().is_pending());
    drop(guard);
    assert!(matches!(both.poll(), Poll::Ready(Err(LockError::Deadlock { .. }))));
    drop(both);
    assert!(matches!(other.poll(), Poll::Ready(Ok(()))));
    assert_free(&locks);
}

#[test]
fn a_concurrent_second_request_is_rejected_while_another_task_holds_the_lock() {
    let (locks, x) = (Locks::new(), thing("twice-at-once"));
    let guard = taking(&locks, &x);
    let mut both = Hand::new(async { tokio::join!(locks.lock(&x), locks.lock(&x)).1.map(|_| ()) });
    assert!(both.poll().is_pending());
    drop(guard);
    let Poll::Ready(Err(error)) = both.poll() else { panic!("a silent hang") };
    assert!(error.is_reentrant());
    assert_free(&locks);
}

#[test]
fn adopting_may_close_a_cycle() {
    let (locks, x, y) = (Locks::new(), thing("adopt-x"), thing("adopt-y"));
    let guard = taking(&locks, &x).into_owned();
    let mut other = Hand::new(async {
        let _y = locks.lock(&y).await?;
        yield_once().await;
        locks.lock(&x).await.map(|_| ())
    });
    assert!(other.poll().is_pending() && other.poll().is_pending());
    let mut task = Hand::new(async {
        let mut second = locks.lock(&y);
        assert!(once(&mut second).await.is_none());
        guard.adopt();
        let told = second.await.map(|_| ());
        drop(guard);
        told
    });
    assert!(matches!(task.poll(), Poll::Ready(Err(LockError::Deadlock { .. }))));
    assert!(matches!(other.poll(), Poll::Ready(Ok(()))));
    assert_free(&locks);
}

#[test]
fn a_wait_that_moves_to_another_task_belongs_to_that_one() {
    let (locks, x) = (Locks::new(), thing("moving"));
    let guard = taking(&locks, &x);
    let mut lock = locks.lock(&x);
    assert!(matches!(Hand::new(once(&mut lock)).poll(), Poll::Ready(None)));
    drop(guard);
    let mut second = Hand::new(async {
        let _guard = lock.await?;
        locks.lock(&x).await.map(|_| ())
    });
    let Poll::Ready(Err(error)) = second.poll() else { panic!("a silent hang") };
    assert!(error.is_reentrant(), "{error}");
    assert_free(&locks);
}

#[test]
fn polled_again_after_its_answer_it_asks_again() {
    let (locks, x) = (Locks::new(), thing("again"));
    let mut lock = locks.lock(&x);
    let first = poll_with(&mut lock, Waker::noop());
    assert!(matches!(first, Poll::Ready(Ok(_))));
    assert!(poll_with(&mut lock, Waker::noop()).is_pending());
    drop(first);
    assert!(matches!(poll_with(&mut lock, Waker::noop()), Poll::Ready(Ok(_))));
    drop(lock);
    assert_free(&locks);
}

#[test]
fn unidentified_tasks_are_not_treated_as_one() {
    let (locks, x) = (Locks::new(), thing("unknown"));
    let (mut one, mut other) = (locks.lock(&x), locks.lock(&x));
    let Poll::Ready(Ok(guard)) = poll_with(&mut one, Waker::noop()) else { panic!("free") };
    assert!(poll_with(&mut other, Waker::noop()).is_pending());
    drop(guard);
    assert!(matches!(poll_with(&mut other, Waker::noop()), Poll::Ready(Ok(_))));
}

#[test]
fn asking_again_is_reentrant_whatever_the_ranks() {
    static LOW: LockClass = LockClass::new("hostile-low").rank(10);
    static HIGH: LockClass = LockClass::new("hostile-high").rank(20);
    let locks = Locks::new();
    let (low, high) = (LOW.key(["a"]).unwrap(), HIGH.key(["a"]).unwrap());
    let mut task = Hand::new(async {
        let _held = (locks.lock(&low).await?, locks.lock(&high).await?);
        locks.lock(&low).await.map(|_| ())
    });
    assert!(matches!(task.poll(), Poll::Ready(Err(LockError::Reentrant { .. }))));
}

macro_rules! two_in_one_place {
    ($one:ident, $other:ident) => {
        static $one: LockClass = LockClass::new("one-place");
        static $other: LockClass = LockClass::new("one-place").modes(Modes::READ_WRITE);
    };
}
two_in_one_place!(ONE, OTHER);

#[test]
fn two_functors_of_one_macro_with_other_modes_are_two() {
    assert!(declare(&[&ONE, &OTHER]).is_err());
}

type Calls = SingleFlight<&'static str, usize, std::io::Error>;

fn failed<E: std::fmt::Display>(error: E) -> std::io::Error {
    std::io::Error::other(error.to_string())
}

#[test]
fn calls_that_wait_for_each_other_get_an_error() {
    let (calls, s, t): (Calls, _, _) = (SingleFlight::new(Locks::new()), thing("call-s"), thing("call-t"));
    let mut one = Hand::new(calls.run(&s, "q", || async {
        yield_once().await;
        calls.run(&t, "q", || async { Ok(1) }).await.map_err(failed)
    }));
    let mut other = Hand::new(calls.run(&t, "q", || async {
        yield_once().await;
        calls.run(&s, "q", || async { Ok(1) }).await.map_err(failed)
    }));
    assert!(one.poll().is_pending() && other.poll().is_pending());
    assert!(one.poll().is_pending());
    let Poll::Ready(Err(error)) = other.poll() else { panic!("a silent hang") };
    assert!(error.to_string().starts_with("deadlock: "), "{error}");
    assert!(matches!(one.poll(), Poll::Ready(Err(_))), "every caller that shares the call gets the error");
}

#[test]
fn a_follower_that_holds_the_lock_of_the_call_gets_an_error() {
    let (locks, s, y) = (Locks::new(), thing("hold-s"), thing("hold-y"));
    let calls: Calls = SingleFlight::new(locks.clone());
    let mut leader = Hand::new(calls.run(&s, "q", || async {
        yield_once().await;
        let _y = locks.lock(&y).await.map_err(failed)?;
        Ok(1)
    }));
    let mut follower = Hand::new(async {
        let _y = locks.lock(&y).await.map_err(failed)?;
        calls.run(&s, "q", || async { Ok(2) }).await.map_err(failed)
    });
    assert!(leader.poll().is_pending() && follower.poll().is_pending());
    assert!(matches!(leader.poll(), Poll::Ready(Err(_))));
    assert!(follower.poll().is_ready());
    assert_free(&locks);
}

/// A question that uses the calls when it is dropped, and equals no other.
#[derive(Clone)]
struct Odd(Arc<Mutex<Option<OddCalls>>>);

type OddCalls = Arc<SingleFlight<Odd, usize, std::io::Error>>;

impl PartialEq for Odd {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl Drop for Odd {
    fn drop(&mut self) {
        if let Some(calls) = &*self.0.lock().unwrap() {
            assert!(format!("{calls:?}").starts_with("SingleFlight"));
        }
    }
}

#[test]
fn an_odd_question_leaves_nothing_behind() {
    assert!(ends(|| {
        let slot = Arc::new(Mutex::new(None));
        let calls = Arc::new(SingleFlight::new(Locks::new()));
        *slot.lock().unwrap() = Some(Arc::clone(&calls));
        let s = thing("odd");
        let run = Hand::new(calls.run(&s, Odd(Arc::clone(&slot)), || async { Ok(1) })).poll();
        assert!(matches!(run, Poll::Ready(Ok(1))));
        assert_eq!(format!("{calls:?}"), "SingleFlight { terms: 0, .. }");
    }));
}

#[test]
fn many_readers_and_many_writers_are_no_cliff() {
    // Quadratic work of any weight would take minutes here.
    let (locks, g) = (Locks::new(), graph());
    let begun = Instant::now();
    let readers: Vec<_> = (0..2_000).map(|_| taking(&locks, g.mode(PULL))).collect();
    let writers: Vec<_> = (0..2_000).map(|_| asking(&locks, g.mode(ALONE))).collect();
    assert_eq!(locks.snapshot().edges().take(10).count(), 10);
    drop((readers, writers));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_free(&locks);
}
