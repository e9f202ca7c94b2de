//! Lock detection (L3, L4, L13, L15): errors instead of hangs, and no false alarms.

use std::task::Poll;

use crate::hand::{ALONE, Hand, OBSERVE, PULL, asking, assert_free, granted, graph, taking, thing};
use tidelock_core::error::Explain as _;
use tidelock_core::lock::{LockClass, LockError, Locks, TaskId, scope};

static LOW: LockClass = LockClass::new("low").rank(10);
static HIGH: LockClass = LockClass::new("high").rank(20);

#[tokio::test]
async fn l3_a_re_entrant_request_fails_with_both_places() {
    let (locks, x) = (Locks::new(), thing("l3"));
    let line = line!() + 1;
    let guard = locks.lock(&x).await.expect("free");
    let error = locks.lock(&x).await.expect_err("held by this task");
    let text = error.to_string();
    assert!(text.contains(&format!("detection.rs:{line}:")), "{text}");
    assert!(text.contains(&format!("detection.rs:{}:", line + 1)), "{text}");
    assert_eq!(error.code().as_str(), "TL0501");
    assert!(locks.try_lock(&x).is_err_and(|error| error.is_reentrant()));
    assert!(locks.with(&x, async {}).await.is_err_and(|error| error.is_reentrant()));
    drop(guard);
    // At the root and in a task, also when the first hold was acquired by try_lock.
    let task = tokio::spawn(async move {
        let _guard = locks.try_lock(&x).expect("free");
        locks.lock(&x).await.err().map(|error| error.is_reentrant())
    });
    assert_eq!(task.await.expect("no panic"), Some(true));
}

struct Nothing;
impl std::task::Wake for Nothing {
    fn wake(self: std::sync::Arc<Self>) {}
}

#[tokio::test]
async fn l4_nested_in_the_same_mode_is_reported_while_another_mode_waits() {
    let (locks, g) = (Locks::new(), graph());
    let guard = locks.lock(g.mode(PULL)).await.expect("free");
    let mut observer = asking(&locks, g.mode(OBSERVE));
    assert!(locks.lock(g.mode(PULL)).await.is_err_and(|error| error.is_reentrant()));
    let mut other = asking(&locks, g.mode(PULL));
    drop(guard);
    drop(granted(&mut observer));
    drop(granted(&mut other));
    assert_free(&locks);
}

#[tokio::test]
async fn l13_locking_against_the_rank_is_an_error() {
    let locks = Locks::new();
    let (low, high) = (LOW.key(["a"]).expect("once"), HIGH.key(["b"]).expect("once"));
    let first = locks.lock(&low).await.expect("free");
    let second = locks.lock(&high).await.expect("in order");
    drop(first);
    let error = locks.lock(&low).await.expect_err("against the order");
    assert!(matches!(&error, LockError::OutOfOrder { rank: 10, above_rank: 20, .. }), "{error}");
    assert!(locks.try_lock(&low).is_err());
    let same = LOW.key(["c"]).expect("once");
    drop(second);
    let first = locks.lock(&low).await.expect("nothing above is held");
    assert!(
        matches!(locks.lock(&same).await, Err(LockError::OutOfOrder { .. })),
        "equal ranks have no order"
    );
    let unranked = locks.lock(&thing("l13")).await.expect("outside of the order");
    drop((first, unranked));
    let other = tokio::spawn({
        let (locks, high) = (locks.clone(), high.clone());
        async move { locks.lock(&high).await.is_ok() }
    });
    assert!(other.await.expect("no panic"), "ranks are each task's own");
    assert_free(&locks);
}

