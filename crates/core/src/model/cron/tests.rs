//! Timetables with hand-written cases. See `tests/daylight.rs` for the table of zones, and `tests/timetables.rs` for
//! random ones.

use std::time::Duration;

use super::*;
use crate::clock::Timestamp;
use crate::model::retry::RetryPolicy;

const HOUR: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn table(when: &str) -> Recurrence {
    Recurrence::new("task", when.parse().unwrap(), Zone::utc())
}

fn fires(when: &str, after: &str, count: usize) -> Vec<String> {
    let (table, mut at) = (table(when), at(after));
    (0..count)
        .map(|_| {
            at = table.next(at).unwrap();
            at.to_string().replace(":00.000000Z", "")
        })
        .collect()
}

#[test]
fn c7_days_are_either_or_and_days_that_never_come_are_refused() {
    let either = fires("0 0 13 * FRI", "2026-01-01T00:00:00Z", 6);
    assert_eq!(
        either,
        [
            "2026-01-02T00:00",
            "2026-01-09T00:00",
            "2026-01-13T00:00",
            "2026-01-16T00:00",
            "2026-01-23T00:00",
            "2026-01-30T00:00"
        ]
    );
    assert_eq!(fires("0 0 29 2 *", "2096-03-01T00:00:00Z", 1), ["2104-02-29T00:00"], "2100 is no leap year");
    assert_eq!(fires("0 0 29 2 *", "2026-01-01T00:00:00Z", 2), ["2028-02-29T00:00", "2032-02-29T00:00"]);
    for never in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2 *"] {
        let refused = never.parse::<Trigger>().unwrap_err();
        assert!(refused.to_string().contains("there is no such day"), "{refused}");
    }
}

#[test]
fn unparsable_expressions_are_rejected_with_a_reason() {
    let wrong = [
        "",
        "* * * *",
        "* * * * * *",
        "61 * * * *",
        "0 24 * * *",
        "0 0 0 * *",
        "0 0 * 13 *",
        "0 0 * * 8",
        "a b c d e",
        "@every",
        "@every 0s",
        "@every 5",
        "@at noon",
        "@reboot",
        "@every 1ms",
    ];
    for text in wrong {
        let refused = text.parse::<Trigger>().unwrap_err();
        assert!(matches!(&refused, CronError::Expression { reason, .. } if !reason.is_empty()), "{refused}");
    }
    assert!(matches!(Zone::parse("Mars/Olympus"), Err(CronError::Zone { .. })));
}

#[test]
fn times_read_as_they_are_written() {
    for text in
        ["30 2 * * *", "@daily", "@every 10m", "@every 36h", "@every 1s 500ms", "@at 2026-03-29T01:00:00Z"]
    {
        assert_eq!(text.parse::<Trigger>().unwrap().to_string(), text);
    }
    assert_eq!("  5   4 * *  SUN ".parse::<Trigger>().unwrap().to_string(), "5 4 * * SUN");
    assert_eq!("@every 90000ms".parse::<Trigger>().unwrap().to_string(), "@every 1m 30s");
    assert_eq!("@every 5 minutes".parse::<Trigger>().unwrap().to_string(), "@every 5m");
    assert_eq!(
        "@at 2026-03-29T03:00:00+02:00".parse::<Trigger>().unwrap().to_string(),
        "@at 2026-03-29T01:00:00Z"
    );
}

#[test]
fn intervals_are_counted_from_their_anchor() {
    let mut table = table("@every 1m 30s");
    assert_eq!("@every 5 minutes".parse::<Trigger>().unwrap().to_string(), "@every 5m");
    table.anchor = at("2026-01-01T00:00:10Z");
    assert_eq!(table.next(table.anchor), Some(at("2026-01-01T00:01:40Z")));
    assert_eq!(table.next(at("2026-01-01T00:01:40Z")), Some(at("2026-01-01T00:03:10Z")));
    assert_eq!(table.next(at("2026-01-01T00:01:39Z")), Some(at("2026-01-01T00:01:40Z")));
    assert_eq!(table.next(at("2025-12-31T23:59:00Z")), Some(at("2026-01-01T00:00:10Z")), "before it, too");
}

#[test]
fn spread_and_jitter_are_the_same_in_every_process() {
    let mut table = table("* * * * *");
    (table.spread, table.jitter) = (MINUTE, MINUTE);
    let fires: Vec<_> = (0..200).map(|i| at("2026-01-01T00:00:00Z").after(i * MINUTE)).collect();
    let late: Vec<_> = fires.iter().map(|fire| table.due(*fire).since(*fire)).collect();
    assert_eq!(late, fires.iter().map(|fire| table.clone().due(*fire).since(*fire)).collect::<Vec<_>>());
    assert!(late.iter().all(|late| *late < 2 * MINUTE));
    let (least, most) = (late.iter().min().unwrap(), late.iter().max().unwrap());
    assert!(*most - *least > MINUTE / 2, "jitter differs from fire to fire: {least:?} to {most:?}");
    table.jitter = Duration::ZERO;
    let spread = table.due(fires[0]).since(fires[0]);
    assert!(fires.iter().all(|fire| table.due(*fire).since(*fire) == spread), "spread is one for all");
    let others: std::collections::BTreeSet<_> =
        (0..50).map(|i| Recurrence { name: format!("task-{i}"), ..table.clone() }.due(fires[0])).collect();
    assert!(others.len() == 50, "names are spread");
    assert_eq!(table.due(at("2026-01-01T00:00:00Z")), at("2026-01-01T00:00:48.358101Z"), "it never changes");
}

