//! File names: injective, reversible, and never a path out of the directory.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use proptest::prelude::*;
use tidelock_core::key::{Arg, Key};
use tidelock_files::file_names::{ParsedName, decode, encode};
use uuid::Uuid;

fn arg() -> impl Strategy<Value = Arg> {
    prop_oneof![
        any::<String>().prop_map(Arg::Str),
        "[a-zA-Z=@#%^~./\\\\ -]{0,12}".prop_map(Arg::Str),
        any::<u128>().prop_map(|n| Arg::Uuid(Uuid::from_u128(n))),
        any::<i64>().prop_map(Arg::Int),
    ]
}

fn key() -> impl Strategy<Value = Key> {
    let kind = prop_oneof!["[a-zA-Z=@#%^~./ -]{1,8}", "\\PC{1,60}", ".{1,150}"];
    (kind, prop::collection::vec(arg(), 0..4))
        .prop_filter_map("too long", |(kind, args)| Key::of(&kind, &args).ok())
}

fn check_place(name: &str) {
    assert!(name.len() <= 255, "{} bytes", name.len());
    assert!(name.is_ascii() && !name.starts_with('.'), "{name}");
    let harmless = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.=@#%^~".contains(c);
    assert!(name.chars().all(harmless), "{name}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_name_gives_its_key_back(key in key()) {
        let name = encode(&key);
        check_place(&name);
        match decode(&name) {
            Some(ParsedName::Key(again)) => prop_assert_eq!(again, key),
            Some(ParsedName::Inside) => prop_assert!(name.contains('~')),
            None => prop_assert!(false, "{} is the name of nothing", name),
        }
    }

    #[test]
    fn different_keys_have_different_names(a in key(), b in key()) {
        // Names have no capitals, so this also holds on case-insensitive file systems.
        prop_assert_eq!(encode(&a) == encode(&b), a == b);
    }

    #[test]
    fn a_decodable_file_name_is_the_only_name_of_its_key(name in "[a-zA-Z0-9=@#%^~./-]{0,20}\\.json") {
        if let Some(ParsedName::Key(key)) = decode(&name) {
            prop_assert_eq!(encode(&key), name);
        }
    }
}

#[test]
fn names_are_readable() {
    let named = |text: &str| encode(&text.parse().unwrap());
    assert_eq!(named("settings"), "settings.json");
    assert_eq!(named(r#"limits("mail")"#), "limits=mail.json");
    assert_eq!(named(r#"limits("Mail", 42, -7)"#), "limits=^mail#42#-7.json");
    assert_eq!(named(r#"file("app.toml", "")"#), "file=app.toml=.json");
    assert_eq!(
        named("user(0190a0a0-0000-7000-8000-000000000001)"),
        "user@0190a0a0-0000-7000-8000-000000000001.json"
    );
}

#[test]
fn names_that_would_lead_elsewhere_do_not() {
    for kind in ["..", ".", "../../etc/passwd", "/etc/passwd", ".lock", ".journal", ".new", "a/../b", "\0"] {
        let key = Key::single(kind).unwrap();
        let name = encode(&key);
        check_place(&name);
        assert_eq!(decode(&name), Some(ParsedName::Key(key)), "{kind:?}");
    }
}

#[test]
fn long_keys_differ_in_their_last_character() {
    let long = |last: &str| Key::new("k", [format!("{}{last}", "x".repeat(900))]).unwrap();
    let (a, b) = (encode(&long("a")), encode(&long("b")));
    assert_ne!(a, b);
    check_place(&a);
    assert_eq!(decode(&a), Some(ParsedName::Inside));
}
