//! Group-commit delay: the writer waits when it pays, and stops waiting when it does not.
//!
//! Only here: PostgreSQL's committers cannot be given a clock.

use std::cell::Cell;

use super::*;

const FLUSH: Duration = Duration::from_secs(1);

/// A clock that moves by this much with every reading.
fn ticking(step: Duration) -> impl Fn() -> Instant {
    let (start, ticks) = (Instant::now(), Cell::new(0));
    move || {
        ticks.set(ticks.get() + 1);
        start + step * ticks.get()
    }
}

fn slowly() -> impl Fn() -> Instant {
    ticking(Duration::from_micros(1))
}

/// A queue to which one caller is added at every second poll.
fn arriving() -> impl Fn() -> usize {
    let looks = Cell::new(0);
    move || {
        looks.set(looks.get() + 1);
        looks.get() / 2
    }
}

#[test]
fn it_waits_for_all_who_are_expected_while_they_keep_coming() {
    let mut company = CommitDelay::default();
    company.anticipate(60, 4);
    assert_eq!(company.expected, 58);
    let queued = arriving();
    company.wait_by(slowly(), &queued, FLUSH);
    assert!(queued() >= 58);
    assert_eq!(company.in_vain, 0);
}

#[test]
fn fruitless_delays_suspend_it() {
    let mut company = CommitDelay::default();
    for _ in 0..IN_VAIN {
        company.anticipate(10, 0);
        company.wait_by(slowly(), || 3, FLUSH);
    }
    assert_eq!(company.on_break, BREAK);
    // While the delay is suspended, the queue is polled only once.
    for _ in 0..BREAK {
        company.anticipate(10, 0);
        let looks = Cell::new(1);
        company.wait_by(slowly(), || looks.replace(looks.get() + 1), FLUSH);
        assert_eq!(looks.get(), 2);
    }
    // Afterwards it tries again.
    company.anticipate(10, 0);
    let queued = arriving();
    company.wait_by(slowly(), &queued, FLUSH);
    assert!(queued() >= 9);
}

#[test]
fn a_lone_caller_and_those_who_are_there_already_never_wait() {
    let mut company = CommitDelay::default();
    for (answered, waiting) in [(1, 1), (0, 1), (5, 9)] {
        company.anticipate(answered, 0);
        let looks = Cell::new(0);
        let queued = || {
            looks.set(looks.get() + 1);
            waiting
        };
        company.wait_by(slowly(), queued, FLUSH);
        assert_eq!(looks.get(), 1);
    }
}

#[test]
fn it_never_waits_much_longer_than_a_flush() {
    let mut company = CommitDelay::default();
    company.anticipate(1_000_000_000, 0);
    company.wait_by(slowly(), arriving(), Duration::ZERO);
    let looked_twice = gather(&slowly(), &arriving(), usize::MAX, Duration::ZERO);
    assert_eq!(looked_twice, 1);
    // A caller arrives at every second poll, which is too rare when a poll takes as long as a lull.
    assert_eq!(gather(&ticking(LULL), &arriving(), usize::MAX, FLUSH), 1);
}
