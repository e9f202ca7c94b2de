//! Property tests of the key encoding.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn arg() -> impl Strategy<Value = Arg> {
    prop_oneof![
        any::<String>().prop_map(Arg::Str),
        "[ -'a]{0,4}".prop_map(Arg::Str),
        any::<i64>().prop_map(Arg::Int),
        (-20i64..20).prop_map(Arg::Int),
        any::<u128>().prop_map(|n| Arg::Uuid(Uuid::from_u128(n))),
    ]
}

fn parts() -> impl Strategy<Value = (String, Vec<Arg>)> {
    let kind = prop_oneof![".{1,6}", "[ -'g(x]{1,3}"];
    (kind, proptest::collection::vec(arg(), 0..4))
}

/// Builds the key. Returns `None` when it exceeds the maximum length.
fn built((kind, args): &(String, Vec<Arg>)) -> Option<Key> {
    Key::of(kind, args).ok()
}

proptest! {
    #[test]
    fn canonical_text_reads_back(parts in parts()) {
        let key = built(&parts);
        prop_assume!(key.is_some());
        let key = key.unwrap();
        prop_assert_eq!(key.kind(), parts.0);
        prop_assert_eq!(key.args(), parts.1);
        prop_assert_eq!(&Key::from_canonical(key.canonical()).unwrap(), &key);
        prop_assert!(!key.canonical().contains('\0'));
    }

    #[test]
    fn text_order_is_key_order(a in parts(), b in parts()) {
        if let (Some(x), Some(y)) = (built(&a), built(&b)) {
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        }
    }

    #[test]
    fn readable_form_reads_back(parts in parts()) {
        if let Some(key) = built(&parts) {
            prop_assert_eq!(key.to_string().parse::<Key>().unwrap(), key);
        }
    }

    #[test]
    fn prefix_holds_exactly_what_begins_alike(a in parts(), b in parts(), start in "[ -'a%_]{0,2}") {
        if let Some(key) = built(&b) {
            let under = KeyPrefix::under(&a.0, &a.1);
            let begins = b.0 == a.0 && b.1.starts_with(&a.1);
            prop_assert_eq!(under.contains(&key), begins);

            let starting = KeyPrefix::starting(&b.0, &[], &start);
            let first = b.1.first();
            prop_assert_eq!(
                starting.contains(&key),
                matches!(first, Some(Arg::Str(text)) if text.starts_with(&start))
            );
        }
    }

    #[test]
    fn a_text_prefix_of_a_key_contains_the_key(kind in "[a-z ]{1,3}", args in proptest::collection::vec(".{0,4}", 1..4), cut in 0.0..1.0) {
        let key = Key::new(&kind, args).unwrap();
        let text: Vec<char> = key.to_string().chars().collect();
        let first = text.iter().position(|c| *c == '(').unwrap() + 1;
        let length = first + ((text.len() - first) as f64 * cut) as usize;
        let begun: String = text[..length].iter().collect();
        match begun.parse::<KeyPrefix>() {
            Ok(prefix) => prop_assert!(prefix.contains(&key), "{}", begun),
            Err(error) => prop_assert!(error.to_string().contains("breaks off"), "{}", error),
        }
    }

    #[test]
    fn no_text_makes_the_reader_of_keys_panic(text in "[a(\", \\\\1)é-]{0,12}") {
        if let Ok(key) = text.parse::<Key>() {
            prop_assert!(text.parse::<KeyPrefix>().unwrap().contains(&key));
        }
    }

    #[test]
    fn any_text_is_refused_or_canonical(text in ".{0,12}") {
        if let Ok(key) = Key::from_canonical(text.as_str()) {
            prop_assert_eq!(key.canonical(), text);
        }
    }
}

#[test]
fn l7_arguments_never_run_together() {
    let keys = [
        Key::new("f", ["a,b"]).unwrap(),
        Key::new("f", ["a", "b"]).unwrap(),
        Key::single("g(x").unwrap(),
        Key::new("g", ["x("]).unwrap(),
        Key::new("f", [5]).unwrap(),
        Key::new("f", ["5"]).unwrap(),
    ];
    for (i, a) in keys.iter().enumerate() {
        for b in &keys[i + 1..] {
            assert_ne!(a, b);
        }
    }
}

#[test]
fn canonical_text_is_readable_in_a_database_shell() {
    let check = |key: Key, expected: &str| assert_eq!(key.canonical(), expected);
    check(Key::single("leader").unwrap(), "leader");
    check(Key::new("cart", ["user-17"]).unwrap(), "cart user-17");
    check(Key::of("order", &[Arg::from("eu west"), Arg::from(42)]).unwrap(), "order eu$Pwest#B42");
    check(Key::new("n", [-42]).unwrap(), "n#-X57");
    check(Key::new("n", [i64::MIN]).unwrap(), "n#-G0776627963145224191");
}

#[test]
fn errors_of_invalid_keys_name_cause_and_position() {
    let check = |text: &str, part: &str| {
        let message = text.parse::<Key>().unwrap_err().to_string();
        assert!(message.contains(part), "{text}: {message}");
    };
    check("", "at the end, the kind is missing");
    check("(1)", "at character 1, the kind is missing");
    check("a b", "at character 3, a kind with 'b' needs quotes");
    check("a*(1)", "at character 2, a kind with '*' needs quotes");
    check("\"a b", "at character 1, a quoted part is not closed");
    check("cart(user)", "at character 6, \"user\" is no number and no UUID; quote text arguments");
    check("größe(1, user)", "at character 10, \"user\"");
    check("cart(1, \"user)", "at character 9, a quoted part is not closed");
    check("cart(\"user\\", "at character 6, a quoted part breaks off");
    check("cart(\"\\x\")", "at character 6, a quoted part is not written as in JSON");
    check("cart(1", "at the end, the closing ) is missing");
    check("cart(1,", "at the end, the closing ) is missing");
    check("cart(1,,2)", "at character 8, an argument is missing");
    check("cart(1,)", "one comma each");
    check("cart(1 2)", "at character 8, arguments are separated by one comma each");
    check("cart(1)2)", "at character 8, nothing may follow");
    check("\"a\"1", "at character 4, arguments must begin with (");
    let long = Key::new("k", ["x".repeat(2000)]).unwrap_err().to_string();
    assert!(long.contains("at most 1024"), "{long}");
}

#[test]
fn a_prefix_is_a_kind_or_a_key_that_breaks_off() {
    let check = |text: &str, expected: KeyPrefix| {
        assert_eq!(text.parse::<KeyPrefix>().unwrap(), expected, "{text}");
    };
    check("session", KeyPrefix::kind("session"));
    check(" session ( ", KeyPrefix::kind("session"));
    check("\"a b\"", KeyPrefix::kind("a b"));
    for text in ["s(\"a\", 4)", "s(\"a\", 4", "s(\"a\",4,"] {
        check(text, KeyPrefix::under("s", &[Arg::from("a"), Arg::from(4)]));
    }
    check("s(4, \"a\\\"", KeyPrefix::starting("s", &[Arg::from(4)], "a\""));
    check("s(\"", KeyPrefix::starting("s", &[], ""));
    for text in ["", "a*", "\"a", "s(a", "s(1,,", "s(\"\\u00", "s(1)2"] {
        assert!(text.parse::<KeyPrefix>().is_err(), "{text}");
    }
}
