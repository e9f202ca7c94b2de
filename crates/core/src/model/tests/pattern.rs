//! Portable pattern grammar: matches, rejections, and bounded matching time.

use proptest::prelude::*;

use super::super::pattern::Pattern;

#[test]
fn patterns_match_like_the_regular_expressions_they_look_like() {
    let check = |pattern: &str, text: &str, expected: bool| {
        assert_eq!(Pattern::new(pattern).unwrap().matches(text), expected, "{pattern} on {text}");
    };
    check("", "", true);
    check("", "anything", true);
    check("^$", "", true);
    check("^$", "x", false);
    check("^web", "webhook", true);
    check("^web", "a webhook", false);
    check("hook$", "webhook", true);
    check("hook$", "hooks", false);
    check("b.k", "webhook", false);
    check("b.ook", "webhook", true);
    check("^a.*b.*c$", "a--b--c", true);
    check("^a.*b.*c$", "a--c--b", false);
    check("^a.*a$", "a", false);
    check("a\\.b", "a.b", true);
    check("a\\.b", "axb", false);
    check("50%_\\\\", "is 50%_\\ off", true);
    check("é.", "aéß", true);
}

#[test]
fn patterns_that_a_backend_cannot_express_are_rejected() {
    for pattern in ["a+", "a*", "*", "a?", "(a)", "[a]", "a{2}", "a|b", "a^b", "a$b", "a\\"] {
        let message = Pattern::new(pattern).unwrap_err().to_string();
        assert!(message.contains("allowed are literals"), "{message}");
    }
    assert!(Pattern::new(&"a".repeat(257)).is_err());
}

#[test]
fn like_matches_the_same_keys() {
    assert_eq!(Pattern::new("^a%b_c\\\\.x.*$").unwrap().to_like(), "a\\%b\\_c\\\\_x%");
    assert_eq!(Pattern::new("x").unwrap().to_like(), "%x%");
}

#[test]
fn a_bomb_is_cheap() {
    let pattern = Pattern::new(&".*a".repeat(80)).unwrap();
    assert!(!pattern.matches(&"a".repeat(79)));
    assert!(!pattern.matches(&"b".repeat(100_000)));
}

/// Matches by naive recursion, as the oracle.
fn slow(pattern: &[char], text: &[char]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        (['.', '*', rest @ ..], _) => (0..=text.len()).any(|i| slow(rest, &text[i..])),
        (['.', rest @ ..], [_, text @ ..]) => slow(rest, text),
        ([c, rest @ ..], [d, text @ ..]) => c == d && slow(rest, text),
        _ => false,
    }
}

proptest! {
    #[test]
    fn fast_and_slow_agree(tokens in proptest::collection::vec(prop_oneof![Just("a"), Just("b"), Just("."), Just(".*")], 0..6), text in "[ab]{0,8}") {
        let body = tokens.concat();
        let expected = slow(&body.chars().collect::<Vec<_>>(), &text.chars().collect::<Vec<_>>());
        let anchored = format!("^{body}$");
        prop_assert_eq!(Pattern::new(&anchored).unwrap().matches(&text), expected);
    }
}
