//! Tests of the history checker on handwritten histories. `random` contains the generated ones.
#![allow(clippy::restriction, reason = "a test fails by panicking")]

#[path = "history/list_append.rs"]
mod list_append;
#[path = "history/random.rs"]
mod random;
#[path = "history/serial.rs"]
mod serial;

use tidelock_tck::history::record::{ClientRequest, ClientResponse, Record, RecordModel, RecordOperation};
use tidelock_tck::history::{MOST_STEPS, Operation, Outcome, Trouble, check};

type Line = Operation<ClientRequest, ClientResponse>;

/// Returns an answered operation of a client of side 0.
fn answered(client: usize, (call, end): (u64, u64), what: RecordOperation, told: ClientResponse) -> Line {
    line(client, 0, (call, end), what, Outcome::Ok(told))
}

fn unknown(client: usize, call: u64, what: RecordOperation) -> Line {
    line(client, 0, (call, u64::MAX), what, Outcome::Unknown)
}

fn line(
    client: usize,
    side: usize,
    (call, end): (u64, u64),
    what: RecordOperation,
    outcome: Outcome<ClientResponse>,
) -> Line {
    Operation { client, key: "k".to_owned(), asked: ClientRequest { side, what }, call, end, outcome }
}

fn record(count: i64, tag: u64) -> Record {
    Record { count, tag }
}

fn set(count: i64, tag: u64) -> RecordOperation {
    RecordOperation::Set(record(count, tag))
}

fn written(version: u64) -> ClientResponse {
    ClientResponse::Written { old: None, version }
}

fn found(version: u64, count: i64, tag: u64) -> ClientResponse {
    ClientResponse::Found(Some((version, record(count, tag))))
}

#[track_caller]
fn has_an_order(history: &[Line]) {
    if let Err(trouble) = check(&RecordModel, history, MOST_STEPS) {
        panic!("{trouble}");
    }
}

/// Returns the first operation whose answer cannot be explained.
#[track_caller]
fn breaks_at(history: &[Line]) -> usize {
    match check(&RecordModel, history, MOST_STEPS) {
        Err(Trouble::Broken(broken)) => broken.answer,
        other => panic!("expected a broken history, got {other:?}"),
    }
}

#[test]
fn an_empty_history_has_an_order() {
    has_an_order(&[]);
    has_an_order(&[unknown(0, 1, set(1, 1))]);
}

#[test]
fn overlapping_operations_may_be_reordered() {
    // The read was called after the write and answered before it: it may have happened first.
    let history =
        |read| [answered(0, (1, 4), set(1, 1), written(1)), answered(1, (2, 3), RecordOperation::Read, read)];
    has_an_order(&history(ClientResponse::Found(None)));
    has_an_order(&history(found(1, 1, 1)));
    assert_eq!(breaks_at(&history(found(1, 2, 1))), 1);
}

#[test]
fn an_answered_write_is_seen_from_then_on() {
    let stale = [
        answered(0, (1, 2), set(1, 1), written(1)),
        answered(0, (3, 4), set(2, 2), written(2)),
        answered(1, (5, 6), RecordOperation::Read, found(1, 1, 1)),
    ];
    assert_eq!(breaks_at(&stale), 2);
    // While the second write is in flight, a read may return the first value, but not after a read of the second one.
    let mut overlapping = stale.to_vec();
    overlapping[1].end = 9;
    has_an_order(&overlapping);
    overlapping.push(answered(2, (7, 8), RecordOperation::Get, ClientResponse::Value(record(2, 2))));
    has_an_order(&overlapping);
    overlapping[2] = answered(1, (10, 11), RecordOperation::Read, found(1, 1, 1));
    assert_eq!(breaks_at(&overlapping), 2);
}