/// A task under test, with runs that take no time.
struct Looked {
    table: Recurrence,
    progress: Progress,
    catch_up: CatchUp,
    overlap: Overlap,
    busy: Option<Span>,
    retry: Option<Timestamp>,
}

impl Looked {
    fn new(when: &str, begin: &str) -> Self {
        let table = table(when);
        let progress = Progress::beginning(table.beginning(at(begin)));
        let (catch_up, overlap, busy, retry) = Default::default();
        Self { table, progress, catch_up, overlap, busy, retry }
    }

    fn plan(&self, now: Timestamp) -> ScheduleAction {
        let Self { table, progress, catch_up, overlap, busy, retry } = self;
        let (catch_up, overlap, busy, retry) = (*catch_up, *overlap, *busy, *retry);
        plan(&ScheduleState { timetable: table, progress, catch_up, overlap, busy, retry }, now)
    }

    /// Returns the runs at an instant, until the plan is to wait.
    fn runs(&mut self, now: &str) -> Vec<String> {
        let mut runs = Vec::new();
        loop {
            match self.plan(at(now)) {
                ScheduleAction::Wait { progress, until, .. } => {
                    assert!(until.is_none_or(|until| until > at(now)), "it would spin: {until:?}");
                    self.progress = progress;
                    return runs;
                }
                ScheduleAction::Retry { progress } => {
                    (self.progress, self.retry) = (progress, None);
                    runs.push("retry".to_owned());
                }
                ScheduleAction::Fire { fire, progress, .. } => {
                    assert!(runs.len() < 1_000, "it does not end");
                    (self.progress, self.retry) = (progress, None);
                    runs.push(fire.to_string().replace(":00.000000Z", ""));
                }
            }
        }
    }
}

#[test]
fn c1_a_new_task_runs_at_once_only_if_the_minute_matches() {
    assert_eq!(
        Looked::new("30 2 * * *", "2026-01-01T02:30:59Z").runs("2026-01-01T02:30:59Z"),
        ["2026-01-01T02:30"]
    );
    assert!(Looked::new("30 2 * * *", "2026-01-01T02:31:00Z").runs("2026-01-01T02:31:00Z").is_empty());
    assert!(Looked::new("@every 5m", "2026-01-01T02:31:00Z").runs("2026-01-01T02:31:00Z").is_empty());
    assert_eq!(
        Looked::new("@at 2026-01-01T00:00:00Z", "2026-01-01T02:31:00Z").runs("2026-01-01T02:31:00Z").len(),
        1
    );
}

#[test]
fn c2_an_outage_is_caught_up_by_the_policy() {
    let begin = "2026-01-01T00:00:30Z";
    let hours = || {
        let mut looked = Looked::new("0 */2 * * *", begin);
        assert_eq!(looked.runs(begin), ["2026-01-01T00:00"]);
        looked
    };
    let mut one = hours();
    assert_eq!(one.runs("2026-01-01T12:30:00Z"), ["2026-01-01T12:00"]);
    let mut all = Looked { catch_up: CatchUp::All(5 * HOUR), ..hours() };
    assert_eq!(
        all.runs("2026-01-01T12:30:00Z"),
        ["2026-01-01T08:00", "2026-01-01T10:00", "2026-01-01T12:00"]
    );
    let mut none = Looked { catch_up: CatchUp::None(MINUTE), ..hours() };
    assert!(none.runs("2026-01-01T12:30:00Z").is_empty());
    assert_eq!(none.runs("2026-01-01T14:00:59Z"), ["2026-01-01T14:00"]);
    let ScheduleAction::Fire { skipped, .. } = hours().plan(at("2026-01-01T12:30:00Z")) else {
        panic!("it is due")
    };
    assert_eq!(skipped, 5);
}

