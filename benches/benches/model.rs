//! Cost of the pure functions: `cargo bench -p tidelock-benches`.
#![expect(clippy::print_stdout, reason = "a program talks to people")]

use std::error::Error;

use tidelock_benches::measure;
use tidelock_core::clock::Timestamp;
use tidelock_core::id::StreamVersion;
use tidelock_core::key::Key;
use tidelock_core::model::commit::decide;
use tidelock_core::model::working_set::{Counters, WorkingSet};
use tidelock_core::payload::Payload;
use tidelock_core::store::{Batch, Delta, Expect, NewEvent};

fn main() -> Result<(), Box<dyn Error>> {
    let key = Key::new("cart", ["user-17", "2026"])?;
    let text = key.canonical().to_owned();
    print("encode a key", measure(|| Key::new("cart", ["user-17", "2026"])));
    print("check a key's text", measure(|| Key::from_canonical(text.as_str())));
    print("decide an append", measure_decision(append(&key)?));
    print("decide a merge", measure_decision(merge(&key)?));
    Ok(())
}

fn append(key: &Key) -> Result<Batch, Box<dyn Error>> {
    let event = NewEvent::new("ItemAdded".parse()?, Payload::of(&"apples")?);
    Ok(Batch::new().append(key, Expect::<StreamVersion>::Any, [event]))
}

fn merge(key: &Key) -> Result<Batch, Box<dyn Error>> {
    Ok(Batch::new().merge_or_create(key, Payload::from_json("{}")?, [Delta::inc("/items", 1)]))
}

/// Measures the decision and its writes, on a warm working set.
fn measure_decision(batch: Batch) -> f64 {
    let mut facts = WorkingSet::new(Counters::default());
    measure(|| {
        let decided = decide(&mut facts, &batch, &[], Timestamp::from_micros(1)).is_ok();
        (decided, facts.take_changes())
    })
}

fn print(what: &str, nanoseconds: f64) {
    println!("{what:<24} {nanoseconds:>10.0} ns");
}
