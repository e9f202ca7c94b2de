//! The queue is bounded and first-in, first-out, and leaves no caller waiting forever.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_full_queue_makes_callers_wait_outside() {
    let queue = Queue::new(2);
    for n in [1, 2] {
        assert!(poll(pin!(queue.push(n))).is_ready());
    }
    let mut third = pin!(queue.push(3));
    assert!(poll(third.as_mut()).is_pending());
    assert_eq!(queue.take(1), Some(vec![1]));
    assert!(poll(third.as_mut()).is_ready());
    assert_eq!(queue.take(10), Some(vec![2, 3]));
}

#[test]
fn a_caller_that_goes_away_while_it_waits_leaves_nothing_behind() {
    let queue = Queue::new(1);
    assert!(poll(pin!(queue.push(1))).is_ready());
    {
        let mut gone = pin!(queue.push(2));
        assert!(poll(gone.as_mut()).is_pending());
    }
    assert_eq!(queue.take(10), Some(vec![1]));
    assert!(poll(pin!(queue.push(3))).is_ready());
    assert_eq!(queue.take(10), Some(vec![3]));
}

#[test]
fn a_closed_queue_gives_out_what_it_has_and_then_ends() {
    let queue = Queue::new(1);
    assert!(poll(pin!(queue.push(1))).is_ready());
    let mut waiting = pin!(queue.push(2));
    assert!(poll(waiting.as_mut()).is_pending());
    queue.close();
    assert!(matches!(poll(waiting.as_mut()), Poll::Ready(Err(QueueClosed))));
    assert_eq!(queue.take(10), Some(vec![1]));
    assert_eq!(queue.take(10), None);
}

#[test]
fn an_abandoned_queue_drops_its_jobs_so_that_their_callers_hear() {
    let queue = Queue::new(4);
    let (reply, mut answer) = tokio::sync::oneshot::channel::<()>();
    assert!(poll(pin!(queue.push(reply))).is_ready());
    queue.abandon();
    assert!(answer.try_recv().is_err_and(|e| e == tokio::sync::oneshot::error::TryRecvError::Closed));
}
