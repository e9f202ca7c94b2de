//! The promises that hold after a power cut, compared with the ledger.

use std::collections::BTreeSet;

use super::workload::{self, Entry, TOGETHER, WRITERS, Work};
use crate::crash::{self, Ack};
use crate::prelude::*;

/// The number in an entry of one kind.
macro_rules! number_of {
    ($entry:expr, $kind:ident) => {
        if let Entry::$kind(number) = $entry { Some(*number) } else { None }
    };
}

/// Checks that every batch is whole, and that everything in the ledger is true. Panics if not.
pub(crate) async fn check(conn: &Conn, work: &Work, ledger: &[Entry]) {
    let acknowledged: BTreeSet<Ack> = ledger.iter().filter_map(batch).collect();
    if work.documents_only {
        check_documents(conn, work.seed, &acknowledged).await;
    } else {
        crash::check(conn, work.seed, &acknowledged).await;
        check_truncated(conn, highest(ledger, |e| number_of!(e, Truncated))).await;
        check_rows(conn, ledger).await;
    }
    if let Some(document) = conn.doc(&workload::recreated()).await {
        let value: serde_json::Value = document.value.parse().unwrap();
        let n = value.pointer("/n").and_then(serde_json::Value::as_u64).expect("it has a number");
        assert!(value == work.value(n).parse::<serde_json::Value>().unwrap(), "document {n} is torn");
    }
    for entry in ledger {
        if let Entry::Void(id) = entry {
            let found = conn.resolve(*id).await.expect("the store resolves");
            assert_eq!(found, Resolution::NotApplied, "a void operation");
            conn.refused(Batch::new().put(&key("void"), Expect::Any, number(1)).op_id(*id)).await;
        }
    }
}

/// Checks that numbers continue above all that callers know: positions, fences, versions, the epoch.
pub(crate) async fn check_numbers(conn: &Conn, work: &Work, ledger: &[Entry]) {
    let receipt = conn.done(Batch::new().put(&workload::recreated(), Expect::Any, work.value(2))).await;
    let known = highest(ledger, |e| number_of!(e, Version));
    assert!(receipt.documents[0].version.0 > known, "version {known} is assigned again");
    if work.documents_only {
        return;
    }
    let receipt = conn.done(Batch::new().append(&key("after"), Expect::Any, [event("After", 0)])).await;
    let known = highest(ledger, |e| number_of!(e, Position));
    assert!(receipt.appended[0].last_position.0 > known, "position {known} is assigned again");
    let claim = Claim::named(&owner("after"), &key("lock"), &queue_name("locks"), Duration::from_millis(1));
    let grants = conn.claim(claim).await.expect("the store answers").grants;
    let known = highest(ledger, |e| number_of!(e, Fence));
    // A lock of an earlier check may still be held; then its fence was compared there.
    assert!(grants.iter().all(|grant| grant.fence.0 > known), "fence {known} is assigned again");
}

/// Checks that the store knows that its file is the same as before the cut.
pub(crate) fn check_epoch(conn: &Conn, ledger: &[Entry]) {
    let known = highest(ledger, |e| number_of!(e, Epoch));
    assert!(known == 0 || conn.epoch().0 == known, "epoch {known} became {}", conn.epoch());
}

async fn check_documents(conn: &Conn, seed: u64, acknowledged: &BTreeSet<Ack>) {
    for writer in 0..WRITERS {
        let first = conn.doc(&workload::together(writer, 0)).await;
        let written = first.map_or(0, |document| document.version.0);
        for i in 0..TOGETHER {
            let document = conn.doc(&workload::together(writer, i)).await;
            let version = document.as_ref().map_or(0, |document| document.version.0);
            assert_eq!(version, written, "seed {seed}: half a batch of {writer}");
            let value = document.map(|document| document.value.parse::<serde_json::Value>().unwrap());
            let n = value.and_then(|value| value.pointer("/n")?.as_u64());
            assert_eq!(n, written.checked_sub(1), "seed {seed}: half a batch of {writer}");
        }
        for n in 0..written {
            let known = conn.operation(crash::operation(seed, Ack { writer, n })).await.unwrap();
            assert!(known.is_some(), "seed {seed}: batch {n} of {writer} has no record");
        }
        let next = Ack { writer, n: written };
        let known = conn.operation(crash::operation(seed, next)).await.unwrap();
        assert_eq!(known, None, "seed {seed}: half of {next:?} is there");
        let lost = acknowledged.iter().find(|ack| ack.writer == writer && ack.n >= written);
        assert_eq!(lost, None, "seed {seed}: acknowledged and lost");
    }
}

async fn check_truncated(conn: &Conn, before: u64) {
    let stream = workload::truncated();
    let events = conn.history(&stream).await;
    let versions: Vec<u64> = events.iter().map(|event| event.version.0).collect();
    let first = versions.first().copied().unwrap_or(0);
    assert!(versions.iter().copied().eq(first..first + versions.len() as u64), "{versions:?} has a hole");
    assert!(first >= before, "events below {before} came back: the first is {first}");
    let info = conn.stream(&stream).await.expect("the store answers");
    let head = info.and_then(|info| info.head).map(|head| head.0);
    assert_eq!(versions.last().copied(), head, "the head of {stream} is no event");
}

async fn check_rows(conn: &Conn, ledger: &[Entry]) {
    let (enqueued, finished) =
        (workload::count(conn, "/enqueued").await, workload::count(conn, "/finished").await);
    let left = conn.count(&workload::rows_left()).await;
    assert_eq!(enqueued - finished, left, "{enqueued} enqueued, {finished} finished, {left} left");
    let known = highest(ledger, |e| number_of!(e, Enqueued));
    assert!(enqueued >= known, "acknowledged and lost: {known} rows were enqueued, {enqueued} are known");
    let known = highest(ledger, |e| number_of!(e, Finished));
    assert!(finished >= known, "acknowledged and lost: {known} rows were finished, {finished} are known");
}

/// Returns the greatest number that a caller knows, or 0.
fn highest(ledger: &[Entry], number: fn(&Entry) -> Option<u64>) -> u64 {
    ledger.iter().filter_map(number).max().unwrap_or(0)
}

fn batch(entry: &Entry) -> Option<Ack> {
    if let Entry::Batch(ack) = entry { Some(*ack) } else { None }
}
