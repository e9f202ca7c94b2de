//! Lock names (L7, L8): different names never collide, and no name is declared twice.

use crate::hand::{Hand, assert_free, taking, thing};
use tidelock_core::error::Explain as _;
use tidelock_core::key::{Arg, Key};
use tidelock_core::lock::{LockClass, LockError, LockKey, LockKeyError, LockRequest, Locks, Mode, declare};

static F: LockClass = LockClass::new("f");
static G: LockClass = LockClass::new("g");
static G_PAREN: LockClass = LockClass::new("g(x");
static TWICE_A: LockClass = LockClass::new("twice");
static TWICE_B: LockClass = LockClass::new("twice");

#[test]
fn l7_terms_are_compared_by_their_structure() {
    let locks = Locks::new();
    let terms: Vec<LockKey> = vec![
        F.key(["a,b"]).unwrap(),
        F.key(["a", "b"]).unwrap(),
        F.key([""]).unwrap(),
        F.single().unwrap(),
        F.key([5]).unwrap(),
        F.key(["5"]).unwrap(),
        F.of(&[Arg::from(5), Arg::from("5")]).unwrap(),
        G_PAREN.single().unwrap(),
        G.key(["x("]).unwrap(),
        G.key(["x"]).unwrap(),
        // A key that is known only at run time differs from every functor's term.
        LockKey::from(Key::new("f", ["a,b"]).unwrap()),
    ];
    let guards: Vec<_> = terms.iter().map(|term| taking(&locks, term)).collect();
    assert_eq!(locks.snapshot().terms.len(), terms.len());
    drop(guards);
    assert_eq!(F.key(["a"]).unwrap(), F.key(["a"]).unwrap());
    assert_free(&locks);
}

#[test]
fn l8_a_name_that_is_declared_twice_is_refused_with_both_places() {
    let error = declare(&[&F, &TWICE_A, &TWICE_B]).expect_err("twice");
    let LockKeyError::Twice { name, first, second } = &error else { panic!("{error}") };
    assert_eq!((*name, first.file(), second.file()), ("twice", file!(), file!()));
    assert_eq!(second.line(), first.line() + 1);
    assert_eq!(error.code().as_str(), "TL0506");
    assert!(TWICE_A.key(["a"]).is_ok(), "the first declaration stands");
    assert_eq!(TWICE_B.key(["a"]), Err(error));
}

#[test]
fn a_key_that_is_too_long_is_refused() {
    let error = F.key(["x".repeat(2_000)]).expect_err("too long");
    assert_eq!(error.code().as_str(), "TL0105");
}

#[test]
fn a_mode_that_the_functor_does_not_have_is_refused() {
    let (locks, x) = (Locks::new(), thing("mode"));
    let ask: LockRequest<'_> = x.mode(Mode::new(3));
    let error = locks.try_lock(ask).expect_err("one mode");
    assert!(matches!(&error, LockError::Mode { to: 3, .. }), "{error}");
    assert_eq!(error.code().as_str(), "TL0507");
    assert!(matches!(Hand::new(locks.lock(ask)).poll(), std::task::Poll::Ready(Err(LockError::Mode { .. }))));
    assert_free(&locks);
}