#[test]
fn l15_one_waiter_of_a_cycle_gets_the_error_and_the_other_continues() {
    let (locks, x, y) = (Locks::new(), thing("x"), thing("y"));
    let mut a = Hand::new(async {
        let _x = locks.lock(&x).await.expect("free");
        yield_once().await;
        let error = locks.lock(&y).await.expect_err("b holds it");
        error.to_string()
    });
    let mut b = Hand::new(async {
        let _y = locks.lock(&y).await.expect("free");
        yield_once().await;
        let _x = locks.lock(&x).await.expect("a lets go");
    });
    assert!(a.poll().is_pending() && b.poll().is_pending());
    assert!(b.poll().is_pending(), "b waits for x");
    let Poll::Ready(text) = a.poll() else { panic!("a closes the cycle and gets the error") };
    assert!(text.starts_with("deadlock: scope "), "{text}");
    assert!(text.contains(r#"thing("y")"#) && text.contains(r#"thing("x")"#), "{text}");
    assert_eq!(b.poll(), Poll::Ready(()));
    assert_free(&locks);
}

#[test]
fn l15_a_cycle_of_a_hundred_is_found() {
    let locks = Locks::new();
    let terms: Vec<_> = (0..100).map(|i| thing(&format!("ring-{i}"))).collect();
    let mut tasks: Vec<_> = (0..100)
        .map(|i| {
            let (locks, mine, next) = (&locks, &terms[i], &terms[(i + 1) % 100]);
            Hand::new(async move {
                let _mine = locks.lock(mine).await.expect("free");
                yield_once().await;
                locks.lock(next).await.map(|_| ())
            })
        })
        .collect();
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    let (last, others) = tasks.split_last_mut().expect("a hundred");
    assert!(others.iter_mut().all(|task| task.poll().is_pending()));
    let Poll::Ready(Err(LockError::Deadlock { cycle })) = last.poll() else { panic!("it closes the cycle") };
    assert_eq!(cycle.0.len(), 100);
    for pair in cycle.0.windows(2) {
        assert_eq!(pair[0].holder, pair[1].task);
    }
    assert_eq!(cycle.0.last().map(|link| link.holder), cycle.0.first().map(|link| link.task));
    for task in others.iter_mut().rev() {
        assert!(matches!(task.poll(), Poll::Ready(Ok(()))));
    }
    assert_free(&locks);
}

#[test]
fn a_cycle_through_the_queue_is_found() {
    // A writer in front blocks the reader. A reader that waits for the first task's key blocks the writer.
    let (locks, g, y) = (Locks::new(), graph(), thing("queue-y"));
    let mut holder = Hand::new(async {
        let _g = locks.lock(g.mode(PULL)).await.expect("free");
        yield_once().await;
        locks.lock(&y).await.map(|_| ())
    });
    assert!(holder.poll().is_pending());
    let mut reader = Hand::new(async {
        let _y = locks.lock(&y).await.expect("free");
        yield_once().await;
        locks.lock(g.mode(PULL)).await.map(|_| ())
    });
    assert!(reader.poll().is_pending());
    let mut writer = asking(&locks, g.mode(ALONE));
    assert!(holder.poll().is_pending(), "it waits for y");
    let Poll::Ready(Err(LockError::Deadlock { cycle })) = reader.poll() else {
        panic!("it closes the cycle")
    };
    assert_eq!(cycle.0.len(), 2);
    assert!(matches!(holder.poll(), Poll::Ready(Ok(()))));
    drop(granted(&mut writer));
    assert_free(&locks);
}

#[test]
fn waiting_behind_a_compatible_reader_that_waits_for_me_is_no_cycle() {
    // The reader waits for y, which the other task holds. The other task may read concurrently, so nothing blocks it.
    let (locks, g, y) = (Locks::new(), graph(), thing("fine-y"));
    let mut first = Hand::new(async {
        let _g = locks.lock(g.mode(PULL)).await.expect("free");
        yield_once().await;
        locks.lock(&y).await.map(|_| ())
    });
    assert!(first.poll().is_pending());
    let mut second = Hand::new(async {
        let _y = locks.lock(&y).await.expect("free");
        yield_once().await;
        locks.lock(g.mode(PULL)).await.map(|_| ())
    });
    assert!(second.poll().is_pending());
    assert!(first.poll().is_pending());
    assert!(matches!(second.poll(), Poll::Ready(Ok(()))));
    assert!(matches!(first.poll(), Poll::Ready(Ok(()))));
    assert_free(&locks);
}

#[test]
fn hand_over_hand_is_no_alarm() {
    let locks = Locks::new();
    let chain: Vec<_> = (0..50).map(|i| thing(&format!("chain-{i}"))).collect();
    let walk = || {
        Hand::new(async {
            let mut guard = locks.lock(&chain[0]).await?;
            for next in &chain[1..] {
                let ahead = locks.lock(next).await?;
                drop(std::mem::replace(&mut guard, ahead));
                yield_once().await;
            }
            Ok::<_, LockError>(())
        })
    };
    let mut walkers: Vec<_> = (0..20).map(|_| walk()).collect();
    let mut rounds = 0;
    while !walkers.is_empty() {
        walkers.retain_mut(|walker| match walker.poll() {
            Poll::Pending => true,
            Poll::Ready(result) => {
                result.expect("no false alarm");
                false
            }
        });
        rounds += 1;
        assert!(rounds < 10_000, "they hang");
    }
    assert_free(&locks);
}

#[tokio::test]
async fn a_guard_that_moves_belongs_to_the_task_that_adopts_it() {
    let (locks, x) = (Locks::new(), thing("moved"));
    let guard = locks.lock(&x).await.expect("free").into_owned();
    // The guard belongs to no task, so this task may wait for it.
    let mut waiting = Box::pin(locks.lock(&x));
    assert!(futures_poll(&mut waiting).is_pending());
    let other = tokio::spawn({
        let (locks, x) = (locks.clone(), x.clone());
        async move {
            guard.adopt();
            let again = locks.lock(&x).await.err().map(|error| error.is_reentrant());
            drop(guard);
            again
        }
    });
    assert_eq!(other.await.expect("no panic"), Some(true), "it is the other task's now");
    drop(waiting.await.expect("let in"));
    let owned = locks.lock_owned(&x).await.expect("free");
    owned.adopt();
    assert!(locks.lock(&x).await.is_err_and(|error| error.is_reentrant()));
    owned.detach();
    assert!(locks.try_lock(&x).is_err_and(|error| error.is_busy()));
    drop(owned);
    assert_free(&locks);
}

#[tokio::test]
async fn branches_in_scopes_are_tasks_of_their_own() {
    let (locks, x) = (Locks::new(), thing("branches"));
    let branch = || {
        scope(async {
            let _guard = locks.lock(&x).await?;
            tokio::task::yield_now().await;
            Ok::<_, LockError>(TaskId::current())
        })
    };
    let (one, two) = tokio::join!(branch(), branch());
    assert_ne!(one.expect("no alarm"), two.expect("no alarm"));
    assert_free(&locks);
}

#[test]
fn ranks_follow_a_guard_that_moves() {
    let locks = Locks::new();
    let (low, high) = (LOW.key(["move"]).expect("once"), HIGH.key(["move"]).expect("once"));
    let mut task = Hand::new(async {
        let guard = locks.lock(&high).await.expect("free");
        guard.detach();
        let low = locks.lock(&low).await.is_ok();
        guard.adopt();
        let again = locks.lock(&LOW.key(["other"]).expect("once")).await.is_ok();
        (low, again)
    });
    assert_eq!(task.poll(), Poll::Ready((true, false)));
    drop(taking(&locks, low.mode(ALONE)));
    assert_free(&locks);
}

async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(
        |_| if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending },
    )
    .await;
}

fn futures_poll<F: std::future::Future>(future: &mut std::pin::Pin<Box<F>>) -> Poll<F::Output> {
    let waker = std::task::Waker::from(std::sync::Arc::new(Nothing));
    future.as_mut().poll(&mut std::task::Context::from_waker(&waker))
}
