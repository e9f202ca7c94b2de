//! Schedules compared with the table of the guide, and with a calendar that is walked minute by minute.

#![allow(clippy::restriction, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included};

use jiff::civil;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use tidelock_core::clock::Timestamp;
use tidelock_core::model::cron::{
    CatchUp, DstGap, DstOverlap, Overlap, Progress, Recurrence, ScheduleAction, ScheduleState, Zone, plan,
};

/// The table is in the guide, so that readers see the tested cases.
const GUIDE: &str = include_str!("../../../docs/how-to/cron-schedules.md");

fn at(text: &str) -> Timestamp {
    let text =
        if text.len() == "2026-03-07T00:00Z".len() { text.replace('Z', ":00Z") } else { text.to_owned() };
    text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn timetable(cron: &str, zone: &str) -> Recurrence {
    Recurrence::new("task", cron.parse().unwrap(), Zone::parse(zone).unwrap())
}

#[test]
fn c8_the_table_of_the_guide_holds() {
    let rows =
        GUIDE.lines().filter(|line| line.contains('/') && line.contains("T0") && line.starts_with("| "));
    let mut zones = BTreeMap::<&str, usize>::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, zone, cron, gap, repeat, after, fires, _] = cells[..] else { panic!("{row}") };
        let mut table = timetable(cron.trim_matches('`'), zone);
        table.gap = match gap {
            "vixie" => DstGap::Vixie,
            "after" => DstGap::After,
            "skip" => DstGap::Skip,
            _ => panic!("{row}"),
        };
        table.repeat = match repeat {
            "vixie" => DstOverlap::Vixie,
            "first" => DstOverlap::First,
            "both" => DstOverlap::Both,
            _ => panic!("{row}"),
        };
        let mut now = at(after);
        for fire in fires.split(", ") {
            now = table.next(now).expect("there is always another fire");
            assert_eq!(now, at(fire), "{row}: found {now}");
        }
        *zones.entry(zone).or_default() += 1;
    }
    for zone in
        ["America/New_York", "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Asia/Kolkata"]
    {
        assert!(zones.contains_key(zone), "{zone} is missing: {zones:?}");
    }
    assert!(zones.values().sum::<usize>() >= 20, "{zones:?}");
}

/// A field of a cron expression: its text, and its values. `None` when it is not restricted.
#[derive(Clone, Debug)]
struct Field {
    text: String,
    values: Option<BTreeSet<i8>>,
}

impl Field {
    fn matches(&self, value: i8) -> bool {
        self.values.as_ref().is_none_or(|values| values.contains(&value))
    }
}

fn list(all: Vec<i8>) -> impl Strategy<Value = Field> {
    prop::collection::btree_set(prop::sample::select(all), 1..4).prop_map(|values| {
        let text = values.iter().map(i8::to_string).collect::<Vec<_>>().join(",");
        Field { text, values: Some(values) }
    })
}

fn field(range: std::ops::RangeInclusive<i8>, steps: bool) -> BoxedStrategy<Field> {
    let all: Vec<i8> = range.collect();
    let (first, count) = (all[0], all.len());
    let star = Just(Field { text: "*".to_owned(), values: None }).boxed();
    let list = list(all.clone());
    let step = (2..=(count as i8 - 1).min(20)).prop_map(move |step| {
        let values = all.iter().copied().filter(|value| (value - first) % step == 0).collect();
        Field { text: format!("*/{step}"), values: Some(values) }
    });
    if steps {
        prop_oneof![2 => star, 3 => list, 2 => step].boxed()
    } else {
        prop_oneof![3 => star, 1 => list].boxed()
    }
}

#[derive(Clone, Debug)]
struct Expression {
    minute: Field,
    hour: Field,
    day: Field,
    month: Field,
    weekday: Field,
}

impl Expression {
    fn text(&self) -> String {
        let Self { minute, hour, day, month, weekday } = self;
        [minute, hour, day, month, weekday].map(|field| field.text.as_str()).join(" ")
    }

    fn fixed(&self) -> bool {
        !self.minute.text.starts_with('*') && !self.hour.text.starts_with('*')
    }

    fn matches(&self, wall: civil::DateTime) -> bool {
        let weekday = wall.weekday().to_sunday_zero_offset();
        let day = match (&self.day.values, &self.weekday.values) {
            (Some(days), Some(weekdays)) => days.contains(&wall.day()) || weekdays.contains(&weekday),
            _ => self.day.matches(wall.day()) && self.weekday.matches(weekday),
        };
        day && self.minute.matches(wall.minute())
            && self.hour.matches(wall.hour())
            && self.month.matches(wall.month())
    }
}

fn expression() -> impl Strategy<Value = Expression> {
    // Clocks change at night, so half of the hours are at night.
    let (minute, night) = (field(0..=59, true), list(vec![0, 1, 2, 3, 23]));
    let hour = prop_oneof![field(0..=23, true), night];
    let (day, month, weekday) = (field(1..=28, false), field(1..=12, false), field(0..=6, false));
    (minute, hour, day, month, weekday).prop_map(|(minute, hour, day, month, weekday)| Expression {
        minute,
        hour,
        day,
        month,
        weekday,
    })
}

