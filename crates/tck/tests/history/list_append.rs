//! Tests of the list-append checker on handwritten histories: one for each anomaly, beside one without it.

use tidelock_tck::history::list_append::{
    Anomalies, AnomalyKind, Append, Executed, Reading, Transaction, check,
};
use tidelock_tck::history::{Operation, Outcome};

/// Returns the readings that a text lists, as in `x=1,2 y=`.
pub(super) fn readings(text: &str) -> Vec<Reading> {
    let reading = |part: &str| {
        let (list, elements) = part.split_once('=').unwrap();
        let elements = elements.split(',').filter(|e| !e.is_empty()).map(|e| e.parse().unwrap()).collect();
        Reading { list: list.to_owned(), elements }
    };
    text.split_whitespace().map(reading).collect()
}

/// Returns the appends that a text lists, as in `x+1 y+2`.
fn appends(text: &str) -> Vec<Append> {
    let append = |part: &str| {
        let (list, element) = part.split_once('+').unwrap();
        Append { list: list.to_owned(), element: element.parse().unwrap() }
    };
    text.split_whitespace().map(append).collect()
}

/// Returns a transaction of a client of its own: its instants, its expectations and appends, and its readings.
fn ended((call, end): (u64, u64), expects: &str, appended: &str, read: &str) -> Executed {
    with(Outcome::Ok(readings(read)), (call, end), expects, appended)
}

fn with(outcome: Outcome<Vec<Reading>>, (call, end): (u64, u64), expects: &str, appended: &str) -> Executed {
    let asked = Transaction { expects: readings(expects), appends: appends(appended) };
    Operation { client: call as usize, key: String::new(), asked, call, end, outcome }
}

/// Transactions that all overlap, so that real time orders none of them.
fn overlapping(lines: &[(&str, &str, &str)]) -> Vec<Executed> {
    lines
        .iter()
        .zip(1..)
        .map(|((expects, appends, read), call)| ended((call, 1_000 + call), expects, appends, read))
        .collect()
}

#[track_caller]
fn has_an_order(history: &[Executed]) {
    if let Err(anomalies) = check(history) {
        panic!("{anomalies}");
    }
}

#[track_caller]
fn anomalies(history: &[Executed]) -> Anomalies {
    let found = check(history).expect_err("the history has an anomaly");
    eprintln!("{found}\n");
    found
}

/// Checks that the history has exactly these anomalies, none of which needs real time.
#[track_caller]
fn has(kinds: &[AnomalyKind], history: &[Executed]) {
    let found = anomalies(history).0;
    assert_eq!(found.iter().map(|anomaly| anomaly.kind).collect::<Vec<_>>(), kinds);
    assert!(found.iter().all(|anomaly| !anomaly.real_time));
}

/// Checks that real time closes a cycle of this kind.
#[track_caller]
fn has_in_real_time(kind: AnomalyKind, transactions: &[usize], history: &[Executed]) {
    let found = anomalies(history).0;
    assert_eq!(
        found.iter().map(|anomaly| (anomaly.kind, anomaly.real_time)).collect::<Vec<_>>(),
        [(kind, true)]
    );
    let mut shown = found[0].transactions.clone();
    shown.sort_unstable();
    assert_eq!(shown, transactions);
}

#[test]
fn histories_without_anomalies_are_accepted() {
    has_an_order(&[]);
    has_an_order(&overlapping(&[("", "x+1", ""), ("", "x+2 y+3", ""), ("", "", "x=1,2 y=3")]));
    // A read-only transaction between two writers, and a writer that expects what it read.
    has_an_order(&overlapping(&[
        ("", "x+1", ""),
        ("x=1", "y+2", ""),
        ("x=1 y=2", "x+3", "x=1,3"),
        ("", "", "x=1 y=2"),
    ]));
}

#[test]
fn interleaved_writes_are_g0() {
    has(
        &[AnomalyKind::G0],
        &overlapping(&[
            ("", "x+1 y+1001", ""),
            ("", "x+2 y+1002", ""),
            ("", "", "x=1,2"),
            ("", "", "y=1002,1001"),
        ]),
    );
}

#[test]
fn readings_of_each_other_are_g1c() {
    has(&[AnomalyKind::G1c], &overlapping(&[("y=2", "x+1", ""), ("x=1", "y+2", "")]));
}

#[test]
fn a_read_between_two_writes_of_a_transaction_is_g_single() {
    has(
        &[AnomalyKind::GSingle],
        &overlapping(&[("", "x+1 y+2", ""), ("", "", "x=1 y="), ("", "", "x=1 y=2")]),
    );
    // Without a reading of the missing element, its writer still committed.
    has(&[AnomalyKind::GSingle], &overlapping(&[("", "x+1 y+2", ""), ("", "", "x=1 y=")]));
}

#[test]
fn a_lost_update_is_g_single() {
    // Both read the list at the same version and wrote the next one.
    has(
        &[AnomalyKind::GSingle],
        &overlapping(&[("", "x+1", ""), ("x=1", "x+2", ""), ("x=1", "x+3", ""), ("", "", "x=1,2,3")]),
    );
}

#[test]
fn a_write_skew_is_g2() {
    has(&[AnomalyKind::G2], &overlapping(&[("x= y=", "x+1", ""), ("x= y=", "y+2", ""), ("", "", "x=1 y=2")]));
}

#[test]
fn readings_of_aborted_writes_are_g1a() {
    let failed = with(Outcome::Failed, (1, 2), "", "x+1");
    has_an_order(&[failed.clone(), ended((3, 4), "", "", "x=")]);
    has(&[AnomalyKind::G1a], &[failed, ended((3, 4), "", "", "x=1")]);
}

