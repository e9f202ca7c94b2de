//! Leases: one expiry boundary for all owners, attempts that count at the claim, fences that only rise.

use super::super::batch::{Batch, NewWork, Operation, Selection};
use super::super::lease::{is_of, ready_at};
use super::super::refusal::{Holder, Refusal};
use super::super::rows::LeaseRow;
use super::*;
use crate::clock::Due;
use crate::id::Position;

#[test]
fn k4_the_end_of_a_lease_belongs_to_the_others() {
    let mut desk = Desk::new();
    desk.enqueue("w", NOW);
    desk.claim("w", "a", NOW).unwrap();
    let until = NOW.after(TTL);
    assert_eq!(desk.claim("w", "b", at(until.as_micros() - 1)), None);
    assert!(desk.claim("w", "b", until).is_some());
    assert_eq!(desk.row("w").takeovers, 1);
}

#[test]
fn k3_a_stale_fence_may_do_nothing_at_all() {
    let mut desk = Desk::new();
    desk.enqueue("w", NOW);
    let stale = desk.claim("w", "a", NOW).unwrap();
    let fresh = desk.claim("w", "b", NOW.after(TTL)).unwrap();
    let before = desk.row("w").clone();
    let b = Batch::new;
    let attempts = [
        b().ack(&stale),
        b().advance(&stale, Position(9)),
        b().defer(&stale, Due::Now),
        b().fail(&stale, "x", Due::Now),
        b().block(&stale, "x"),
        b().renew(&stale, TTL),
        b().release(&stale),
        b().guard_lease(&stale),
        b().enqueue(NewWork::once(key("other"), queue_name())).guard_lease(&stale),
    ];
    for batch in attempts {
        let refusal = desk.apply(&batch, NOW.after(TTL)).unwrap_err();
        assert!(
            matches!(&refusal, Refusal::Fenced { holder, .. } if matches!(**holder, Holder::Held(_))),
            "{refusal}"
        );
        assert_eq!(*desk.row("w"), before);
        assert!(desk.facts.work(&key("other")).is_none());
    }
    desk.apply(&b().ack(&fresh), NOW.after(TTL)).unwrap();
}

/// The owner is the same, so that only the fences differ.
#[test]
fn k2_a_fence_of_an_earlier_grant_to_the_same_owner_is_stale() {
    let mut desk = Desk::new();
    desk.enqueue("w", NOW);
    let stale = desk.claim("w", "a", NOW).unwrap();
    let fresh = desk.claim("w", "a", NOW).unwrap();
    assert!(fresh.fence > stale.fence);
    let before = desk.row("w").clone();
    for shown in [stale.clone(), Lease { owner: None, ..stale }] {
        let refusal = desk.apply(&Batch::new().ack(&shown), NOW).unwrap_err();
        assert!(matches!(&refusal, Refusal::Fenced { .. }), "{refusal}");
        assert_eq!(*desk.row("w"), before);
    }
    desk.apply(&Batch::new().ack(&Lease { owner: None, ..fresh }), NOW).unwrap();
}

/// The fence must be equal, and so must the owner where it is presented.
#[test]
fn a_lease_is_that_of_its_fence_and_its_owner() {
    let held = LeaseRow { owner: owner("a"), fence: Fence(7), since: NOW, until: NOW.after(TTL) };
    let shown =
        |fence, who: Option<&str>| Lease { key: key("w"), fence: Fence(fence), owner: who.map(owner) };
    for (fence, who, expected) in [
        (7, Some("a"), true),
        (7, None, true),
        (6, Some("a"), false),
        (8, Some("a"), false),
        (6, None, false),
        (8, None, false),
        (7, Some("b"), false),
        (8, Some("b"), false),
    ] {
        assert_eq!(is_of(&held, &shown(fence, who)), expected, "fence {fence} of {who:?}");
    }
}

#[test]
fn an_expired_lease_belongs_to_its_holder_until_it_is_claimed() {
    let mut desk = Desk::new();
    desk.enqueue("w", NOW);
    let lease = desk.claim("w", "a", NOW).unwrap();
    let late = NOW.after(TTL * 10);
    desk.apply(&Batch::new().renew(&lease, TTL), late).unwrap();
    assert_eq!(ready_at(desk.row("w")), Some(late.after(TTL)));
    desk.apply(&Batch::new().ack(&lease), late).unwrap();
}

#[test]
fn attempts_count_at_the_claim_and_only_progress_or_patience_gives_them_back() {
    let mut desk = Desk::new();
    desk.enqueue("w", NOW);
    let again = |desk: &mut Desk| desk.claim("w", "a", NOW).unwrap();
    let lease = again(&mut desk);
    assert_eq!(desk.row("w").attempts, 1);
    desk.apply(&Batch::new().fail(&lease, "no", Due::Now), NOW).unwrap();
    let lease = again(&mut desk);
    assert_eq!((desk.row("w").attempts, desk.row("w").last_error.as_deref()), (2, Some("no")));
    desk.apply(&Batch::new().defer(&lease, Due::Now), NOW).unwrap();
    let lease = again(&mut desk);
    assert_eq!(desk.row("w").attempts, 2);
    desk.apply(&Batch::new().release(&lease), NOW).unwrap();
    let lease = again(&mut desk);
    assert_eq!(desk.row("w").attempts, 2);
    desk.apply(&Batch::new().advance(&lease, Position(3)), NOW).unwrap();
    assert_eq!((desk.row("w").attempts, desk.row("w").position), (1, Some(Position(3))));
}

#[test]
fn a_wake_during_a_lease_is_never_lost() {
    let mut desk = Desk::new();
    desk.enqueue("w", NOW);
    let lease = desk.claim("w", "a", NOW).unwrap();
    desk.enqueue("w", at(NOW.as_micros() + 5));
    desk.apply(&Batch::new().ack(&lease), at(NOW.as_micros() + 9)).unwrap();
    assert_eq!(desk.row("w").due, Some(at(NOW.as_micros() + 5)));
    let lease = desk.claim("w", "a", at(NOW.as_micros() + 9)).unwrap();
    desk.apply(&Batch::new().ack(&lease), at(NOW.as_micros() + 9)).unwrap();
    assert!(desk.facts.work(&key("w")).is_none());
}

#[test]
fn a_wake_does_not_cut_a_backoff_short() {
    let mut desk = Desk::new();
    desk.enqueue("w", NOW);
    let lease = desk.claim("w", "a", NOW).unwrap();
    let later = Due::After(Duration::from_secs(60));
    desk.apply(&Batch::new().fail(&lease, "no", later), NOW).unwrap();
    desk.enqueue("w", at(NOW.as_micros() + 5));
    assert_eq!(desk.row("w").due, Some(NOW.after(Duration::from_secs(60))));
    let now = Selection::Keys(vec![key("w")]);
    desk.apply(&Batch::new().operate(now, Operation::RetryNow), NOW).unwrap();
    assert_eq!(desk.row("w").due, Some(NOW));
}

#[test]
fn a_reset_fences_the_holder_off() {
    let mut desk = Desk::new();
    desk.enqueue("w", NOW);
    let lease = desk.claim("w", "a", NOW).unwrap();
    let this = Selection::Keys(vec![key("w")]);
    let receipt = desk.apply(&Batch::new().operate(this, Operation::Reset), NOW).unwrap();
    assert_eq!(receipt.operated, [1]);
    assert!(matches!(desk.apply(&Batch::new().ack(&lease), NOW), Err(Refusal::Fenced { .. })));
}