/// Zones with instants at which their clocks change, and instants at which they do not.
const PLACES: &[(&str, &[&str])] = &[
    ("America/New_York", &["2026-03-08T07:00Z", "2026-11-01T06:00Z", "2026-07-01T00:00Z"]),
    ("Europe/Berlin", &["2026-03-29T01:00Z", "2026-10-25T01:00Z"]),
    ("America/Santiago", &["2026-04-05T03:00Z", "2026-09-06T04:00Z"]),
    ("Australia/Lord_Howe", &["2026-04-04T15:00Z", "2026-10-03T15:30Z"]),
    ("Pacific/Chatham", &["2026-04-04T14:00Z", "2026-09-26T14:00Z"]),
    ("Africa/Casablanca", &["2026-02-15T02:00Z", "2026-03-22T02:00Z"]),
    ("Asia/Kolkata", &["2026-03-28T00:00Z"]),
    ("UTC", &["2026-12-31T23:00Z"]),
];

const MINUTE: i64 = 60_000_000;
/// Number of minutes before and after the instant that are walked.
const REACH: i64 = 36 * 60;

fn place() -> impl Strategy<Value = (&'static str, i64)> {
    let places: Vec<_> = PLACES
        .iter()
        .flat_map(|(zone, changes)| changes.iter().map(|change| (*zone, at(change).as_micros())))
        .collect();
    prop::sample::select(places)
}

/// Returns the firings within reach of an instant, found by reading the wall clock every minute.
fn walked(expression: &Expression, zone: &str, around: i64) -> BTreeSet<i64> {
    let zone = TimeZone::get(zone).unwrap();
    let wall =
        |micros: i64| jiff::Timestamp::from_microsecond(micros).unwrap().to_zoned(zone.clone()).datetime();
    let (mut fires, mut furthest) = (BTreeSet::new(), wall(around - (REACH + 1) * MINUTE));
    for minute in -REACH..=REACH {
        let now = around + minute * MINUTE;
        let shown = wall(now);
        let repeated = shown <= furthest;
        if expression.matches(shown) && !(expression.fixed() && repeated) {
            fires.insert(now);
        }
        // Wall times that were skipped.
        let mut missing = furthest.checked_add(jiff::Span::new().minutes(1)).unwrap();
        while missing < shown {
            if expression.fixed() && expression.matches(missing) {
                fires.insert(now);
            }
            missing = missing.checked_add(jiff::Span::new().minutes(1)).unwrap();
        }
        furthest = furthest.max(shown);
    }
    fires
}

fn within(fires: impl Iterator<Item = i64>, around: i64) -> BTreeSet<i64> {
    fires.filter(|fire| (fire - around).abs() <= REACH * MINUTE).collect()
}

/// Generates the movement of the clock, in minutes from the instant: step by step, or in jumps.
fn moves() -> impl Strategy<Value = Vec<i64>> {
    let jump = (-REACH..REACH).prop_map(|to| vec![to]);
    let steps = (-REACH..REACH - 60, 1..60_i64).prop_map(|(from, count)| (from..from + count).collect());
    prop::collection::vec(prop_oneof![jump, steps], 1..10).prop_map(|moves: Vec<Vec<i64>>| moves.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn c8_no_fire_is_lost_or_doubled((expression, (zone, around)) in (expression(), place())) {
        let table = timetable(&expression.text(), zone);
        let mut next = Timestamp::from_micros(around - REACH * MINUTE - 1);
        let mut fires = Vec::new();
        while let Some(fire) = table.next(next).filter(|fire| fire.as_micros() <= around + REACH * MINUTE) {
            prop_assert!(fire > next);
            fires.push(fire.as_micros());
            next = fire;
        }
        let expected = walked(&expression, zone, around);
        prop_assert_eq!(within(fires.into_iter(), around), expected, "{} in {}", expression.text(), zone);
    }

    #[test]
    fn c9_clocks_that_jump_neither_lose_nor_double((expression, (zone, around), moves) in (expression(), place(), moves())) {
        let table = timetable(&expression.text(), zone);
        let fires = walked(&expression, zone, around);
        let mut position = around + moves[0] * MINUTE;
        let mut progress = Progress::beginning(Timestamp::from_micros(position));
        let mut ran = BTreeSet::new();
        for to in moves.iter().skip(1).map(|minute| around + minute * MINUTE) {
            // The oracle: of the firings between the previous and the new position that have not run, the last one
            // runs.
            position = position.min(to);
            let open = fires.range((Excluded(position), Included(to))).filter(|fire| !ran.contains(*fire)).copied();
            let expected = open.max();
            position = to;

            let situation = ScheduleState {
                timetable: &table,
                progress: &progress,
                catch_up: CatchUp::One,
                overlap: Overlap::Queue,
                busy: None,
                retry: None,
            };
            let fired = match plan(&situation, Timestamp::from_micros(to)) {
                ScheduleAction::Fire { fire, progress: after, .. } => {
                    progress = after;
                    Some(fire.as_micros())
                }
                ScheduleAction::Wait { progress: after, until, .. } => {
                    prop_assert!(until.is_none_or(|until| until.as_micros() > to));
                    progress = after;
                    None
                }
                ScheduleAction::Retry { .. } => panic!("there is nothing to retry"),
            };
            prop_assert_eq!(fired, expected, "{} in {}", expression.text(), zone);
            if let Some(fire) = fired {
                prop_assert!(ran.insert(fire), "{} ran twice", fire);
            }
        }
    }
}
