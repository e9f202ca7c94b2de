//! Batches: all or nothing, in order, and a refusal leaves no trace.

use proptest::prelude::*;

use super::super::batch::{Batch, Expect, NewEvent, NewWork};
use super::super::delta::Delta;
use super::super::refusal::{DocumentFound, Refusal};
use super::*;
use crate::error::InvalidInput;
use crate::id::{DocVersion, EventType, StreamVersion};
use crate::payload::Payload;

fn event() -> NewEvent {
    NewEvent::new(EventType::new("E").unwrap(), Payload::null())
}

fn number(n: i64) -> Payload {
    Payload::of(&n).unwrap()
}

#[test]
fn t6_a_refused_batch_leaves_no_trace() {
    let mut desk = Desk::new();
    desk.apply(&Batch::new().put(&key("d"), Expect::Absent, number(1)), NOW).unwrap();
    let counters = desk.facts.counters;
    let batch = Batch::new()
        .append(&key("s"), Expect::Absent, [event(), event()])
        .put(&key("d"), Expect::Exact(DocVersion(1)), number(2))
        .merge(&key("d"), [Delta::inc("", 5)])
        .enqueue(NewWork::once(key("w"), queue_name()))
        .close(&key("s2"), Expect::Any)
        .put(&key("d"), Expect::Exact(DocVersion(9)), number(3));
    let refusal = desk.apply(&batch, NOW).unwrap_err();
    let Refusal::Document { index: 5, found, .. } = refusal else { panic!("{refusal}") };
    assert!(matches!(*found, DocumentFound::Present(d) if d.version == DocVersion(3)));
    assert_eq!(desk.facts.counters, counters);
    assert_eq!(desk.facts.document(&key("d")).unwrap().version, DocVersion(1));
    assert!(desk.facts.stream(&key("s")).is_none() && desk.facts.work(&key("w")).is_none());
    assert!(desk.facts.take_changes().events.is_empty());
}

#[test]
fn t3_a_version_never_comes_back() {
    let mut desk = Desk::new();
    let put = |e| Batch::new().put(&key("d"), e, number(1));
    desk.apply(&put(Expect::Absent), NOW).unwrap();
    desk.apply(&Batch::new().delete(&key("d"), Expect::Exact(DocVersion(1))), NOW).unwrap();
    let receipt = desk.apply(&put(Expect::Absent), NOW).unwrap();
    assert_eq!(receipt.documents[0].version, DocVersion(3));
    assert!(desk.apply(&put(Expect::Exact(DocVersion(1))), NOW).is_err());
    // Swept tombstones raise the version floor for keys that the store has forgotten.
    desk.facts.counters.document_floor = DocVersion(7);
    let receipt = desk.apply(&Batch::new().put(&key("new"), Expect::Absent, number(1)), NOW).unwrap();
    assert_eq!(receipt.documents[0].version, DocVersion(8));
}

#[derive(Clone, Debug)]
enum Op {
    Append(u8, Option<u64>),
    Put(u8, Option<u64>),
    Delete(u8),
    Inc(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0..3u8, proptest::option::of(0..6u64)).prop_map(|(k, v)| Op::Append(k, v)),
        (0..3u8, proptest::option::of(0..6u64)).prop_map(|(k, v)| Op::Put(k, v)),
        (0..3u8).prop_map(Op::Delete),
        (0..3u8).prop_map(Op::Inc),
    ]
}

fn batch_of(ops: &[Op]) -> Batch {
    let name = |k: &u8| key(&format!("k{k}"));
    ops.iter().fold(Batch::new(), |batch, op| match op {
        Op::Append(k, v) => {
            batch.append(&name(k), v.map_or(Expect::Any, |v| Expect::Exact(StreamVersion(v))), [event()])
        }
        Op::Put(k, v) => {
            batch.put(&name(k), v.map_or(Expect::Any, |v| Expect::Exact(DocVersion(v))), number(1))
        }
        Op::Delete(k) => batch.delete(&name(k), Expect::Any),
        Op::Inc(k) => batch.merge(&name(k), [Delta::inc("", 1)]),
    })
}

proptest! {
    /// Versions and positions rise without gaps under any sequence of batches, and a refused batch leaves no trace.
    #[test]
    fn o4_versions_have_no_holes(batches in proptest::collection::vec(proptest::collection::vec(op(), 1..5), 1..40)) {
        let mut desk = Desk::new();
        let mut mirror = Desk::new();
        let mut events = Vec::new();
        for ops in &batches {
            let batch = batch_of(ops);
            if let Ok(receipt) = desk.apply(&batch, NOW) {
                prop_assert_eq!(receipt, mirror.apply(&batch, NOW).unwrap());
            }
            events.extend(desk.facts.take_changes().events);
        }
        prop_assert_eq!(desk.facts.counters, mirror.facts.counters);
        for (i, event) in events.iter().enumerate() {
            prop_assert_eq!(event.position.0, i as u64 + 1);
            let earlier = events[..i].iter().filter(|e| e.stream == event.stream).count();
            prop_assert_eq!(event.version.0, earlier as u64);
        }
    }
}