#[test]
fn c3_fires_during_a_run_are_queued_or_skipped() {
    let begin = "2026-01-01T00:00:00Z";
    let busy = Some(Span { after: at(begin), to: at("2026-01-01T00:05:30Z") });
    let during = |catch_up, overlap| {
        let mut looked = Looked::new("* * * * *", begin);
        assert_eq!(looked.runs(begin).len(), 1);
        Looked { busy, catch_up, overlap, ..looked }.runs("2026-01-01T00:05:30Z")
    };
    for catch_up in [CatchUp::One, CatchUp::All(HOUR), CatchUp::None(MINUTE)] {
        assert_eq!(during(catch_up, Overlap::Queue), ["2026-01-01T00:05"], "{catch_up:?}");
        assert!(during(catch_up, Overlap::Skip).is_empty(), "{catch_up:?}");
        let all: Vec<_> = (1..=5).map(|minute| format!("2026-01-01T00:0{minute}")).collect();
        assert_eq!(during(catch_up, Overlap::QueueAll), all, "{catch_up:?}");
    }
    let mut outage = Looked { busy, overlap: Overlap::QueueAll, ..Looked::new("* * * * *", begin) };
    assert_eq!(outage.runs("2026-01-01T00:05:30Z").len(), 6);
    assert_eq!(
        outage.runs("2026-01-01T00:09:00Z"),
        ["2026-01-01T00:09"],
        "no scheduler ran: the firing is caught up"
    );
    let mut missed = Looked { busy, overlap: Overlap::Skip, ..Looked::new("* * * * *", begin) };
    assert_eq!(missed.runs("2026-01-01T00:07:00Z"), ["2026-01-01T00:07"], "what came after it is no overlap");
}

#[test]
fn c4_a_retry_comes_at_its_time_unless_a_fire_comes_first() {
    let begin = "2026-01-01T00:00:00Z";
    let mut looked = Looked::new("*/10 * * * *", begin);
    looked.runs(begin);
    looked.retry = Some(at("2026-01-01T00:05:00Z"));
    let ScheduleAction::Wait { until, .. } = looked.plan(at("2026-01-01T00:04:59Z")) else {
        panic!("it waits")
    };
    assert_eq!(until, looked.retry);
    assert!(matches!(looked.plan(at("2026-01-01T00:05:00Z")), ScheduleAction::Retry { .. }));
    looked.retry = Some(at("2026-01-01T00:15:00Z"));
    assert_eq!(looked.runs("2026-01-01T00:10:00Z"), ["2026-01-01T00:10"], "and the retry is gone");
    assert!(looked.runs("2026-01-01T00:15:00Z").is_empty());

    let all = Looked { catch_up: CatchUp::All(HOUR), retry: Some(at("2026-01-01T00:15:00Z")), ..looked };
    let ScheduleAction::Wait { until, .. } = all.plan(at("2026-01-01T00:11:00Z")) else {
        panic!("it waits for the retry")
    };
    assert_eq!(until, all.retry);
    assert!(
        matches!(all.plan(at("2026-01-01T00:15:00Z")), ScheduleAction::Retry { .. }),
        "none takes its place"
    );

    let policy = RetryPolicy { max_attempts: 3, base: MINUTE, factor: 2.0, cap: HOUR };
    assert_eq!(retry_at(&policy, 1, at(begin)), Some(at(begin).after(MINUTE)));
    assert_eq!(retry_at(&policy, 2, at(begin)), Some(at(begin).after(2 * MINUTE)));
    assert_eq!(retry_at(&policy, 3, at(begin)), None);
}

#[test]
fn c9_a_clock_that_goes_back_neither_doubles_nor_stalls() {
    let mut looked = Looked::new("0 * * * *", "2026-01-01T00:00:00Z");
    assert_eq!(looked.runs("2026-01-01T00:00:00Z").len(), 1);
    assert_eq!(looked.runs("2026-01-01T01:00:00Z").len(), 1);
    assert_eq!(looked.runs("2027-01-01T00:00:00Z"), ["2027-01-01T00:00"], "a year ahead by mistake");
    assert!(looked.runs("2026-01-01T00:30:00Z").is_empty(), "and back: nothing yet");
    assert!(looked.runs("2026-01-01T01:30:00Z").is_empty(), "this one has run");
    assert_eq!(looked.runs("2026-01-01T02:00:00Z"), ["2026-01-01T02:00"], "this one has not");
    assert_eq!(looked.runs("2026-01-01T03:00:00Z"), ["2026-01-01T03:00"]);
    assert!(looked.runs("2027-01-01T00:00:00Z").len() == 1, "the last one before: {:?}", looked.progress);
    assert_eq!(looked.runs("2027-01-01T01:00:00Z"), ["2027-01-01T01:00"]);
}

#[test]
fn fires_that_ran_are_kept_in_few_spans() {
    let mut looked = Looked::new("* * * * *", "2026-01-01T00:00:00Z");
    for hour in 0..20 {
        for minute in [0, 1, 2, 30] {
            looked.runs(&format!("2026-01-01T{hour:02}:{minute:02}:00Z"));
        }
    }
    assert_eq!(looked.progress.ran.len(), 16);
    assert!(looked.progress.ran.is_sorted_by(|a, b| a.to < b.after));
}
