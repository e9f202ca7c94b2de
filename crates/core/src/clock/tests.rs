//! Tests of clocks: timestamps print as dates, the manual clock advances on request, and the system clock never stops
//! or goes back.

use super::*;

#[test]
fn instants_are_written_as_dates() {
    let check = |seconds: i64, expected: &str| {
        assert_eq!(Timestamp::from_micros(seconds * 1_000_000 + 42).to_string(), expected);
    };
    check(0, "1970-01-01T00:00:00.000042Z");
    check(-1, "1969-12-31T23:59:59.000042Z");
    check(951_782_399, "2000-02-28T23:59:59.000042Z");
    check(951_782_400, "2000-02-29T00:00:00.000042Z");
    check(1_000_000_000, "2001-09-09T01:46:40.000042Z");
    check(4_107_542_399, "2100-02-28T23:59:59.000042Z");
    check(4_107_542_400, "2100-03-01T00:00:00.000042Z");
    check(1_798_761_599, "2026-12-31T23:59:59.000042Z");
}

#[test]
fn an_instant_has_come_when_the_clock_shows_it() {
    let clock = ManualClock::default();
    let soon = clock.now().after(Duration::from_micros(5));
    clock.advance(Duration::from_micros(4));
    assert!(!soon.has_come(clock.now()));
    clock.advance(Duration::from_micros(1));
    assert!(soon.has_come(clock.now()));
    assert_eq!(Timestamp::from_micros(i64::MAX).after(Duration::MAX), Timestamp::from_micros(i64::MAX));
    assert_eq!(Timestamp::EPOCH.since(soon), Duration::ZERO);
}

#[test]
fn time_advances_when_the_system_clock_goes_back() {
    let (start, micros) = (Instant::now(), Duration::from_micros);
    let mut reading = Reading::first(Timestamp(1_000), start);
    let mut show = |wall: i64, nanos: u64| {
        reading = reading.next(Timestamp(wall), start + Duration::from_nanos(nanos));
        reading.shown.as_micros()
    };
    assert_eq!(show(1_010, 10_000), 1_010, "the machine's clock is believed while it goes forward");
    assert_eq!(show(10, 20_000), 1_020, "it went back by a millisecond; ten microseconds are gone");
    assert_eq!(show(20, 30_000), 1_030);
    assert_eq!(show(20, 25_000), 1_030, "never back, whatever is read");
    // Readings closer than a microsecond still add up.
    let close: Vec<i64> = (1..=40).map(|i| show(20, 30_000 + i * 100)).collect();
    assert!(close.is_sorted() && close.last() == Some(&1_034), "{close:?}");
    assert_eq!(show(1_500, 40_000), 1_500, "it has caught up, and is believed again");
    assert_eq!(
        Reading::first(Timestamp(5), start).next(Timestamp(0), start + micros(7)).shown,
        Timestamp(12)
    );
}

#[test]
fn the_system_clock_goes_forward() {
    let clock = SystemClock::default();
    let ahead = clock.now().after(Duration::from_secs(3600));
    *clock.last.lock() = Some(Reading::first(ahead, Instant::now()));
    std::thread::sleep(Duration::from_millis(2));
    let (first, second) = (clock.now(), clock.now());
    assert!(first >= ahead.after(Duration::from_millis(2)) && second >= first);
    assert!(first.since(ahead) < Duration::from_secs(600), "at the machine's pace");
}
