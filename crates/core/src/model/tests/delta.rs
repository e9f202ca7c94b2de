//! Deltas against JSON of every shape.

use serde_json::{Value, json};

use super::super::delta::{Delta, apply};

fn check(before: Value, delta: &Delta, after: Value) {
    let mut value = before.clone();
    apply(&mut value, delta).unwrap();
    assert_eq!(value, after, "{delta:?} on {before}");
}

fn refused(mut before: Value, delta: &Delta, needed: &str, found: &str) {
    let misfit = apply(&mut before, delta).unwrap_err();
    assert_eq!((misfit.needed, misfit.found.as_str()), (needed, found), "{delta:?}");
}

#[test]
fn deltas_do_what_they_say() {
    check(json!({}), &Delta::inc("/a/b", 2), json!({"a": {"b": 2}}));
    check(json!({"a": 40}), &Delta::inc("/a", 2), json!({"a": 42}));
    check(json!({"a": 0.5}), &Delta::inc("/a", 1), json!({"a": 1.5}));
    check(json!(7), &Delta::inc("", -7), json!(0));
    check(json!({}), &Delta::push("/list", "x"), json!({"list": ["x"]}));
    check(json!({"list": [1]}), &Delta::push("/list", 2), json!({"list": [1, 2]}));
    check(json!({"list": [1, 2]}), &Delta::set("/list/1", 9), json!({"list": [1, 9]}));
    check(json!({"a/b": 1, "~": 2}), &Delta::inc("/a~1b", 1), json!({"a/b": 2, "~": 2}));
    check(json!({"a": 1, "~": 2}), &Delta::remove("/~0"), json!({"a": 1}));
    check(json!({"a": 1}), &Delta::remove("/b/c"), json!({"a": 1}));
    check(json!([1, 2, 3]), &Delta::remove("/1"), json!([1, 3]));
    check(json!({"a": 1}), &Delta::set("", json!([])), json!([]));
}

#[test]
fn s12_deltas_that_do_not_fit_are_refused() {
    refused(json!({"a": "x"}), &Delta::inc("/a", 1), "a number", "a text");
    refused(json!({"a": 1}), &Delta::push("/a", 1), "an array", "the number 1");
    refused(json!({"a": 1}), &Delta::set("/a/b", 1), "an object on the way", "the number 1");
    refused(json!([1]), &Delta::set("/5", 1), "an element that exists", "an array of 1");
    refused(json!({}), &Delta::set("a", 1), "a path that begins with /", "\"a\"");
    refused(json!(u64::MAX), &Delta::inc("", 1), "a sum that fits", "the number 18446744073709551615");
    refused(json!(i64::MIN), &Delta::inc("", -1), "a sum that fits", "the number -9223372036854775808");
}

#[test]
fn whole_numbers_stay_whole_up_to_64_bits() {
    check(json!(u64::MAX), &Delta::inc("", -1), json!(u64::MAX - 1));
    check(json!(i64::MAX), &Delta::inc("", 1), json!(9_223_372_036_854_775_808_u64));
    check(json!(9_223_372_036_854_775_808_u64), &Delta::inc("", -1), json!(i64::MAX));
    check(json!(-1), &Delta::Inc { path: String::new(), by: u64::MAX.into() }, json!(u64::MAX - 1));
    check(json!(i64::MIN), &Delta::Inc { path: String::new(), by: u64::MAX.into() }, json!(i64::MAX));
}

#[test]
fn a_removal_creates_nothing_on_its_way() {
    for path in ["/a/b/c", "/a/b", "/a/b/c/d"] {
        check(json!({"a": null}), &Delta::remove(path), json!({"a": null}));
    }
    check(json!(null), &Delta::remove("/a/b"), json!(null));
    check(json!([null]), &Delta::remove("/0/a/b"), json!([null]));
}
