//! Deltas against JSON of every shape.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::delta::{Delta, DeltaError};
use super::super::draft::Draft;
use crate::payload::Payload;

/// Returns the text after a delta, and checks its length against the draft.
fn merged(before: &str, delta: &Delta) -> Result<String, DeltaError> {
    let mut draft = Draft::of(&Payload::from_json(before).unwrap());
    draft.apply(delta)?;
    let after = draft.payload();
    assert_eq!(after.len(), draft.bytes(), "{delta:?} on {before}");
    Ok(after.to_string())
}

fn check(before: Value, delta: &Delta, after: Value) {
    let text = merged(&before.to_string(), delta).unwrap();
    assert_eq!(text, after.to_string(), "{delta:?} on {before}");
}

fn refused(before: Value, delta: &Delta, needed: &str, found: &str) {
    let misfit = merged(&before.to_string(), delta).unwrap_err();
    assert_eq!((misfit.needed, misfit.found.as_str()), (needed, found), "{delta:?}");
}

/// Creates a delta that adds a fraction.
fn inc(path: &str, by: f64) -> Delta {
    Delta::Inc { path: path.to_owned(), by: serde_json::Number::from_f64(by).unwrap() }
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
    refused(json!(u64::MAX), &Delta::inc("", 1), "a sum that is exact", "the number 18446744073709551615");
    refused(json!(i64::MIN), &Delta::inc("", -1), "a sum that is exact", "the number -9223372036854775808");
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

#[test]
fn d16_parts_that_a_merge_does_not_touch_keep_their_text() {
    let before = r#"{ "big": 12345678901234567.89, "tiny" : 1e-400, "wide":[123456789012345678901, 1.50E+2], "n":1,"s":"\u00e9 \/" }"#;
    let after = r#"{"big":12345678901234567.89,"tiny":1e-400,"wide":[123456789012345678901, 1.50E+2],"n":2,"s":"\u00e9 \/"}"#;
    assert_eq!(merged(before, &Delta::inc("/n", 1)).unwrap(), after);
    let pushed = merged(before, &Delta::push("/wide", 7)).unwrap();
    assert!(pushed.contains(r#""wide":[123456789012345678901,1.50E+2,7]"#), "{pushed}");
    let removed = merged(before, &Delta::remove("/n")).unwrap();
    assert!(removed.contains("12345678901234567.89") && removed.contains("1e-400"), "{removed}");
}

#[test]
fn d16_a_sum_that_cannot_be_exact_is_refused() {
    refused(
        json!(9_007_199_254_740_993_u64),
        &inc("", 0.5),
        "a sum that is exact",
        "the number 9007199254740993",
    );
    for (before, delta) in [
        (r#"{"n":12345678901234567.89}"#, Delta::inc("/n", 1)),
        (r#"{"n":1e-400}"#, Delta::inc("/n", 1)),
        (r#"{"n":123456789012345678901}"#, Delta::inc("/n", 1)),
    ] {
        assert_eq!(merged(before, &delta).unwrap_err().needed, "a sum that is exact", "{before}");
    }
    assert_eq!(merged("0.1", &inc("", 0.2)).unwrap(), "0.3");
    assert_eq!(merged(r#"{"price":10.50}"#, &inc("/price", 0.25)).unwrap(), r#"{"price":10.75}"#);
}

#[test]
fn the_last_of_several_fields_with_one_name_counts() {
    assert_eq!(merged(r#"{"a":1,"b":2,"\u0061":3}"#, &Delta::inc("/a", 1)).unwrap(), r#"{"\u0061":4,"b":2}"#);
}

#[test]
fn text_that_is_no_json_is_refused() {
    for broken in ["{", "[1", r#"{"a"}"#, r#"{"a":}"#, "[1 2]", r#"{"a" 1}"#, "[,]"] {
        let mut draft = Draft::of(&Payload::trusted(broken));
        assert_eq!(draft.apply(&Delta::set("/a", 1)).unwrap_err().needed, "JSON", "{broken}");
    }
}

/// Generates numbers, including those that parsing would round or reformat.
fn odd_number() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?[1-9][0-9]{0,30}",
        "-?(0|[1-9][0-9]{0,20})\\.[0-9]{1,20}",
        "-?[1-9](\\.[0-9]{1,5})?[eE][+-]?[0-9]{1,3}",
    ]
}

/// Generates the text of any JSON value, with whitespace in it.
fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![odd_number(), Just("null".to_owned()), Just(r#""a,]}\"1\\""#.to_owned())];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let array = proptest::collection::vec(inner.clone(), 0..4)
            .prop_map(|items| format!("[ {} ]", items.join(" ,")));
        let object = proptest::collection::vec(inner, 0..4).prop_map(|items| {
            let fields = items.iter().enumerate().map(|(i, item)| format!("\"{i}\" : {item}"));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        });
        prop_oneof![array, object]
    })
}

fn any_delta() -> impl Strategy<Value = Delta> {
    let path = prop_oneof![Just(String::new()), "(/[0-3]){1,3}", "/new(/[0-3]){0,2}"];
    (path, 0..4_u8, -9..9_i64).prop_map(|(path, kind, n)| match kind {
        0 => Delta::inc(path, n),
        1 => Delta::push(path, n),
        2 => Delta::set(path, json!({"x": n})),
        _ => Delta::remove(path),
    })
}

/// Collects every number of a text with its path, as it is written.
fn numbers(text: &str, path: &str, found: &mut Vec<(String, String)>) {
    if text.starts_with(['[', '{']) {
        for (i, part) in crate::payload::parts::split(text).unwrap().into_iter().enumerate() {
            let name = text[part.name].trim_matches('"').to_owned();
            let step = if name.is_empty() { i.to_string() } else { name };
            numbers(&text[part.value], &format!("{path}/{step}"), found);
        }
    } else if !text.starts_with(['"', 'n']) {
        found.push((path.to_owned(), text.to_owned()));
    }
}

/// Applies the same delta to a parsed value.
fn on_value(at: &mut Value, path: &[&str], delta: &Delta) -> Result<(), ()> {
    let Some((first, rest)) = path.split_first() else {
        match delta {
            Delta::Set { value, .. } => *at = value.clone(),
            Delta::Push { value, .. } if at.is_null() => *at = json!([value]),
            Delta::Push { value, .. } => at.as_array_mut().ok_or(())?.push(value.clone()),
            Delta::Inc { by, .. } if at.is_null() => *at = Value::Number(by.clone()),
            Delta::Inc { .. } if at.is_number() => return Ok(()),
            Delta::Inc { .. } => return Err(()),
            Delta::Remove { .. } => *at = Value::Null,
        }
        return Ok(());
    };
    let removes = matches!(delta, Delta::Remove { .. });
    match at {
        Value::Null if removes => Ok(()),
        Value::Null => {
            *at = Value::Object(Map::new());
            on_value(at, path, delta)
        }
        Value::Object(fields) if removes && (rest.is_empty() || !fields.contains_key(*first)) => {
            fields.remove(*first);
            Ok(())
        }
        Value::Object(fields) => {
            on_value(fields.entry((*first).to_owned()).or_insert(Value::Null), rest, delta)
        }
        Value::Array(items) if removes && rest.is_empty() => {
            if let Some(i) = first.parse::<usize>().ok().filter(|i| *i < items.len()) {
                items.remove(i);
            }
            Ok(())
        }
        Value::Array(items) => {
            let element = first.parse::<usize>().ok().and_then(|i| items.get_mut(i));
            on_value(element.ok_or(())?, rest, delta)
        }
        _ => Err(()),
    }
}

proptest! {
    /// Merges change only the parts that they name. The structure changes as on parsed values. Every number that no delta
    /// names or moves stays letter for letter.
    #[test]
    fn d16_merges_preserve_every_number_that_they_do_not_touch(before in json_text(), deltas in proptest::collection::vec(any_delta(), 1..6)) {
        let mut draft = Draft::of(&Payload::from_json(&*before).unwrap());
        let mut oracle: Value = serde_json::from_str(&before).unwrap_or(Value::Null);
        let parsed = serde_json::from_str::<Value>(&before).is_ok();
        let mut expected = Vec::new();
        numbers(&before, "", &mut expected);
        for delta in &deltas {
            let path: Vec<&str> = delta.path().split('/').skip(1).collect();
            let done = draft.apply(delta);
            if parsed {
                let said = on_value(&mut oracle, &path, delta);
                let inexact = done.as_ref().is_err_and(|misfit| misfit.needed == "a sum that is exact");
                prop_assert!(inexact || done.is_ok() == said.is_ok(), "{:?} {:?}", delta, done);
            }
            if done.is_err() {
                return Ok(());
            }
            let text = draft.payload();
            prop_assert_eq!(text.len(), draft.bytes());
            let mut found = Vec::new();
            numbers(text.as_str(), "", &mut found);
            // Numbers outside the path are unchanged, unless they follow an element that a removal moves.
            let (touched, around) = (delta.path(), delta.path().rsplit_once('/').map_or("", |(around, _)| around));
            let moves = matches!(delta, Delta::Remove { .. });
            let changed = |path: &str| path.starts_with(touched) || (moves && path.starts_with(around));
            expected.retain(|(path, _)| !changed(path));
            for kept in &expected {
                prop_assert!(found.contains(kept), "{:?} is not in {} after {:?}", kept, text, delta);
            }
            expected = found;
        }
        if parsed && deltas.iter().all(|delta| !matches!(delta, Delta::Inc { .. })) {
            prop_assert_eq!(serde_json::from_str::<Value>(draft.payload().as_str()).unwrap(), oracle);
        }
    }
}
