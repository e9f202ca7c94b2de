//! Limits: batches and claims that exceed them are rejected before any work is done.

use serde_json::{Value, json};

use super::super::batch::{Batch, Expect, NewEvent, NewWork, Operation, Selection};
use super::super::delta::Delta;
use super::super::json_size::Measure;
use super::super::limits;
use super::*;
use crate::error::{Explain as _, InvalidInput};
use crate::id::{EventType, Position};
use crate::payload::Payload;
use crate::store::Claim;

/// Returns the measured quantity, the amount and the limit.
#[track_caller]
fn exceeded(batch: &Batch) -> (&'static str, usize, usize) {
    match batch.validate() {
        Err(Refusal::Invalid(InvalidInput::Limit { what, found, limit, .. })) => (what, found, limit),
        other => panic!("expected a limit, got {other:?}"),
    }
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(Value::Null, |inner, i| if i % 2 == 0 { json!([inner]) } else { json!({ "a": inner }) })
}

fn merge(delta: Delta) -> Batch {
    Batch::new().merge(&key("d"), [delta])
}

#[test]
fn deep_paths_and_values_are_refused() {
    for steps in [65, 3_000, 1_000_000] {
        let path = "/a".repeat(steps);
        for delta in
            [Delta::set(&*path, 1), Delta::inc(&*path, 1), Delta::push(&*path, 1), Delta::remove(&*path)]
        {
            assert_eq!(exceeded(&merge(delta)), ("the number of steps in a delta's path", steps, 64));
        }
    }
    merge(Delta::set("/a".repeat(64), 1)).validate().unwrap();
    for delta in [Delta::push("/a", nested(200)), Delta::set("", nested(200))] {
        assert_eq!(exceeded(&merge(delta)), ("the nesting depth of a delta", 200, 100));
    }
    merge(Delta::push("/a", nested(100))).validate().unwrap();
}

#[test]
fn a_value_is_measured_about_as_long_as_its_text() {
    for value in
        [json!(null), json!(0), json!(12_345), json!("text"), json!([1, [2, {"a": "b", "c": [true]}]])]
    {
        let (bytes, text) = (Measure::of(&value).bytes, value.to_string().len());
        assert!(bytes >= text && bytes <= text + 8, "{value}: {bytes} for {text}");
    }
    let depths = [json!(1), json!([]), json!({"a": 1}), json!([[], {"a": []}, 1])];
    assert_eq!(depths.map(|value| Measure::of(&value).depth), [0, 1, 1, 3]);
}

#[test]
fn deltas_count_towards_the_size_of_a_batch() {
    let path = format!("/{}", "p".repeat(99));
    assert_eq!(merge(Delta::set(&*path, "x".repeat(98))).bytes(), 200);
    let initial = Payload::of(&"x".repeat(98)).unwrap();
    let create = Batch::new().merge_or_create(&key("d"), initial, [Delta::set(&*path, "x".repeat(98))]);
    assert_eq!(create.bytes(), 300);
    assert!(merge(Delta::inc("", 1)).bytes() > 0 && merge(Delta::remove("")).bytes() > 0);
    let text = "x".repeat(1024 * 1024);
    let heavy = (0..64).fold(Batch::new(), |batch, _| batch.merge(&key("d"), [Delta::set("/a", &*text)]));
    let (what, found, limit) = exceeded(&heavy);
    assert_eq!((what, limit), ("the size in bytes", limits::BATCH_BYTES));
    assert_eq!(found, heavy.bytes());
}

#[test]
fn everything_that_is_counted_has_its_limit() {
    let many = Batch::new().merge(&key("d"), vec![Delta::inc("/n", 1); limits::BATCH_EFFECTS + 1]);
    assert_eq!(exceeded(&many), ("the number of deltas", 10_001, limits::BATCH_EFFECTS));
    let names = Selection::Keys(vec![key("w"); limits::OPERATE_ROWS + 1]);
    let operate = Batch::new().operate(names, Operation::Remove);
    assert_eq!(exceeded(&operate), ("the number of keys", 100_001, limits::OPERATE_ROWS));
    let said = |bytes| {
        let event = NewEvent::new(EventType::new("E").unwrap(), Payload::null());
        let event = NewEvent { correlation: Some("c".repeat(bytes)), ..event };
        Batch::new().append(&key("s"), Expect::Any, [event])
    };
    said(limits::CORRELATION_BYTES).validate().unwrap();
    let expected = ("the length in bytes of a correlation", 1_025, limits::CORRELATION_BYTES);
    assert_eq!(exceeded(&said(1_025)), expected);
}

#[test]
fn positions_fit_a_signed_number() {
    let lease = Lease { key: key("w"), fence: Fence(1), owner: None };
    let both = |position| {
        let work = NewWork { position: Some(position), ..NewWork::standing(key("w"), queue_name()) };
        [Batch::new().advance(&lease, position), Batch::new().enqueue(work)]
    };
    for batch in both(Position(i64::MAX as u64)) {
        batch.validate().unwrap();
    }
    for batch in both(Position(i64::MAX as u64 + 1)) {
        assert_eq!(batch.validate().unwrap_err().code().as_str(), "TL0103");
    }
}

#[test]
fn a_claim_is_bounded_by_all_its_events() {
    let claim = |rows, events| Claim::queues(&owner("w"), [queue_name()], rows, TTL).with_events(events);
    for (rows, events) in [(1_000, 10), (1, 10_000), (1_000, 0)] {
        claim(rows, events).validate().unwrap();
    }
    let error = claim(1_000, 11).validate().unwrap_err();
    assert!(matches!(error, InvalidInput::Limit { found: 11_000, limit: 10_000, .. }), "{error:?}");
    assert!(error.to_string().contains("fewer rows, or for fewer events"), "{error}");
    Claim::existing(&owner("w"), &key("w"), TTL).with_events(10_000).validate().unwrap();
}