#[test]
fn a_merge_never_rounds_what_it_does_not_touch() {
    let mut desk = Desk::new();
    let text = r#"{"id":123456789012345678901,"n":1,"note":"123456789012345678902"}"#;
    let wide = Payload::from_json(text).unwrap();
    desk.apply(&Batch::new().put(&key("d"), Expect::Absent, wide), NOW).unwrap();
    desk.apply(&Batch::new().merge(&key("d"), [Delta::inc("/n", 1)]), NOW).unwrap();
    let after = text.replace(r#""n":1"#, r#""n":2"#);
    let row = desk.facts.document(&key("d")).unwrap();
    assert_eq!((row.version, row.value.as_ref().unwrap().as_str()), (DocVersion(2), after.as_str()));
    let refusal = desk.apply(&Batch::new().merge(&key("d"), [Delta::inc("/id", 1)]), NOW).unwrap_err();
    let Refusal::Delta { index: 0, path, needed, found, .. } = refusal else { panic!("{refusal}") };
    assert_eq!(path, "/id");
    assert_eq!((needed, found.as_str()), ("a sum that is exact", "the number 123456789012345678901"));
}

#[test]
fn d13_merges_of_one_document_share_its_value() {
    let (mut desk, d) = (Desk::new(), key("d"));
    let large = format!(r#"{{"n":0,"m":0,"text":"{}"}}"#, "x".repeat(100_000));
    desk.apply(&Batch::new().put(&d, Expect::Absent, Payload::from_json(large).unwrap()), NOW).unwrap();
    let before = desk.facts.weight();
    let both = |batch: Batch| batch.merge(&d, [Delta::inc("/n", 1)]).merge(&d, [Delta::inc("/m", 2)]);
    let batch = (0..250)
        .fold(Batch::new(), |batch, _| both(batch))
        .guard_document(&d, Expect::Exact(DocVersion(501)));
    let receipt = desk.apply(&batch, NOW).unwrap();
    assert!(desk.facts.weight() - before < 250_000, "one value, not one for each merge");
    let value = receipt.documents[0].value.clone().unwrap();
    assert!(value.as_str().starts_with(r#"{"n":250,"m":500,"#));
    assert!(
        receipt
            .documents
            .iter()
            .all(|w| w.value.as_ref().unwrap().as_str().as_ptr() == value.as_str().as_ptr())
    );
    assert_eq!(receipt.documents.last().unwrap().version, DocVersion(501));
}

#[test]
fn d13_writes_between_merges_see_their_value() {
    let (mut desk, d) = (Desk::new(), key("d"));
    let merge = |batch: Batch| batch.merge_or_create(&d, number(1), [Delta::inc("", 1)]);
    let absent = merge(merge(Batch::new())).guard_document(&d, Expect::Absent);
    let Refusal::Document { found, .. } = desk.apply(&absent, NOW).unwrap_err() else { panic!() };
    let DocumentFound::Present(found) = *found else { panic!() };
    assert_eq!((found.version, found.value), (DocVersion(2), number(3)));
    assert!(desk.facts.document(&d).is_none(), "nothing of it is left");
    let batch = merge(merge(Batch::new())).put(&d, Expect::Exact(DocVersion(2)), number(10));
    let receipt = desk.apply(&merge(batch), NOW).unwrap();
    let values: Vec<_> = receipt.documents.iter().map(|w| w.value.as_ref().map(Payload::as_str)).collect();
    assert_eq!(values, [Some("3"), Some("3"), None, Some("11")]);
    let refused = merge(Batch::new()).merge(&d, [Delta::inc("/a", 1)]);
    desk.apply(&refused, NOW).unwrap_err();
    let receipt = desk.apply(&merge(Batch::new()), NOW).unwrap();
    assert_eq!(
        (receipt.documents[0].version, receipt.documents[0].value.clone()),
        (DocVersion(5), Some(number(12)))
    );
}

#[test]
fn a_merge_may_not_leave_a_document_that_is_too_deep() {
    let mut desk = Desk::new();
    desk.apply(&Batch::new().put(&key("d"), Expect::Absent, number(1)), NOW).unwrap();
    let steps = |n: usize| "/a".repeat(n);
    let deep = (0..60).fold(serde_json::Value::Null, |inner, _| serde_json::json!([inner]));
    let merge = |n| {
        Batch::new()
            .merge(&key("d"), [Delta::set("", serde_json::json!({})), Delta::set(steps(n), deep.clone())])
    };
    let refusal = desk.apply(&merge(41), NOW).unwrap_err();
    let Refusal::Invalid(InvalidInput::Limit { what, found, limit, .. }) = refusal else {
        panic!("{refusal}")
    };
    assert_eq!((what, found, limit), ("the nesting depth", 101, 100));
    assert_eq!(desk.facts.document(&key("d")).unwrap().version, DocVersion(1));
    desk.apply(&merge(40), NOW).unwrap();
    desk.apply(&Batch::new().merge(&key("d"), [Delta::set("/b", 1)]), NOW).unwrap();
}
