//! Only here: the bounds of scans under claims, commits and rests, without a server.

use super::*;

const QUEUE: &str = "mails";
const LEVEL: usize = 5;

/// A scan that found rows at these ready times, by level, and walked this number of dead entries.
fn found(at: i64, dead: u64, lowest: &[(usize, i64)]) -> Scanned {
    let mut levels = vec![None; LEVELS];
    for (level, ready_at) in lowest {
        if let Some(slot) = levels.get_mut(*level) {
            *slot = Some(*ready_at);
        }
    }
    Scanned { at, dead, lowest: levels }
}

fn begin(bounds: &ScanBounds, now: Instant) -> Scan<'_> {
    bounds.begin(vec![QUEUE.to_owned()], now)
}

/// Returns where the scan of a level starts.
fn from(scan: &Scan<'_>) -> i64 {
    scan.levels.from.get(LEVEL).copied().unwrap_or(0)
}

fn lower(bounds: &ScanBounds, ready_at: i64) {
    let mut state = bounds.state.lock();
    let queue = state.queues.entry(QUEUE.to_owned()).or_default();
    queue.lower(LEVEL, ready_at);
    queue.learn(ready_at, 0);
}

const NOON: i64 = 1_000_000_000;

#[test]
fn every_scan_is_full_while_few_entries_are_dead() {
    let (bounds, now) = (ScanBounds::default(), Instant::now());
    for _ in 0..3 {
        let scan = begin(&bounds, now);
        assert_eq!(from(&scan), i64::MIN);
        scan.finish(&found(NOON, FREE_ENTRIES - 1, &[]), now);
        assert!(!scan.full_levels(&[QUEUE.to_owned()]).is_empty());
    }
}

#[test]
fn after_many_dead_entries_scans_start_at_the_first_live_row_until_the_rest_is_over() {
    let (bounds, now) = (ScanBounds::default(), Instant::now());
    begin(&bounds, now).finish(&found(NOON, 100_000, &[(LEVEL, 700)]), now);
    let scan = begin(&bounds, now);
    assert_eq!(from(&scan), 700);
    scan.finish(&found(NOON, 0, &[]), now);
    assert!(scan.full_levels(&[QUEUE.to_owned()]).is_empty(), "the server is not asked for the next row");
    drop(scan);
    let from_margin = from(&begin(&bounds, now));
    assert!(from_margin < NOON && from_margin > 700, "{from_margin}");
    assert_eq!(from(&begin(&bounds, now + Duration::from_secs(1))), i64::MIN, "a second for 100,000 entries");
}

#[test]
fn one_claimer_at_a_time_scans_in_full() {
    let (bounds, now) = (ScanBounds::default(), Instant::now());
    begin(&bounds, now).finish(&found(NOON, 100_000, &[(LEVEL, 700)]), now);
    let later = now + Duration::from_secs(2);
    let first = begin(&bounds, later);
    assert_eq!(from(&first), i64::MIN);
    assert_eq!(from(&begin(&bounds, later)), 700);
}

#[test]
fn a_row_that_is_committed_during_a_scan_is_not_passed_over_by_the_next() {
    let (bounds, now) = (ScanBounds::default(), Instant::now());
    begin(&bounds, now).finish(&found(NOON, 100_000, &[]), now);
    let scan = begin(&bounds, now);
    lower(&bounds, 42);
    scan.finish(&found(NOON + 1, 0, &[]), now);
    drop(scan);
    assert_eq!(from(&begin(&bounds, now)), 42);
}

#[test]
fn a_scan_that_a_full_one_overtook_does_not_raise_the_bound() {
    let (bounds, now) = (ScanBounds::default(), Instant::now());
    begin(&bounds, now).finish(&found(NOON, 100_000, &[]), now);
    let partial = begin(&bounds, now);
    let later = now + Duration::from_secs(2);
    begin(&bounds, later).finish(&found(NOON, 100_000, &[(LEVEL, 7)]), later);
    partial.finish(&found(NOON, 0, &[]), later);
    drop(partial);
    assert_eq!(from(&begin(&bounds, later)), 7);
}

#[test]
fn a_claim_that_did_not_see_all_is_repeated_when_the_rest_is_over_or_earlier() {
    let (bounds, now) = (ScanBounds::default(), Instant::now());
    let queues = [QUEUE.to_owned()];
    begin(&bounds, now).finish(&found(NOON, 100_000, &[]), now);
    let scan = begin(&bounds, now);
    assert_eq!(scan.next_look(&queues, &found(NOON, 0, &[]), now), Some(NOON + 1_000_000));
    lower(&bounds, NOON + 300);
    assert_eq!(scan.next_look(&queues, &found(NOON, 0, &[]), now), Some(NOON + 300), "a row of this process");
    let locked = found(NOON, 0, &[(LEVEL, 700)]);
    assert_eq!(scan.next_look(&queues, &locked, now), Some(NOON + LOCKED), "another claimer may let go");
    drop(scan);
    let full = begin(&bounds, now + Duration::from_secs(1));
    assert_eq!(full.next_look(&queues, &found(NOON, 0, &[]), now), None, "the server says it");
}

#[test]
fn bounds_forgotten_during_a_scan_stay_forgotten() {
    let (bounds, now) = (ScanBounds::default(), Instant::now());
    let scan = begin(&bounds, now);
    bounds.clear();
    scan.finish(&found(NOON, 100_000, &[]), now);
    drop(scan);
    assert_eq!(from(&begin(&bounds, now)), i64::MIN);
}

#[test]
fn a_hint_covers_a_transaction_that_was_open_at_the_hint_before() {
    let (bounds, now) = (ScanBounds::default(), Instant::now());
    let raise = || begin(&bounds, now).finish(&found(NOON, 100_000, &[(LEVEL, 700)]), now);
    raise();
    bounds.state.lock().uncommitted.insert((QUEUE.to_owned(), LEVEL), (500, now));
    bounds.hint(now); // of another transaction
    assert_eq!(from(&begin(&bounds, now)), 500);
    begin(&bounds, now + Duration::from_secs(2)).finish(&found(NOON, 100_000, &[(LEVEL, 700)]), now);
    assert_eq!(from(&begin(&bounds, now)), 700, "the row is not visible yet, and the bound rises past it");
    bounds.hint(now + UNCOMMITTED / 2);
    assert_eq!(from(&begin(&bounds, now)), 500);
    bounds.hint(now + UNCOMMITTED);
    assert!(bounds.state.lock().uncommitted.is_empty());
}