#[test]
fn a_lost_update_has_no_order() {
    let add = |client, span, old, version| {
        let tag = client as u64;
        answered(
            client,
            span,
            RecordOperation::Mutate { add: 1, tag },
            ClientResponse::Written { old: Some(old), version },
        )
    };
    let lost = [add(1, (1, 5), record(0, 0), 1), add(2, (2, 6), record(0, 0), 2)];
    assert_eq!(breaks_at(&lost), 1);
    has_an_order(&[add(1, (1, 5), record(0, 0), 1), add(2, (2, 6), record(1, 1), 2)]);
}

#[test]
fn versions_rise_by_one() {
    let version = |version| {
        [answered(0, (1, 2), set(1, 1), written(1)), answered(0, (3, 4), set(2, 2), written(version))]
    };
    has_an_order(&version(2));
    assert_eq!(breaks_at(&version(3)), 1);
    assert_eq!(breaks_at(&version(0)), 1);
    // A delete keeps its version.
    let recreated = |version| {
        let mut history = version_of_delete();
        history.push(answered(0, (7, 8), set(2, 2), written(version)));
        history
    };
    has_an_order(&recreated(3));
    assert_eq!(breaks_at(&recreated(1)), 3);
}

fn version_of_delete() -> Vec<Line> {
    vec![
        answered(0, (1, 2), set(1, 1), written(1)),
        answered(0, (3, 4), RecordOperation::Delete, ClientResponse::Deleted),
        answered(0, (5, 6), RecordOperation::Inc(1), ClientResponse::Missing),
    ]
}

#[test]
fn mutations_of_one_side_share_a_version_and_no_read_sees_half_of_it() {
    let add = |client, side, old, version| {
        let (what, told) = (
            RecordOperation::Mutate { add: 1, tag: client as u64 },
            ClientResponse::Written { old: Some(old), version },
        );
        line(client, side, (1, 5), what, Outcome::Ok(told))
    };
    let shared = vec![add(1, 0, record(0, 0), 1), add(2, 0, record(1, 1), 1)];
    has_an_order(&shared);
    // A read of another client before, between and after them.
    let with = |read| [shared.clone(), vec![answered(3, (2, 4), RecordOperation::Read, read)]].concat();
    has_an_order(&with(ClientResponse::Found(None)));
    has_an_order(&with(found(1, 2, 2)));
    breaks_at(&with(found(1, 1, 1)));
    // Two sides do not share writes.
    breaks_at(&[add(1, 0, record(0, 0), 1), add(2, 1, record(1, 1), 1)]);
    // Neither do deltas and mutations.
    let delta = answered(2, (1, 5), RecordOperation::Inc(1), written(1));
    breaks_at(&[add(1, 0, record(0, 0), 1), delta]);
}

#[test]
fn touching_and_refusing_see_the_newest_value() {
    let after =
        |what, answer| [answered(0, (1, 2), set(1, 1), written(1)), answered(1, (3, 4), what, answer)];
    has_an_order(&after(RecordOperation::Touch, ClientResponse::Unchanged { old: record(1, 1), version: 1 }));
    breaks_at(&after(RecordOperation::Touch, ClientResponse::Unchanged { old: record(1, 1), version: 2 }));
    breaks_at(&after(RecordOperation::Touch, ClientResponse::Unchanged { old: record(0, 0), version: 1 }));
    has_an_order(&after(RecordOperation::Refuse, ClientResponse::Refused(record(1, 1))));
    breaks_at(&after(RecordOperation::Refuse, ClientResponse::Refused(record(0, 0))));
    breaks_at(&after(RecordOperation::Inc(1), ClientResponse::Missing));
}