#[test]
fn readings_of_half_a_transaction_are_g1b() {
    let found = anomalies(&overlapping(&[("", "x+1 x+2", ""), ("", "", "x=1"), ("", "", "x=1,2")])).0;
    let kinds: Vec<AnomalyKind> = found.iter().map(|anomaly| anomaly.kind).collect();
    // The reading also lies between the two writes.
    assert_eq!(kinds, [AnomalyKind::G1b, AnomalyKind::GSingle]);
    has_an_order(&overlapping(&[("", "x+1 x+2", "x=1,2"), ("", "", "x=1,2"), ("", "", "x=")]));
}

#[test]
fn a_transaction_reads_its_own_appends() {
    has(&[AnomalyKind::Internal], &overlapping(&[("", "x+1", ""), ("x=1", "x+2", "x=1")]));
    has_an_order(&overlapping(&[("", "x+1", ""), ("x=1", "x+2", "x=1,2")]));
}

#[test]
fn elements_are_there_once_and_in_one_order() {
    let with =
        |reading| overlapping(&[("", "x+1", ""), ("", "x+2", ""), ("", "", "x=1,2"), ("", "", reading)]);
    has_an_order(&with("x=1"));
    has(&[AnomalyKind::IncompatibleOrder], &with("x=2"));
    has(&[AnomalyKind::IncompatibleOrder], &with("x=2,1"));
    has(&[AnomalyKind::Duplicate, AnomalyKind::IncompatibleOrder], &with("x=1,1"));
    has(&[AnomalyKind::Duplicate], &overlapping(&[("", "x+1", ""), ("", "", "x=1,1")]));
    has(&[AnomalyKind::Garbage], &overlapping(&[("", "x+1", ""), ("", "", "x=1,7")]));
}

#[test]
fn real_time_orders_what_does_not_overlap() {
    // A stale reading: allowed while the write is in flight.
    let stale =
        |end| [ended((1, end), "", "x+1", ""), ended((3, 4), "", "", "x="), ended((20, 21), "", "", "x=1")];
    has_an_order(&stale(5));
    has_in_real_time(AnomalyKind::GSingle, &[0, 1], &stale(2));
    // An order of writes that disagrees with the order of their calls.
    let turned = |end| {
        [ended((1, end), "", "x+1", ""), ended((3, 4), "", "x+2", ""), ended((20, 21), "", "", "x=2,1")]
    };
    has_an_order(&turned(5));
    has_in_real_time(AnomalyKind::G0, &[0, 1], &turned(2));
    // A reading from the future.
    let future = [ended((1, 2), "", "", "x=1"), ended((3, 4), "", "x+1", "")];
    has_in_real_time(AnomalyKind::G1c, &[0, 1], &future);
}

#[test]
fn an_acknowledged_write_that_is_lost_is_found() {
    let lost =
        |end| [ended((1, 2), "", "x+1", ""), ended((3, end), "", "x+2", ""), ended((5, 6), "", "", "x=1")];
    has_an_order(&lost(7));
    has_in_real_time(AnomalyKind::GSingle, &[1, 2], &lost(4));
}

#[test]
fn unknown_outcomes_count_once_they_were_read() {
    let unknown = |expects, appends| with(Outcome::Unknown, (1, u64::MAX), expects, appends);
    has_an_order(&[unknown("", "x+1 y+2"), ended((3, 4), "", "", "x= y=")]);
    has_an_order(&[unknown("", "x+1 y+2"), ended((3, 4), "", "", "x= y="), ended((5, 6), "", "", "x=1 y=2")]);
    // All or nothing.
    has(&[AnomalyKind::GSingle], &[unknown("", "x+1 y+2"), ended((3, 4), "", "", "x=1 y=")]);
    // Its expectations hold as well: one of two transactions at the same version.
    has(
        &[AnomalyKind::GSingle],
        &[
            unknown("x=", "x+1"),
            with(Outcome::Unknown, (2, u64::MAX), "x=", "x+2"),
            ended((3, 4), "", "", "x=1,2"),
        ],
    );
    // A reading proves the first one, whose expectation proves the second.
    has(
        &[AnomalyKind::GSingle],
        &[
            unknown("y=9", "x+1"),
            with(Outcome::Unknown, (2, u64::MAX), "", "y+9 z+8"),
            ended((3, 4), "", "", "x=1 z="),
        ],
    );
}

#[test]
fn the_shortest_cycle_is_shown() {
    // A long cycle through a chain of readings, and a short one that shares its transactions.
    let mut lines = vec![("", "a+1 z+900", "")];
    lines.extend([("a=1", "b+2", ""), ("b=2", "c+3", ""), ("c=3", "d+4", ""), ("", "", "d=4 z=")]);
    let found = anomalies(&overlapping(&lines)).0;
    assert_eq!((found[0].kind, found[0].transactions.len()), (AnomalyKind::GSingle, 5));
    lines.push(("", "", "a=1 z="));
    let found = anomalies(&overlapping(&lines)).0;
    assert_eq!((found[0].kind, found[0].transactions.len()), (AnomalyKind::GSingle, 2));
}

#[test]
fn an_explanation_names_transactions_and_reasons() {
    let text =
        anomalies(&overlapping(&[("", "x+1 y+2", ""), ("", "", "x=1 y="), ("", "", "x=1 y=2")])).to_string();
    for part in [
        "G-single (read skew): 2 transactions have no order.",
        "T1 = client 2 [2..1002] reads \"x\" = [1] reads \"y\" = []: ok",
        "T2 = client 1 [1..1001] appends 1 to \"x\" appends 2 to \"y\": ok",
        "T1 comes before T2: T1 read list \"y\" without 2, the next element, which T2 appended.",
        "T2 comes before T1: T2 appended 1 to list \"x\", which is the last element that T1 read.",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
}
