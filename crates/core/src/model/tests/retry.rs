//! Retries: a limited budget, and delays with jitter.

use std::time::Duration;

use super::super::retry::{AfterFailure, RetryPolicy};

#[test]
fn the_budget_ends() {
    let policy = RetryPolicy { max_attempts: 3, ..RetryPolicy::default() };
    assert!(matches!(policy.after_failure(1, 0.5), AfterFailure::Again(_)));
    assert!(matches!(policy.after_failure(2, 0.5), AfterFailure::Again(_)));
    assert_eq!(policy.after_failure(3, 0.5), AfterFailure::Block);
    assert!(policy.allows(3) && !policy.allows(4));
}

#[test]
fn waits_double_up_to_the_cap_and_jitter_over_their_whole_length() {
    let ms = Duration::from_millis;
    let policy =
        RetryPolicy { max_attempts: u32::MAX, base: ms(100), cap: ms(1000), ..RetryPolicy::default() };
    let longest: Vec<_> = (1..=6).map(|n| policy.longest_wait(n)).collect();
    assert_eq!(longest, [ms(100), ms(200), ms(400), ms(800), ms(1000), ms(1000)]);
    assert_eq!(policy.longest_wait(u32::MAX), ms(1000));
    assert_eq!(policy.after_failure(2, 0.0), AfterFailure::Again(Duration::ZERO));
    assert_eq!(policy.after_failure(2, 1.0), AfterFailure::Again(ms(200)));
    assert_eq!(policy.after_failure(2, f64::INFINITY), AfterFailure::Again(ms(200)));
}

#[test]
fn waits_grow_by_the_factor() {
    let ms = Duration::from_millis;
    let policy =
        |factor| RetryPolicy { max_attempts: 9, base: ms(100), factor, cap: Duration::from_secs(60) };
    let longest = |factor| (1..=3).map(|n| policy(factor).longest_wait(n)).collect::<Vec<_>>();
    assert_eq!(longest(3.0), [ms(100), ms(300), ms(900)]);
    assert_eq!(longest(1.0), [ms(100); 3]);
    assert_eq!(longest(0.1), [ms(100); 3], "waits never become shorter");
    assert_eq!(longest(f64::NAN), [ms(100); 3]);
    assert_eq!(policy(f64::INFINITY).longest_wait(2), Duration::from_secs(60));
    assert_eq!(RetryPolicy { base: Duration::ZERO, ..policy(9.0) }.longest_wait(u32::MAX), Duration::ZERO);
}
