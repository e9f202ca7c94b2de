//! Weight of the working set: a store that caches it notices when it grows.

use super::*;
use crate::payload::Payload;

const SLOT: usize = 200;

#[test]
fn every_slot_weighs_something_once() {
    let mut facts = WorkingSet::new(Counters::default());
    for _ in 0..2 {
        facts.load_stream(key("s"), None);
        facts.load_document(key("d"), None);
        facts.load_work(key("w"), None);
    }
    let keys: usize = ["s", "d", "w"].iter().map(|name| key(name).canonical().len()).sum();
    assert_eq!(facts.weight(), 3 * SLOT + keys);
    facts.forget();
    assert_eq!(facts.weight(), 0);
}

#[test]
fn errors_and_reasons_of_work_weigh_as_much_as_payloads() {
    let mut desk = Desk::new();
    let payload = Payload::of(&"x".repeat(998)).unwrap();
    desk.apply(&Batch::new().enqueue(NewWork::once(key("w"), queue_name()).payload(payload)), NOW).unwrap();
    let first = desk.facts.weight();
    assert_eq!(first, SLOT + key("w").canonical().len() + 1_000);
    let lease = desk.claim("w", "a", NOW).unwrap();
    let granted = desk.facts.weight();
    desk.apply(&Batch::new().block(&lease, "r".repeat(500)), NOW).unwrap();
    assert_eq!(desk.facts.weight() - granted, 2_000, "payload, reason and last error");
}
