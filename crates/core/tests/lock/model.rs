//! Model test of the lock queue: random histories of requests, cancellations, releases and downgrades, compared with a
//! simple queue.

use std::collections::VecDeque;
use std::task::Poll;

use proptest::prelude::*;

use crate::hand::{ALONE, GRAPH, Hand, OBSERVE, PULL, assert_free};
use tidelock_core::lock::{Guard, LockError, Locks, Mode};

const MODES: [Mode; 3] = [ALONE, PULL, OBSERVE];

#[derive(Clone, Debug)]
enum Step {
    LockRequest(usize),
    Try(usize),
    Release(usize),
    Leave(usize),
    Weaken(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_usize..3).prop_map(Step::LockRequest),
        1 => (0_usize..3).prop_map(Step::Try),
        4 => any::<usize>().prop_map(Step::Release),
        2 => any::<usize>().prop_map(Step::Leave),
        1 => (any::<usize>(), 1_usize..3).prop_map(|(who, mode)| Step::Weaken(who, mode)),
    ]
}

fn together(a: usize, b: usize) -> bool {
    a == b && a > 0
}

/// The expected state: the holders and the waiters with their modes.
#[derive(Default)]
struct Plain {
    holders: Vec<(u32, usize)>,
    queue: VecDeque<(u32, usize)>,
}

impl Plain {
    fn admits(&self, mode: usize) -> bool {
        self.holders.iter().all(|(_, held)| together(*held, mode))
    }

    fn admit(&mut self) {
        while let Some((who, mode)) = self.queue.front().copied() {
            if !self.admits(mode) {
                break;
            }
            self.queue.pop_front();
            self.holders.push((who, mode));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn the_lock_does_what_the_plain_queue_does(steps in proptest::collection::vec(step(), 1..60)) {
        let (locks, term) = (Locks::new(), GRAPH.key(["model"]).expect("once"));
        let mut plain = Plain::default();
        let mut guards: Vec<(u32, Guard<'_>)> = Vec::new();
        let mut waiting: Vec<(u32, Hand<_>)> = Vec::new();
        for (who, step) in (0_u32..).zip(steps) {
            match step {
                Step::LockRequest(mode) => {
                    let mut hand = Hand::new(locks.lock(term.mode(MODES[mode])));
                    let polled: Poll<Result<Guard<'_>, LockError>> = hand.poll();
                    if plain.queue.is_empty() && plain.admits(mode) {
                        plain.holders.push((who, mode));
                    } else {
                        plain.queue.push_back((who, mode));
                    }
                    match polled {
                        Poll::Ready(guard) => guards.push((who, guard.expect("tasks differ"))),
                        Poll::Pending => waiting.push((who, hand)),
                    }
                }
                Step::Try(mode) => {
                    let free = plain.queue.is_empty() && plain.admits(mode);
                    prop_assert_eq!(locks.try_lock(term.mode(MODES[mode])).is_ok(), free);
                }
                Step::Release(which) if !guards.is_empty() => {
                    let (who, _guard) = guards.swap_remove(which % guards.len());
                    plain.holders.retain(|(holder, _)| *holder != who);
                }
                Step::Leave(which) if !waiting.is_empty() => {
                    let (who, _hand) = waiting.swap_remove(which % waiting.len());
                    plain.queue.retain(|(waiter, _)| *waiter != who);
                    plain.holders.retain(|(holder, _)| *holder != who);
                }
                Step::Weaken(which, mode) if !guards.is_empty() => {
                    let at = which % guards.len();
                    let (who, guard) = &mut guards[at];
                    let Some(held) = plain.holders.iter_mut().find(|(holder, _)| holder == who) else { panic!("held") };
                    let may = held.1 == 0 || held.1 == mode;
                    prop_assert_eq!(guard.downgrade(MODES[mode]).is_ok(), may);
                    held.1 = if may { mode } else { held.1 };
                }
                _ => {}
            }
            plain.admit();
            // Exactly the waiters that hold in the model were woken and hold the lock.
            for (waiter, hand) in std::mem::take(&mut waiting) {
                let mut hand = hand;
                if plain.holders.iter().any(|(holder, _)| *holder == waiter) {
                    prop_assert!(hand.is_woken());
                    // Half of them are polled at once, the others stay granted and unpolled.
                    if waiter % 2 == 0 {
                        let Poll::Ready(guard) = hand.poll() else { panic!("it should be in") };
                        guards.push((waiter, guard.expect("tasks differ")));
                        continue;
                    }
                } else {
                    prop_assert!(hand.poll().is_pending());
                }
                waiting.push((waiter, hand));
            }
            let seen = locks.snapshot();
            let seen = seen.terms.first();
            prop_assert_eq!(seen.map_or(0, |held| held.holders.len()), plain.holders.len());
            prop_assert_eq!(seen.map_or(0, |held| held.waiters.len()), plain.queue.len());
        }
        drop((guards, waiting));
        assert_free(&locks);
    }
}