#[test]
fn an_unknown_write_happens_once_or_never_and_not_before_its_call() {
    let read = |client, span, version, count, tag| {
        answered(client, span, RecordOperation::Read, found(version, count, tag))
    };
    let before = [answered(0, (1, 2), set(1, 1), written(1)), unknown(1, 5, set(7, 7))];
    let with = |more: &[Line]| [&before[..], more].concat();
    has_an_order(&with(&[read(2, (100, 101), 1, 1, 1)]));
    has_an_order(&with(&[read(2, (6, 7), 1, 1, 1), read(2, (100, 101), 2, 7, 7)]));
    // A write has happened once a read has returned it.
    assert_eq!(breaks_at(&with(&[read(2, (6, 7), 2, 7, 7), read(2, (8, 9), 1, 1, 1)])), 3);
    // It cannot happen before its call.
    assert_eq!(breaks_at(&with(&[read(2, (3, 4), 2, 7, 7)])), 2);
    // It happens only once: an overwritten value does not return.
    let overwritten = answered(0, (8, 9), set(2, 2), written(3));
    let again = [read(2, (6, 7), 2, 7, 7), overwritten, read(2, (10, 11), 4, 7, 7)];
    assert_eq!(breaks_at(&with(&again)), 4);
}

#[test]
fn an_unknown_write_that_is_over_does_not_happen_later() {
    let history = |end| {
        let mut lost = unknown(1, 5, set(7, 7));
        lost.end = end;
        [
            answered(0, (1, 2), set(1, 1), written(1)),
            lost,
            answered(2, (20, 21), RecordOperation::Read, found(1, 1, 1)),
            answered(2, (30, 31), RecordOperation::Read, found(2, 7, 7)),
        ]
    };
    has_an_order(&history(u64::MAX));
    has_an_order(&history(25));
    assert_eq!(breaks_at(&history(15)), 3);
}

#[test]
fn a_failed_write_never_happened() {
    let mut history = vec![
        answered(0, (1, 2), set(1, 1), written(1)),
        line(1, 0, (3, 6), set(7, 7), Outcome::Failed),
        answered(2, (4, 5), RecordOperation::Read, found(1, 1, 1)),
    ];
    has_an_order(&history);
    history.push(answered(2, (7, 8), RecordOperation::Read, found(2, 7, 7)));
    assert_eq!(breaks_at(&history), 3);
    history[1].outcome = Outcome::Unknown;
    has_an_order(&history);
}

#[test]
fn each_key_is_on_its_own() {
    let mut history =
        vec![answered(0, (1, 2), set(1, 1), written(1)), answered(0, (3, 4), set(2, 2), written(1))];
    breaks_at(&history);
    history[1].key = "other".to_owned();
    let explained = check(&RecordModel, &history, MOST_STEPS).unwrap();
    assert_eq!((explained.keys, explained.placed), (2, 2));
}

#[test]
fn a_broken_history_is_explained_briefly() {
    // All answers long before and long after the one wrong answer are correct.
    let mut history: Vec<Line> =
        (1..=400_u64).map(|n| answered(0, (10 * n, 10 * n + 1), set(n as i64, n), written(n))).collect();
    history.insert(200, answered(1, (2_002, 2_005), RecordOperation::Read, found(150, 150, 150)));
    let Err(Trouble::Broken(broken)) = check(&RecordModel, &history, MOST_STEPS) else {
        panic!("it is broken")
    };
    assert_eq!((broken.answer, broken.placed.len(), broken.state.version), (200, 200, 200));
    assert_eq!(broken.stuck, [200]);
    let text = Trouble::Broken(broken).to_string();
    assert!(text.contains("client 1 [2002..2005] side 0 Read -> Found(Some((150, 150#150)))"), "{text}");
    assert!(text.lines().count() < 20, "{text}");
}

#[test]
fn too_many_steps_are_undecided() {
    // Twenty writes with unknown outcomes, and a read that returns none of them.
    let mut history: Vec<Line> =
        (0..20).map(|n| unknown(n, 1 + n as u64, RecordOperation::Inc(1 << n))).collect();
    history.push(answered(30, (30, 31), set(0, 1), written(1)));
    history.push(answered(30, (40, 41), RecordOperation::Get, ClientResponse::Value(record(-1, 1))));
    let trouble = check(&RecordModel, &history, 1_000).unwrap_err();
    let Trouble::Undecided { operations, placed, most_steps, .. } = &trouble else { panic!("{trouble}") };
    assert_eq!((*operations, *placed, *most_steps), (22, 1, 1_000));
}
